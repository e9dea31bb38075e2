// One class, whose graph has a file of its own (atoms_graph.cpp).
#include "schedule/atoms.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace spp {
namespace {

constexpr std::size_t word_bits = 64;
const AtomSet nothing;
constexpr std::span<const TokenRange> no_ranges;

/// All tokens of `atom` lie in `range`.
bool lies_in(const TokenRange& atom, const TokenRange& range) {
  return range.contains(atom.begin) && range.contains(atom.last()) &&
         (atom.count == 1 || atom.stride % range.stride == 0);
}

/// `range`, cut where the grain says inside it, into `pieces`.
void cut_inside(TokenRange range, std::span<const std::int64_t> cuts,
                std::set<TokenRange>& pieces) {
  for (auto at = std::ranges::upper_bound(cuts, range.begin);
       at != cuts.end() && *at <= range.last(); ++at) {
    const std::int64_t before = (*at - range.begin + range.stride - 1) / range.stride;
    pieces.insert({.begin = range.begin, .count = before, .stride = range.stride});
    range.begin += before * range.stride;
    range.count -= before;
  }
  pieces.insert(range);
}

/// `range`, cut where it crosses a multiple of the grain's tokens (0: whole), too. What crosses
/// more than one is made up of others.
void cut(const TokenRange& range, const Grain& grain, std::set<TokenRange>& pieces) {
  const bool can = grain.tokens > 0 && range.stride == 1;
  const std::int64_t first = can ? grain.tokens - range.begin % grain.tokens : range.count;
  if (range.count <= first || range.count - first > grain.tokens) {
    cut_inside(range, grain.cuts, pieces);
    return;
  }
  cut_inside({.begin = range.begin, .count = first}, grain.cuts, pieces);
  cut_inside({.begin = range.begin + first, .count = range.count - first}, grain.cuts, pieces);
}

std::string text_of(HeadRange heads, bool kv) {
  return fmt::format("{} {}:{}", kv ? "KV heads" : "heads", heads.begin, heads.count());
}

}  // namespace

void AtomSet::widen(std::size_t first, std::size_t end) {
  if (words_.empty()) {
    first_ = first;
  }
  if (first < first_) {
    words_.insert(words_.begin(), first_ - first, 0);
    first_ = first;
  }
  words_.resize(std::max(words_.size(), end - first_));
}

void AtomSet::insert(std::size_t i) {
  const std::size_t word = i / word_bits;
  widen(word, word + 1);
  words_[word - first_] |= std::uint64_t{1} << (i % word_bits);
}

void AtomSet::unite(const AtomSet& other) {
  if (other.empty()) {
    return;
  }
  widen(other.first_, other.end());
  for (std::size_t w = 0; w < other.words_.size(); ++w) {
    words_[other.first_ - first_ + w] |= other.words_[w];
  }
}

bool AtomSet::intersects(const AtomSet& other) const {
  for (std::size_t w = std::max(first_, other.first_); w < std::min(end(), other.end()); ++w) {
    if ((word(w) & other.word(w)) != 0) {
      return true;
    }
  }
  return false;
}

AtomSet AtomSet::intersection(const AtomSet& other) const {
  AtomSet result = *this;
  for (std::size_t w = 0; w < result.words_.size(); ++w) {
    result.words_[w] &= other.word(first_ + w);
  }
  result.trim();
  return result;
}

AtomSet AtomSet::minus(const AtomSet& other) const {
  AtomSet result = *this;
  for (std::size_t w = 0; w < result.words_.size(); ++w) {
    result.words_[w] &= ~other.word(first_ + w);
  }
  result.trim();
  return result;
}

std::vector<int> AtomSet::members() const {
  std::vector<int> result;
  for (std::size_t w = 0; w < words_.size(); ++w) {
    for (std::uint64_t rest = words_[w]; rest != 0; rest &= rest - 1) {
      result.push_back(static_cast<int>((first_ + w) * word_bits) + std::countr_zero(rest));
    }
  }
  return result;
}

void AtomSet::trim() {
  while (!words_.empty() && words_.back() == 0) {
    words_.pop_back();
  }
  const auto set = std::ranges::find_if(words_, [](std::uint64_t word) { return word != 0; });
  first_ = words_.empty() ? 0 : first_ + static_cast<std::size_t>(set - words_.begin());
  words_.erase(words_.begin(), set);
}

