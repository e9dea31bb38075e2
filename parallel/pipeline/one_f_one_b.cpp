// 1F1B: after a warm-up every rank alternates between a forward and a backward. PipeDream-Flush,
// Narayanan et al. (arXiv:2006.09503, arXiv:2104.04473 section 2.2.1).
//
// Rank r holds at most min(m, p-r) micro-batches. Bubble: (p-1)(F+B), as GPipe.
#include "parallel/pipeline/alternate.hpp"
#include "parallel/pipeline/pipeline.hpp"

#include <algorithm>

namespace spp::pipelines {
namespace {

std::string legal(const PipelineShape& /*shape*/) { return ""; }

std::vector<StageOp> order(const PipelineShape& shape, int rank) {
  const int m = shape.micro_batches;
  const int warm_up = std::min(m, shape.stages - 1 - rank);
  std::vector<StageOp> ops;
  ops.reserve(2 * static_cast<std::size_t>(m));
  alternate(
      m, warm_up, [&](int i) { ops.push_back({.work = StageWork::forward, .micro_batch = i}); },
      [&](int i) { ops.push_back({.work = StageWork::backward, .micro_batch = i}); });
  return ops;
}

}  // namespace

extern const Pipeline one_f_one_b{
    .name = "1f1b",
    .title = "one forward, one backward",
    .paper = "arXiv:2104.04473",
    .repeats = true,
    .ends_with_backward = true,
    .in_flight = in_flight_in_turns,
    .why_not = legal,
    .order = order,
};

}  // namespace spp::pipelines
