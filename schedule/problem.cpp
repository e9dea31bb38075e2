#include "schedule/problem.hpp"

#include "base/error.hpp"
#include "base/named.hpp"
#include "base/parse.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <vector>

namespace spp {
namespace {

constexpr std::array<Named<AttentionFunction>, 2> functions{
    {{AttentionFunction::softmax, "softmax"}, {AttentionFunction::linear, "linear"}}};
constexpr std::array<Named<DType>, 3> dtypes{
    {{DType::bf16, "bf16"}, {DType::fp16, "fp16"}, {DType::fp32, "fp32"}}};
constexpr std::array<Named<Phase>, 3> phases{
    {{Phase::forward, "fwd"}, {Phase::backward, "bwd"}, {Phase::step, "step"}}};
constexpr std::array<Named<Layout>, 7> layouts{
    {{Layout::contiguous, "contiguous"},
     {Layout::zigzag, "zigzag"},
     {Layout::striped, "striped"},
     {Layout::document_zigzag, "document-zigzag"},
     {Layout::document_contiguous, "document-contiguous"},
     {Layout::balanced, "balanced"},
     {Layout::whole_documents, "whole-documents"}}};
constexpr std::array<Named<HeadPolicy>, 4> policies{{{HeadPolicy::divide, "divide"},
                                                     {HeadPolicy::replicate, "replicate"},
                                                     {HeadPolicy::pad, "pad"},
                                                     {HeadPolicy::uneven, "uneven"}}};
constexpr std::array<Named<RankOrder>, 2> rank_orders{
    {{RankOrder::block, "block"}, {RankOrder::cyclic, "cyclic"}}};

/// Part i of n of `total` things, as even as can be, the larger parts first.
HeadRange even_part(int total, int part, int parts) {
  const int base = total / parts;
  const int larger = total % parts;
  const int begin = part * base + std::min(part, larger);
  return {begin, begin + base + (part < larger ? 1 : 0)};
}

}  // namespace

std::string_view to_string(AttentionFunction v) { return name_of(v, functions); }
std::string_view to_string(DType v) { return name_of(v, dtypes); }
std::string_view to_string(Phase v) { return name_of(v, phases); }
std::string_view to_string(Layout v) { return name_of(v, layouts); }
std::string_view to_string(HeadPolicy v) { return name_of(v, policies); }
std::string_view to_string(RankOrder v) { return name_of(v, rank_orders); }

AttentionFunction parse_attention_function(std::string_view s, std::string_view where) {
  return value_of(s, functions, where);
}
DType parse_dtype(std::string_view s, std::string_view where) { return value_of(s, dtypes, where); }
Phase parse_phase(std::string_view s, std::string_view where) { return value_of(s, phases, where); }
Layout parse_layout(std::string_view s, std::string_view where) {
  return value_of(s, layouts, where);
}
HeadPolicy parse_head_policy(std::string_view s, std::string_view where) {
  return value_of(s, policies, where);
}
RankOrder parse_rank_order(std::string_view s, std::string_view where) {
  return value_of(s, rank_orders, where);
}

namespace {

std::string kind_text(const Mask& mask) {
  switch (mask.kind) {
    case MaskKind::full:
      return "full";
    case MaskKind::causal:
      return "causal";
    case MaskKind::window:
      return fmt::format("window:{}", mask.window);
  }
  throw InternalError("unknown mask");
}

}  // namespace

std::string to_string(const Mask& mask) {
  std::string text = kind_text(mask);
  std::int64_t begin = 0;
  for (const std::int64_t end : mask.document_ends) {
    text += fmt::format("{}{}", begin == 0 ? '@' : '+', end - begin);
    begin = end;
  }
  return mask.pieces == 1 ? text : fmt::format("{}x{}", text, mask.pieces);
}

Mask parse_mask(std::string_view text, std::string_view where) {
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    Mask mask = parse_mask(text.substr(0, at), where);
    std::string_view lengths = text.substr(at + 1);
    if (const std::size_t times = lengths.rfind('x'); times != std::string_view::npos) {
      constexpr std::int64_t most_pieces = std::int64_t{1} << 20;
      mask.pieces = parse_int(lengths.substr(times + 1), where, 2, most_pieces);
      lengths = lengths.substr(0, times);
    }
    constexpr std::int64_t most = std::int64_t{1} << 31;  // so that pairs of tokens fit in 63 bits
    for (const std::string_view length : split(lengths, '+')) {
      mask.document_ends.push_back(parse_tokens(length, where) +
                                   (mask.document_ends.empty() ? 0 : mask.document_ends.back()));
      if (mask.document_ends.back() > most / mask.pieces) {
        throw InputError(where, "the documents have more than 2^31 tokens");
      }
    }
    return mask;
  }
  if (text == "full") {
    return {.kind = MaskKind::full};
  }
  if (text == "causal") {
    return {.kind = MaskKind::causal};
  }
  constexpr std::string_view window = "window:";
  if (text.starts_with(window)) {
    return {.kind = MaskKind::window, .window = parse_tokens(text.substr(window.size()), where)};
  }
  const std::vector<std::string> names{"full", "causal", "window:W"};
  throw InputError(where, fmt::format("unknown mask '{}'{}", text, did_you_mean(text, names)));
}