AtomGrid::AtomGrid(const Schedule& schedule, std::span<const std::span<const Buffer>> tiles)
    : cached_(schedule.contract.attention.cached), graph_(schedule.contract.graph) {
  cut_tokens(schedule, tiles);
  tell_micro_batches(schedule.contract.attention);
  cut_heads(schedule.grain.heads);
  for (int mask = 0; mask < schedule.contract.attention.masks(); ++mask) {
    allow_pairs(schedule.contract.attention, schedule.contract.attention.mask_of(mask));
  }
  hand_out_states(schedule);
  const std::string flaw = flaw_of(graph_, rows_of(schedule.contract.attention, query_atoms()));
  if (!flaw.empty()) {
    flaw_ = "the graph cannot be computed: " + flaw;
  } else if (graph_.empty() && schedule.contract.attention.sinks) {
    flaw_ = "attention by itself has no sinks: they are a parameter of a graph";
  } else {
    index_ = GraphIndex(graph_);
    cut_params(tiles);
    sum_up_graph();
    route_tokens();
    know_attentions(tiles);
  }
}

namespace {

/// Two of the ranges that have a token in common.
std::optional<std::pair<TokenRange, TokenRange>> shared_tokens(std::vector<TokenRange> ranges) {
  // Ranges of one stride that start alike modulo it follow each other.
  const auto by_place = [](const TokenRange& r) {
    return std::tuple(r.stride, r.begin % r.stride, r.begin);
  };
  std::ranges::sort(ranges, {}, by_place);
  std::map<std::int64_t, std::vector<TokenRange>> by_stride;
  for (const TokenRange& r : ranges) {
    std::vector<TokenRange>& alike = by_stride[r.stride];
    if (!alike.empty() && alike.back().begin % r.stride == r.begin % r.stride &&
        alike.back().last() >= r.begin) {
      return std::pair(alike.back(), r);
    }
    alike.push_back(r);
  }
  for (auto some = by_stride.begin(); some != by_stride.end(); ++some) {
    for (auto others = std::next(some); others != by_stride.end(); ++others) {
      for (const TokenRange& a : some->second) {
        for (const TokenRange& b : others->second) {
          if (common(a, b).count > 0) {
            return std::pair(a, b);
          }
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace

void AtomGrid::cut_tokens(const Schedule& schedule,
                          std::span<const std::span<const Buffer>> tiles) {
  std::set<TokenRange> ranges;
  for (const auto& rank : tiles) {
    for (const Buffer& buffer : rank) {
      const bool of_tokens = !is_state(buffer.tensor) && !is_param(buffer.tensor);
      for (const TokenRange& range : of_tokens ? buffer.tile.ranges() : no_ranges) {
        cut(range, schedule.grain, ranges);
      }
    }
  }
  // The smallest are atoms; what they do not make up is one, too.
  std::vector<TokenRange> by_count(ranges.begin(), ranges.end());
  std::ranges::stable_sort(by_count, {}, &TokenRange::count);
  std::int64_t total = 0;
  for (const TokenRange& range : by_count) {
    const bool made_up =
        std::ranges::any_of(tokens_, [&](const TokenRange& atom) { return lies_in(atom, range); });
    if (!made_up) {
      tokens_.push_back(range);
      total += range.count;
    }
  }
  std::ranges::sort(tokens_);
  const auto crosses = [&](const TokenRange& atom) {
    return !schedule.contract.attention.in_one_micro_batch(TokenSet(atom), {});
  };
  if (const auto atom = std::ranges::find_if(tokens_, crosses); atom != tokens_.end()) {
    flaw_ = fmt::format("tokens {} are of several micro-batches", to_string(TokenSet(*atom)));
  }
  if (const auto shared = shared_tokens(tokens_)) {
    flaw_ = fmt::format(
        "tiles that ranks declare cut the sequence into parts that share tokens: {} "
        "and {}",
        to_string(TokenSet(shared->first)), to_string(TokenSet(shared->second)));
  }
  const std::int64_t all = schedule.contract.attention.all_tokens();
  if (std::ranges::any_of(tokens_, [&](const TokenRange& r) { return r.last() >= all; })) {
    flaw_ = fmt::format("tiles that ranks declare go beyond the {} tokens", all);
  }
  if (total != schedule.contract.attention.all_tokens()) {
    flaw_ = fmt::format(
        "the tiles that ranks declare cut the sequence into parts of {} tokens in all, not {}",
        total, schedule.contract.attention.all_tokens());
  }
}

void AtomGrid::tell_micro_batches(const Problem& problem) {
  for (int atom = 0; atom < token_atoms(); ++atom) {
    const bool same = atom > 0 && problem.in_one_micro_batch(TokenSet(tokens_[at(atom) - 1]),
                                                             TokenSet(tokens_[at(atom)]));
    if (!same) {
      micro_batches_.push_back({.begin = atom, .end = atom});
    }
    ++micro_batches_.back().end;
    micro_batch_of_.push_back(static_cast<int>(micro_batches_.size()) - 1);
  }
  for (Beside& atoms : micro_batches_) {
    atoms.pairs_before = pairs_;
    pairs_ += at(atoms.end - atoms.begin) * at(atoms.end - atoms.begin);
  }
}

void AtomGrid::cut_heads(const HeadSplit& split) {
  replicas_ = split.replicas();
  for (int part = 0; part < split.parts(); ++part) {
    q_heads_.push_back(split.q(part));
    if (part % replicas_ == 0) {
      kv_heads_.push_back(split.kv(part));
    }
  }
}

void AtomGrid::allow_pairs(const Problem& problem, const Mask& mask) {
  Seen& seen = seen_.emplace_back();
  seen.allowed.resize(pairs_);
  seen.all_allowed.resize(pairs_);
  seen.keys_of_queries.resize(tokens_.size());
  seen.contributors_of_key.resize(tokens_.size());
  for (int query = 0; query < token_atoms(); ++query) {
    const TokenRange& q = tokens_[at(query)];
    if (q.begin < problem.cached) {
      continue;
    }
    for (int key = beside(query).begin; key < beside(query).end; ++key) {
      const TokenRange& k = tokens_[at(key)];
      const std::int64_t pairs =
          allowed_pairs(problem.local(TokenSet(q)), problem.local(TokenSet(k)), mask);
      if (pairs == 0) {
        continue;
      }
      seen.allowed[pair(query, key)] = true;
      seen.all_allowed[pair(query, key)] = pairs == q.count * k.count;
      seen.keys_of_queries[at(query)].insert(at(key));
      for (int h = 0; h < replicas_; ++h) {
        seen.contributors_of_key[at(key)].insert(contributor({.tokens = query, .heads = h}));
      }
    }
  }
  if (problem.sinks) {
    seen.keys_and_sink = seen.keys_of_queries;
    for (AtomSet& met : seen.keys_and_sink) {
      met.insert(sink());
    }
  }
}

void AtomGrid::hand_out_states(const Schedule& schedule) {
  const int slots = schedule.grain.slots;
  for (int s = 0; s < slots; ++s) {
    const TokenRange part{.begin = schedule.contract.attention.seq / slots * s,
                          .count = schedule.contract.attention.seq / slots};
    std::vector<int> queries;
    for (int q = 0; q < token_atoms(); ++q) {
      if (lies_in(tokens_[at(q)], part)) {
        queries.push_back(q);
      }
    }
    AtomSet& keys = keys_of_slots_.emplace_back();
    for (int k = 0; k < token_atoms(); ++k) {
      const bool seen = std::ranges::all_of(
          queries, [&](int q) { return are_beside(q, k) && seen_[0].all_allowed[pair(q, k)]; });
      if (seen) {
        keys.insert(at(k));
      }
    }
  }
}

const std::vector<int>* AtomGrid::tokens(const TokenSet& set) const {
  const auto [it, is_new] = sets_.try_emplace(set);
  std::vector<int>& atoms = it->second;
  if (is_new) {
    std::int64_t found = 0;
    for (std::size_t a = 0; a < tokens_.size(); ++a) {
      const auto holds_atom = [&](const TokenRange& r) { return lies_in(tokens_[a], r); };
      if (std::ranges::any_of(set.ranges(), holds_atom)) {
        atoms.push_back(static_cast<int>(a));
        found += tokens_[a].count;
      }
    }
    if (found != set.count()) {
      atoms.clear();
    }
  }
  return atoms.empty() ? nullptr : &atoms;
}

const std::vector<int>* AtomGrid::slots(const TokenSet& set) const {
  const auto [it, is_new] = slots_.try_emplace(set);
  const auto known = std::ssize(keys_of_slots_);
  if (is_new && set.count() <= known) {
    for (const TokenRange& range : set.ranges()) {
      for (std::int64_t i = 0; i < range.count && range.at(i) < known; ++i) {
        it->second.push_back(static_cast<int>(range.at(i)));
      }
    }
  }
  return it->second.empty() || std::ssize(it->second) != set.count() ? nullptr : &it->second;
}

std::optional<HeadAtoms> AtomGrid::heads(HeadRange range, TensorRef ref) const {
  if (is_of_graph(ref.tensor)) {
    return range.begin >= 0 && range.begin < range.end && range.end <= head_atoms(ref)
               ? std::optional(HeadAtoms{.begin = range.begin, .end = range.end})
               : std::nullopt;
  }
  const auto& atoms = is_kv(ref.tensor) ? kv_heads_ : q_heads_;
  const auto first = std::ranges::find(atoms, range.begin, &HeadRange::begin);
  const auto last = std::ranges::find(atoms, range.end, &HeadRange::end);
  if (first == atoms.end() || last == atoms.end() || last < first) {
    return {};
  }
  return HeadAtoms{.begin = static_cast<int>(first - atoms.begin()),
                   .end = static_cast<int>(last - atoms.begin()) + 1};
}

const AtomSet& AtomGrid::complete(TensorRef ref, const Cell& cell) const {
  switch (ref.tensor) {
    case Tensor::out:
    case Tensor::lse:
      return index_.sink_of(ref.label) >= 0 ? seen_by(ref.label).keys_and_sink[at(cell.tokens)]
                                            : seen_by(ref.label).keys_of_queries[at(cell.tokens)];
    case Tensor::d_q:
    case Tensor::weights:
    case Tensor::d_scores:
      return seen_by(ref.label).keys_of_queries[at(cell.tokens)];
    case Tensor::d_k:
    case Tensor::d_v:
      return seen_by(ref.label).contributors_of_key[at(cell.tokens)];
    case Tensor::q:
    case Tensor::k:
    case Tensor::v:
    case Tensor::d_out:
    case Tensor::delta:
    case Tensor::param:
    case Tensor::master:
    case Tensor::first_moment:
    case Tensor::second_moment:
      return nothing;
    case Tensor::value:
      return of_values_[at(ref.label)];
    case Tensor::d_value:
      return of_gradients_[at(ref.label)];
    case Tensor::d_param: {
      const Param& param = graph_.param(ref.label);
      if (param.experts > 0) {
        return of_experts_[at(
            static_cast<int>(row_cuts_[at(ref.label)][at(cell.tokens)] / param.part_rows()))];
      }
      return of_params_[at(ref.label)];
    }
    case Tensor::state:
      return keys_of_slots_[at(cell.tokens)];
    case Tensor::scores:
    case Tensor::d_weights:
    case Tensor::d_state:
      throw InternalError(fmt::format("{} is never an input or output", to_string(ref.tensor)));
  }
  throw InternalError("unknown tensor");
}

std::int64_t AtomGrid::volume(TensorRef ref, const Cell& cell) const {
  if (is_param(ref.tensor)) {
    const auto& cuts = row_cuts_[at(ref.label)];
    return cuts[at(cell.tokens) + 1] - cuts[at(cell.tokens)];
  }
  if (is_value(ref.tensor)) {
    return tokens_[at(cell.tokens)].count;
  }
  const HeadRange heads = (is_kv(ref.tensor) ? kv_heads_ : q_heads_)[at(cell.heads)];
  return is_state(ref.tensor) ? heads.count() : tokens_[at(cell.tokens)].count * heads.count();
}

std::string AtomGrid::tokens_text(std::span<const int> atoms) const {
  constexpr std::size_t most = 6;
  std::vector<TokenRange> ranges;
  for (const int a : atoms) {
    const TokenRange& r = tokens_[at(a)];
    const bool continues = !ranges.empty() && ranges.back().stride == r.stride &&
                           ranges.back().at(ranges.back().count) == r.begin;
    if (continues) {
      ranges.back().count += r.count;
    } else {
      ranges.push_back(r);
    }
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(ranges.size(), most); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : "+", to_string(TokenSet(ranges[i])));
  }
  return ranges.size() > most ? fmt::format("{}+… ({} ranges)", text, ranges.size()) : text;
}

std::string AtomGrid::cell_text(TensorRef ref, const Cell& cell) const {
  const Tensor tensor = ref.tensor;
  if (is_value(tensor)) {
    const int parts = graph_.value(ref.label).parts;
    return fmt::format("{} tokens {}{}", graph_.value(ref.label).name,
                       tokens_text(std::span(&cell.tokens, 1)),
                       parts == 1 ? "" : fmt::format(" (part {} of {})", cell.heads, parts));
  }
  if (is_param(tensor)) {
    const Param& param = graph_.param(ref.label);
    return fmt::format("{} rows {}:{}, column part {} of {}", param.name,
                       row_cuts_[at(ref.label)][at(cell.tokens)], volume(ref, cell), cell.heads,
                       param.column_parts);
  }
  const bool kv = is_kv(tensor);
  if (is_state(tensor)) {
    return fmt::format("slot {} ({})", cell.tokens, text_of(kv_heads_[at(cell.heads)], true));
  }
  return fmt::format("{} tokens {} ({})", kv ? "key" : "query",
                     tokens_text(std::span(&cell.tokens, 1)),
                     text_of((kv ? kv_heads_ : q_heads_)[at(cell.heads)], kv));
}

std::string AtomGrid::contributions_text(TensorRef ref, const Cell& cell,
                                         const AtomSet& set) const {
  const std::vector<int> members = set.members();
  if (members.empty()) {
    return "nothing";
  }
  if (ref.tensor == Tensor::value) {
    const Definition& d = graph_.definition(index_.writer_of({Tensor::value, ref.label}));
    if (d.function == LayerFunction::combine) {
      return fmt::format("slot {}", fmt::join(members, ", "));
    }
    const bool has_bias = d.bias >= 0 && members.back() == graph_.sum_parts(d);
    return has_bias && members.size() == 1
               ? "the bias"
               : fmt::format("row part {} of the product{}",
                             fmt::join(members.begin(), members.end() - (has_bias ? 1 : 0), ", "),
                             has_bias ? " and the bias" : "");
  }
  if (ref.tensor == Tensor::d_value) {
    std::string text;
    for (const Use& use : index_.uses_of({Tensor::value, ref.label})) {
      for (const int m : members) {
        const Definition& d = graph_.definition(use.definition);
        if (m >= use.first && m < use.first + use.count) {
          text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", to_string(d.function),
                              graph_.name(d.writes.front()));
          text += use.count > 1 ? fmt::format(", part {}", m - use.first) : "";
        }
      }
    }
    return text;
  }
  if (ref.tensor == Tensor::d_param) {
    return param_contributions_text(ref.label, members);
  }
  if (is_updated(ref.tensor)) {
    return "the update";
  }
  if (!sums_queries(ref.tensor)) {
    const bool has_sink = members.back() == static_cast<int>(sink());
    const std::span keys = std::span(members).first(members.size() - (has_sink ? 1 : 0));
    return keys.empty()
               ? "the sink"
               : fmt::format("key tokens {}{}", tokens_text(keys), has_sink ? " and the sink" : "");
  }
  const int sub_head = members.front() / token_atoms();  // the first query atom stands for the rest
  std::vector<int> queries;
  for (const int m : members) {
    if (m / token_atoms() == sub_head) {
      queries.push_back(m % token_atoms());
    }
  }
  return fmt::format("query tokens {} ({}){}", tokens_text(queries),
                     text_of(q_heads_[at(cell.heads * replicas_ + sub_head)], false),
                     queries.size() < members.size() ? " and more heads" : "");
}

}  // namespace spp
