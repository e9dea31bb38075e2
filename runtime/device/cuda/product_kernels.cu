#include "runtime/device/cuda/kernels.hpp"
#include "runtime/device/cuda/launch.cuh"
#include "runtime/device/cuda/product_kernels.hpp"
#include "runtime/device/cuda/product_ops.cuh"

#include <cmath>
#include <vector>

namespace spp::runtime::cuda {
namespace {

/// Of query rows and key rows.
AttentionShape shape_of(const Rows& q, const Rows& k) {
  return {.queries = q.count,
          .keys = k.count,
          .batch = q.batch,
          .heads = q.heads,
          .kv_heads = k.heads,
          .width = q.width,
          .scale = 1 / std::sqrt(static_cast<float>(q.width)),
          .seen = nullptr};
}

Pairs pairs_of(const Rows& rows, std::int64_t first) {
  return {.numbers = numbers_of(rows), .seq = rows.width, .first = first};
}

std::int64_t rows_of(const Rows& rows) { return rows.count * rows.batch * rows.heads; }

/// All rows are one chunk.
ChunkStates one_chunk(const Rows& state, const AttentionShape& shape) {
  return {.numbers = numbers_of(state), .chunk = shape.queries};
}

std::int64_t chunks_of(std::int64_t rows, std::int64_t chunk) { return (rows + chunk - 1) / chunk; }

/// States before each chunk of `rows` and `values`, or after it.
ChunkStates scanned(const Rows& rows, const Rows& values, AttentionShape shape,
                    const LinearRoom& room, bool backwards, cudaStream_t stream) {
  const ChunkStates states{.numbers = {.data = room.data, .dtype = DType::fp32},
                           .chunk = room.chunk};
  const std::int64_t chunks = chunks_of(shape.queries, room.chunk);
  const std::int64_t size = shape.batch * shape.kv_heads * shape.width * shape.width;
  for_each(stream, chunks * size,
           MakeStateOp{.shape = shape,
                       .rows = numbers_of(rows),
                       .values = numbers_of(values),
                       .to = states,
                       .group = rows.heads / shape.kv_heads});
  for_each(stream, size,
           ScanStatesOp{
               .states = states.numbers, .chunks = chunks, .size = size, .backwards = backwards});
  return states;
}

void apply(const Rows& rows, const ChunkStates& states, AttentionShape shape, const Rows& to,
           StateUse use, cudaStream_t stream) {
  shape.heads = rows.heads;
  for_each(stream, to.elements(),
           ApplyStateOp{.shape = shape,
                        .rows = numbers_of(rows),
                        .to = numbers_of(to),
                        .states = states,
                        .transposed = use.transposed,
                        .add = use.add});
}

}  // namespace

void scores(const Rows& rows, const Rows& columns, const Rows& to, std::int64_t first,
            cudaStream_t stream) {
  for_each(stream, rows_of(rows) * columns.count,
           ScoresOp{.shape = shape_of(rows, columns),
                    .rows = numbers_of(rows),
                    .columns = numbers_of(columns),
                    .to = pairs_of(to, first)});
}

void softmax(const Rows& scores, const Rows& weights, const SeenKeyRows* seen, float scale,
             cudaStream_t stream) {
  AttentionShape shape = shape_of(scores, scores);
  shape.scale = scale;
  shape.seen = seen;
  for_rows(
      stream, rows_of(scores), scores.width,
      SoftmaxOp{.shape = shape, .scores = pairs_of(scores, 0), .weights = pairs_of(weights, 0)});
}

void softmax_backward(const Rows& weights, const Rows& d_weights, const Rows& d_scores, float scale,
                      cudaStream_t stream) {
  for_rows(stream, rows_of(weights), weights.width,
           SoftmaxBackwardOp{.weights = pairs_of(weights, 0),
                             .d_weights = pairs_of(d_weights, 0),
                             .d_scores = pairs_of(d_scores, 0),
                             .scale = scale});
}

void weigh(const Rows& weights, const Rows& values, const Rows& to, std::int64_t first,
           bool initial, cudaStream_t stream) {
  for_each(stream, to.elements(),
           WeighOp{.shape = shape_of(to, values),
                   .weights = pairs_of(weights, first),
                   .values = numbers_of(values),
                   .to = numbers_of(to),
                   .add = !initial});
}

void weigh_back(const Rows& weights, const Rows& rows, const Rows& to, std::int64_t first,
                cudaStream_t stream) {
  for_each(stream, to.elements(),
           WeighBackOp{.shape = shape_of(rows, to),
                       .weights = pairs_of(weights, first),
                       .rows = numbers_of(rows),
                       .to = numbers_of(to)});
}

std::int64_t linear_bytes(const Rows& k, std::int64_t chunk) {
  return chunks_of(k.count, chunk) * k.batch * k.heads * k.width * k.width * size_of(DType::fp32);
}

void linear_forward(const Rows& q, const Rows& k, const Rows& v, const Rows& out,
                    const LinearRoom& room, cudaStream_t stream) {
  const AttentionShape shape = shape_of(q, k);
  apply(q, scanned(k, v, shape, room, false, stream), shape, out, {}, stream);
  for_each(stream, out.elements(),
           ChunkQueryOp{.shape = shape,
                        .rows = numbers_of(q),
                        .keys = numbers_of(k),
                        .values = numbers_of(v),
                        .to = numbers_of(out),
                        .chunk = room.chunk});
}

void linear_backward(const LinearBackwardArgs& args, const LinearRoom& room, cudaStream_t stream) {
  const auto& [q, k, v, d_out, d_q, d_k, d_v] = args;
  const AttentionShape shape = shape_of(q, k);
  apply(d_out, scanned(k, v, shape, room, false, stream), shape, d_q, {.transposed = true}, stream);
  for_each(stream, d_q.elements(),
           ChunkQueryOp{.shape = shape,
                        .rows = numbers_of(d_out),
                        .keys = numbers_of(v),
                        .values = numbers_of(k),
                        .to = numbers_of(d_q),
                        .chunk = room.chunk});
  const ChunkStates after = scanned(q, d_out, shape, room, true, stream);
  apply(v, after, shape, d_k, {.transposed = true}, stream);
  apply(k, after, shape, d_v, {}, stream);
  for_each(stream, d_k.elements(),
           ChunkKeyOp{.shape = shape,
                      .rows = numbers_of(v),
                      .others = numbers_of(d_out),
                      .values = numbers_of(q),
                      .to = numbers_of(d_k),
                      .chunk = room.chunk});
  for_each(stream, d_v.elements(),
           ChunkKeyOp{.shape = shape,
                      .rows = numbers_of(k),
                      .others = numbers_of(q),
                      .values = numbers_of(d_out),
                      .to = numbers_of(d_v),
                      .chunk = room.chunk});
}

void make_state(const Rows& rows, const Rows& values, const Rows& to, cudaStream_t stream) {
  AttentionShape shape = shape_of(rows, rows);
  shape.kv_heads = to.heads;
  for_each(stream, to.elements(),
           MakeStateOp{.shape = shape,
                       .rows = numbers_of(rows),
                       .values = numbers_of(values),
                       .to = one_chunk(to, shape),
                       .group = rows.heads / to.heads});
}

void sum_states(const Rows& from, const Rows& to, cudaStream_t stream) {
  std::vector<const std::byte*> slots;
  for (std::int64_t slot = 0; slot < from.count; ++slot) {
    slots.push_back(from.data + slot * (from.bytes() / from.count));
  }
  sum({.parts = slots,
       .from = from.dtype,
       .to = to.data,
       .to_type = to.dtype,
       .count = to.elements()},
      stream);
}

void apply_state(const Rows& rows, const Rows& state, const Rows& to, StateUse use,
                 cudaStream_t stream) {
  AttentionShape shape = shape_of(rows, rows);
  shape.kv_heads = state.heads;
  apply(rows, one_chunk(state, shape), shape, to, use, stream);
}

void load_product_kernels() {
  load_each<ScoresOp>();
  load_rows<SoftmaxOp>();
  load_rows<SoftmaxBackwardOp>();
  load_each<WeighOp>();
  load_each<WeighBackOp>();
  load_each<MakeStateOp>();
  load_each<ScanStatesOp>();
  load_each<ApplyStateOp>();
  load_each<ChunkQueryOp>();
  load_each<ChunkKeyOp>();
}

}  // namespace spp::runtime::cuda
