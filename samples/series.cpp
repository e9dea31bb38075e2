#include "samples/series.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"
#include "schedule/measure.hpp"

namespace spp {
namespace {

Json block_json(const AttentionBlock& b) {
  Json json = {
      {"phase", to_string(b.phase)}, {"dtype", to_string(b.dtype)}, {"batch", b.batch},
      {"q_heads", b.q_heads},        {"kv_heads", b.kv_heads},      {"head_dim", b.head_dim},
      {"mask", to_string(b.mask)},   {"q_tokens", to_string(b.q)},  {"k_tokens", to_string(b.k)}};
  if (b.v_dim() != b.head_dim) {
    json["value_dim"] = b.v_dim();
  }
  return json;
}

AttentionBlock read_block(const JsonView& view) {
  constexpr std::int64_t most = 1 << 20;
  const auto word = [&](std::string_view key, auto parse) {
    const JsonView member = view.at(key);
    return parse(member.string(), member.where());
  };
  const auto count = [&](std::string_view key) { return view.at(key).integer(1, most); };
  return {.phase = word("phase", parse_phase),
          .q = word("q_tokens", parse_token_set),
          .k = word("k_tokens", parse_token_set),
          .q_heads = static_cast<int>(count("q_heads")),
          .kv_heads = static_cast<int>(count("kv_heads")),
          .head_dim = static_cast<int>(count("head_dim")),
          .value_dim = view.find("value_dim") ? static_cast<int>(count("value_dim")) : 0,
          .batch = count("batch"),
          .mask = word("mask", parse_mask),
          .dtype = word("dtype", parse_dtype)};
}

Json gemm_json(const GemmBlock& g) {
  return {{"kind", to_string(g.kind)},
          {"dtype", to_string(g.dtype)},
          {"m", g.shape.m},
          {"n", g.shape.n},
          {"k", g.shape.k}};
}

GemmBlock read_gemm(const JsonView& view) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  const JsonView word = view.at("kind");
  const JsonView dtype = view.at("dtype");
  const auto count = [&](std::string_view key) { return view.at(key).integer(1, most); };
  for (const GemmKind kind :
       {GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient}) {
    if (word.string() == to_string(kind)) {
      return {.kind = kind,
              .shape = {.m = count("m"), .n = count("n"), .k = count("k")},
              .dtype = parse_dtype(dtype.string(), dtype.where())};
    }
  }
  word.fail(fmt::format("'{}' is none of forward, input_gradient, weight_gradient", word.string()));
}

}  // namespace

FlopCount flops_of(const AttentionBlock& b) {
  return FlopCount(static_cast<double>(allowed_pairs(b.q, b.k, b.mask)) * b.q_heads *
                   static_cast<double>(b.batch) * flops_per_pair(b.phase, b.head_dim, b.v_dim()));
}

Json to_json(const Series& s) {
  Json json = {{"suite", s.suite},   {"what", s.what},  {"scope", s.scope},    {"ranks", s.ranks},
               {"active", s.active}, {"bytes", s.size}, {"seconds", s.seconds}};
  if (!s.pace.empty()) {
    json["pace"] = s.pace;
  }
  if (s.block) {
    json["block"] = block_json(*s.block);
  }
  if (s.gemm) {
    json["gemm"] = gemm_json(*s.gemm);
  }
  return json;
}

Json samples_json(const std::vector<Series>& series) {
  Json list = Json::array();
  for (const Series& s : series) {
    list.push_back(to_json(s));
  }
  return list;
}

Series read_series(const JsonView& view) {
  constexpr std::int64_t most_ranks = 1 << 20;
  view.allow_only(
      {"suite", "what", "scope", "ranks", "active", "bytes", "seconds", "pace", "block", "gemm"});
  Series s;
  s.suite = view.at("suite").string();
  s.what = view.at("what").string();
  s.scope = view.at("scope").string();
  s.ranks = static_cast<int>(view.at("ranks").integer(1, most_ranks));
  s.active = static_cast<int>(view.at("active").integer(1, most_ranks));
  s.size = view.at("bytes").number(0, most_bytes.as_double());
  for (const JsonView& seconds : view.at("seconds").elements()) {
    const Seconds took = seconds_from(seconds.number(), "s", seconds.where());
    if (took == Seconds(0)) {
      seconds.fail("is 0: nothing that is measured takes no time");
    }
    s.seconds.push_back(took.count());
  }
  if (const auto pace = view.find("pace")) {
    for (const JsonView& seconds : pace->elements()) {
      s.pace.push_back(measured_from(seconds.number(), "s", seconds.where()).count());
    }
    if (s.pace.size() != s.seconds.size()) {
      pace->fail("has not as many samples as 'seconds'");
    }
  }
  if (const auto block = view.find("block")) {
    s.block = read_block(*block);
  }
  if (const auto gemm = view.find("gemm")) {
    s.gemm = read_gemm(*gemm);
  }
  return s;
}

std::vector<std::int64_t> message_sizes(std::int64_t largest) {
  std::vector<std::int64_t> sizes{8};
  for (std::int64_t size = 64; size <= largest; size *= 4) {
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace spp