bool Problem::in_one_micro_batch(const TokenSet& tokens, const TokenSet& others) const {
  if (cached > 0) {
    return true;  // there is one
  }
  const std::int64_t first = tokens.empty() ? 0 : tokens.ranges()[0].begin / seq;
  const auto stays = [&](const TokenRange& range) {
    return range.begin / seq == first && range.last() / seq == first;
  };
  return std::ranges::all_of(tokens.ranges(), stays) && std::ranges::all_of(others.ranges(), stays);
}

TokenSet Problem::local(const TokenSet& tokens) const {
  const std::int64_t first =
      tokens.empty() || cached > 0 ? 0 : tokens.ranges()[0].begin / seq * seq;
  return first == 0 ? tokens : tokens.shifted(-first);
}

TokenSet chunk_tokens(std::int64_t seq, Layout layout, int index, int chunks) {
  const std::int64_t size = seq / chunks;
  switch (layout) {
    case Layout::contiguous:
    case Layout::document_contiguous:
      return TokenSet({.begin = index * size, .count = size});
    case Layout::striped:
      return TokenSet({.begin = index, .count = size, .stride = chunks});
    case Layout::zigzag:
    case Layout::document_zigzag: {
      const std::int64_t half = size / 2;
      return {{.begin = index * half, .count = half},
              {.begin = (2 * chunks - 1 - index) * half, .count = half}};
    }
    case Layout::balanced:
    case Layout::whole_documents:
      break;  // dealt_by_work()
  }
  throw InternalError("a layout whose chunks the length alone does not tell");
}

TokenSet chunk_of_queries(const Problem& problem, Layout layout, int index, int chunks) {
  return chunk_tokens(problem.seq, layout, index, chunks).shifted(problem.cached);
}

TokenSet chunk_of_cached(const Problem& problem, Layout layout, int index, int chunks) {
  return problem.cached > 0 ? chunk_tokens(problem.cached, layout, index, chunks) : TokenSet();
}

TokenSet chunk_of_keys(const Problem& problem, Layout layout, int index, int chunks) {
  if (problem.cached == 0) {
    return chunk_tokens(problem.seq, layout, index, chunks);
  }
  TokenSet keys = chunk_of_cached(problem, layout, index, chunks);
  const TokenSet queries = chunk_of_queries(problem, layout, index, chunks);  // outlives its ranges
  for (const TokenRange& range : queries.ranges()) {
    keys.append(range);
  }
  return keys;
}

HeadSplit::HeadSplit(const Problem& problem, int parts, HeadPolicy policy)
    : parts_(parts), q_heads_(problem.q_heads), kv_heads_(problem.kv_heads) {
  if (policy != HeadPolicy::pad) {
    const std::string reason = why_not(problem, parts, policy);
    ensure(reason.empty(), reason);
  } else {
    kv_heads_ = (kv_heads_ + parts - 1) / parts * parts;
    q_heads_ = kv_heads_ * problem.group_size();
  }
}

std::string HeadSplit::why_not(const Problem& p, int parts, HeadPolicy policy) {
  switch (policy) {
    case HeadPolicy::divide:
      return p.kv_heads % parts == 0
                 ? ""
                 : fmt::format("{} KV heads do not divide over {} ranks", p.kv_heads, parts);
    case HeadPolicy::replicate:
      if (parts > p.kv_heads && parts % p.kv_heads == 0 && p.q_heads % parts == 0) {
        return "";
      }
      return fmt::format(
          "{} KV heads cannot be replicated over {} ranks (needs more ranks than KV heads, a "
          "multiple "
          "of them, that divides the {} query heads)",
          p.kv_heads, parts, p.q_heads);
    case HeadPolicy::pad:
      return p.kv_heads % parts != 0
                 ? ""
                 : fmt::format("{} KV heads divide over {} ranks; nothing to pad", p.kv_heads,
                               parts);
    case HeadPolicy::uneven:
      return p.kv_heads > parts && p.kv_heads % parts != 0
                 ? ""
                 : fmt::format("{} KV heads cannot be dealt out unevenly over {} ranks", p.kv_heads,
                               parts);
  }
  throw InternalError("unknown head policy");
}

HeadRange HeadSplit::kv(int part) const {
  if (parts_ > kv_heads_) {
    const int head = part / replicas();
    return {head, head + 1};
  }
  return even_part(kv_heads_, part, parts_);
}

HeadRange HeadSplit::q(int part) const {
  if (parts_ > kv_heads_) {
    return even_part(q_heads_, part, parts_);
  }
  const int group = q_heads_ / kv_heads_;
  const HeadRange kv_part = kv(part);
  return {kv_part.begin * group, kv_part.end * group};
}

bool HeadSplit::even() const { return parts_ > kv_heads_ || kv_heads_ % parts_ == 0; }

}  // namespace spp
