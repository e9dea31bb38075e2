// GPipe: all forwards, then all backwards. Huang et al. (arXiv:1811.06965).
//
// All micro-batches are in flight at once. Bubble: (p-1)(F+B).
#include "parallel/pipeline/pipeline.hpp"

namespace spp::pipelines {
namespace {

std::string legal(const PipelineShape& /*shape*/) { return ""; }

std::vector<StageOp> order(const PipelineShape& shape, int /*rank*/) {
  std::vector<StageOp> ops;
  ops.reserve(2 * static_cast<std::size_t>(shape.micro_batches));
  for (const StageWork work : {StageWork::forward, StageWork::backward}) {
    for (int m = 0; m < shape.micro_batches; ++m) {
      ops.push_back({.work = work, .micro_batch = m});
    }
  }
  return ops;
}

}  // namespace

extern const Pipeline gpipe{
    .name = "gpipe",
    .title = "all forwards, then all backwards",
    .paper = "arXiv:1811.06965",
    .dominated = true,
    .in_flight = [](const PipelineShape& shape, int /*rank*/) { return shape.micro_batches; },
    .why_not = legal,
    .order = order,
};

}  // namespace spp::pipelines
