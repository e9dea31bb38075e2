#include "runtime/device/cuda/latent_kernels.hpp"
#include "runtime/device/cuda/latent_ops.cuh"
#include "runtime/device/cuda/launch.cuh"

#include <cmath>

namespace spp::runtime::cuda {
namespace {

void bring_latents(const LatentHeadsArgs& args, bool back, cudaStream_t stream) {
  const LatentShape shape = shape_of_latents(args);
  const Latents latents{.q_row = numbers_of(args.q_row),
                        .kv_row = numbers_of(args.kv_row),
                        .position = numbers_of(args.position),
                        .q = numbers_of(args.q),
                        .k = numbers_of(args.k),
                        .v = numbers_of(args.v),
                        .shape = shape};
  for_each(stream, matrix_rows(args.q) * shape.heads * (2 * shape.content + shape.value),
           LatentCopyOp{.of = latents, .back = back});
  LatentTurnOp op{.of = latents,
                  .turns = {.width = shape.turned,
                            .log2_theta = args.theta > 0 ? std::log2(args.theta) : 0,
                            .sign = back ? -1 : 1},
                  .turned = args.theta > 0,
                  .back = back,
                  .batch = args.q.batch};
  for (const TokenRange& range : args.positions.ranges()) {
    op.turns.first_position = range.begin;
    op.turns.stride = range.stride;
    for_each(stream, range.count * (shape.turned / 2), op);
    op.rows_before += range.count;
  }
}

}  // namespace

void latent_heads(const LatentHeadsArgs& args, cudaStream_t stream) {
  bring_latents(args, false, stream);
}
void join_latent_heads(const LatentHeadsArgs& args, cudaStream_t stream) {
  bring_latents(args, true, stream);
}

void load_latent_kernels() {
  load_each<LatentCopyOp>();
  load_each<LatentTurnOp>();
}

}  // namespace spp::runtime::cuda
