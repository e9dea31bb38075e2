// ZB-H1: 1F1B whose backwards are cut in two; the weights' part fills the bubble. Qi et al.
// (arXiv:2401.10241, section 2.2).
//
// Rank r postpones the weight gradients of its first r micro-batches, so that no rank holds more
// than 1F1B's first one does: activations of a micro-batch live until its weight gradient. Bubble:
// (p-1)(F+I-W): a third of 1F1B's where the three take equally long.
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
  int weights = 0;  // weight gradients that are done
  const auto backward = [&](int i) {
    ops.push_back({.work = StageWork::input_gradient, .micro_batch = i});
    if (i >= rank) {
      ops.push_back({.work = StageWork::weight_gradient, .micro_batch = weights++});
    }
  };
  alternate(
      m, warm_up, [&](int i) { ops.push_back({.work = StageWork::forward, .micro_batch = i}); },
      backward);
  while (weights < m) {
    ops.push_back({.work = StageWork::weight_gradient, .micro_batch = weights++});
  }
  return ops;
}

}  // namespace

extern const Pipeline zero_bubble{
    .name = "zero-bubble",
    .title = "ZB-H1: weight gradients fill the bubble",
    .paper = "arXiv:2401.10241",
    .overlaps = true,  // torch.distributed.pipelining waits for what it sent at the end
    .repeats = true,
    .cuts_backward = true,
    .in_flight = in_flight_in_turns,
    .why_not = legal,
    .order = order,
};

}  // namespace spp::pipelines
