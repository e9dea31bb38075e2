// What calibrations of all engines have in common in tests: a small request, and what must be true
// of its series.
#pragma once

#include "runtime/calibrate/calibrate.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace spp::test {

inline AttentionBlock small_block(Phase phase, std::int64_t tokens, DType dtype) {
  return {.phase = phase,
          .q = TokenSet({.begin = 0, .count = tokens}, {.begin = 3 * tokens, .count = tokens}),
          .k = TokenSet({.begin = 1, .count = 2 * tokens, .stride = 2}),
          .q_heads = 2,
          .kv_heads = 1,
          .head_dim = 16,
          .mask = {.kind = MaskKind::causal},
          .dtype = dtype};
}

/// All suites, on tiny messages and caches, in next to no time.
inline runtime::CalibrationRequest small_calibration(int ranks) {
  runtime::CalibrationRequest request;
  request.transport = &runtime::transports::by_name("inproc", "test");
  request.ranks = ranks;
  request.shape = {
      .seq = 256, .batch = 1, .q_heads = 2, .kv_heads = 2, .head_dim = 16, .dtype = DType::bf16};
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    for (const std::int64_t tokens : {8, 16}) {
      request.blocks.push_back(small_block(phase, tokens, DType::bf16));
    }
  }
  request.suites = {"links", "collectives", "attention", "elementwise", "layer"};
  request.budget = Seconds(0.1);
  request.largest_message = 1 << 12;
  request.cold = 1 << 10;
  return request;
}

using Labels = std::tuple<std::string, std::string, int, int, double>;

/// what, scope, ranks, active, size of all series of a suite but `cpu`, which only hosts have.
inline std::set<Labels> labels_of(const Calibration& calibration, const std::string& suite) {
  std::set<Labels> labels;
  for (const Series& s : calibration.series.at(suite)) {
    if (s.what != "cpu") {
      labels.emplace(s.what, s.scope, s.ranks, s.active, s.size);
    }
  }
  return labels;
}

/// Every series has enough samples, all of them times.
inline void check_samples(const Calibration& calibration) {
  REQUIRE(calibration.complete);
  for (const auto& [suite, list] : calibration.series) {
    for (const Series& s : list) {
      INFO(suite << " " << s.what << " " << s.scope << " " << s.ranks << " " << s.size);
      CHECK(s.suite == suite);
      CHECK(s.seconds.size() >= 7);
      CHECK(std::ranges::all_of(s.seconds, [](double t) { return std::isfinite(t) && t > 0; }));
    }
  }
}

}  // namespace spp::test
