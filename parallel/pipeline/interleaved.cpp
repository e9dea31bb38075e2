// Interleaved 1F1B: each rank holds v chunks of the model, which cuts the bubble by v. Narayanan
// et al. (arXiv:2104.04473, section 2.2.2), in the order of Megatron-Core
// (megatron/core/pipeline_parallel/schedules.py).
//
// Micro-batches go in groups of p: a group's forwards in chunk 0, then in chunk 1, …, backwards in
// the reverse order of chunks. Warm-up: 2(p-r-1) + (v-1)p forwards. Bubble: (p-1)(F+B)/v.
#include "base/error.hpp"
#include "parallel/pipeline/alternate.hpp"
#include "parallel/pipeline/pipeline.hpp"

#include <algorithm>

namespace spp::pipelines {
namespace {

std::string legal(const PipelineShape& shape) {
  if (shape.chunks < 2) {
    return "interleaving takes at least two virtual stages a rank";
  }
  if (shape.stages < 2) {
    return "interleaving takes at least two stages";
  }
  if (shape.micro_batches % shape.stages != 0) {
    const int below = shape.micro_batches / shape.stages * shape.stages;
    return fmt::format("interleaving takes a multiple of {} micro-batches, not {} (nearest: {})",
                       shape.stages, shape.micro_batches, below > 0 ? below : shape.stages);
  }
  return "";
}

/// The forwards of a rank one after the other (the backwards, with the chunks reversed).
class ChunksInTurn {
 public:
  ChunksInTurn(const PipelineShape& shape, StageWork work) : shape_(shape), work_(work) {}
  StageOp next() {
    const StageOp op{.work = work_,
                     .micro_batch = group_ + in_group_,
                     .chunk = work_ == StageWork::forward ? chunk_ : shape_.chunks - 1 - chunk_};
    if (++in_group_ == shape_.stages) {
      in_group_ = 0;
      ++chunk_;
    }
    if (chunk_ == shape_.chunks) {
      chunk_ = 0;
      group_ += shape_.stages;
    }
    return op;
  }

 private:
  const PipelineShape& shape_;
  StageWork work_;
  int group_ = 0;  // its first micro-batch
  int in_group_ = 0, chunk_ = 0;
};

std::vector<StageOp> order(const PipelineShape& shape, int rank) {
  const int all = shape.micro_batches * shape.chunks;
  const int warm_up =
      std::min(all, 2 * (shape.stages - 1 - rank) + (shape.chunks - 1) * shape.stages);
  std::vector<StageOp> ops;
  ops.reserve(2 * static_cast<std::size_t>(all));
  ChunksInTurn forwards(shape, StageWork::forward);
  ChunksInTurn backwards(shape, StageWork::backward);
  alternate(
      all, warm_up, [&](int /*i*/) { ops.push_back(forwards.next()); },
      [&](int /*i*/) { ops.push_back(backwards.next()); });
  return ops;
}

}  // namespace

extern const Pipeline interleaved{
    .name = "interleaved",
    .title = "1F1B with virtual stages",
    .paper = "arXiv:2104.04473",
    .chunks = true,
    .overlaps = true,  // overlap_p2p_communication
    .repeats = true,
    .in_flight = in_flight_in_turns,
    .why_not = legal,
    .order = order,
};

}  // namespace spp::pipelines
