#include "runtime/device/cuda/head_ops.cuh"
#include "runtime/device/cuda/kernels.hpp"
#include "runtime/device/cuda/launch.cuh"
#include "runtime/device/cuda/layer_kernels.hpp"
#include "runtime/device/cuda/layer_ops.cuh"
#include "runtime/kernels/head_moves.hpp"
#include "runtime/kernels/row_checks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace spp::runtime::cuda {
namespace {

Steps steps_of(const Rows& stored, bool transposed) {
  const std::int64_t columns = matrix_columns(stored);
  return transposed ? Steps{.row = 1, .column = columns} : Steps{.row = columns, .column = 1};
}

BiasWeights weights_of(const Rows& rows) {
  return {.numbers = numbers_of(rows), .there = rows.count > 0};
}

template <bool Centred>
void norm(const NormArgs& args, float epsilon, cudaStream_t stream) {
  ensure_norm(args, Centred ? Centring::mean : Centring::none);
  const std::int64_t columns = matrix_columns(args.x);
  with_vectors(columns, {args.x, args.weight, args.y}, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_passes(stream, matrix_rows(args.x), columns / size,
               NormOp<size, Centred>{.x = numbers_of(args.x),
                                     .weight = numbers_of(args.weight),
                                     .y = numbers_of(args.y),
                                     .statistics = {numbers_of(args.statistics)},
                                     .columns = columns,
                                     .epsilon = epsilon});
  });
}

/// Slices of all rows that one thread a column adds up: enough of them for all SMs.
struct Slices {
  std::int64_t count = 1, rows = 1;
};
Slices slices_of(std::int64_t rows) {
  constexpr std::int64_t least = 32;
  const std::int64_t most = SumOp<1>::most_parts;  // added up by one kernel
  const std::int64_t count = std::clamp<std::int64_t>(rows / least, 1, most);
  return {.count = count, .rows = (rows + count - 1) / count};
}

/// `sums` [slices, like `to`].
void sum_slices(const float* sums, std::int64_t slices, const Rows& to, cudaStream_t stream) {
  std::vector<const std::byte*> parts;
  for (std::int64_t i = 0; i < slices; ++i) {
    parts.push_back(reinterpret_cast<const std::byte*>(sums + i * to.elements()));
  }
  sum({.parts = parts,
       .from = DType::fp32,
       .to = to.data,
       .to_type = to.dtype,
       .count = to.elements()},
      stream);
}

/// Before d_x is written, which may be d_y or x.
template <bool Centred>
void weight_gradient(const NormBackwardArgs& args, std::byte* room, cudaStream_t stream) {
  const std::int64_t columns = matrix_columns(args.x);
  const Slices slices = slices_of(matrix_rows(args.x));
  for_each(stream, slices.count * columns,
           NormWeightOp<Centred>{.x = numbers_of(args.x),
                                 .d_y = numbers_of(args.d_y),
                                 .statistics = {numbers_of(args.statistics)},
                                 .sums = reinterpret_cast<float*>(room),
                                 .rows = matrix_rows(args.x),
                                 .columns = columns,
                                 .slice = slices.rows});
  sum_slices(reinterpret_cast<const float*>(room), slices.count, args.d_weight, stream);
}

template <bool Centred>
void norm_backward(const NormBackwardArgs& args, std::byte* room, cudaStream_t stream) {
  ensure_norm_backward(args, Centred ? Centring::mean : Centring::none);
  weight_gradient<Centred>(args, room, stream);
  const std::int64_t columns = matrix_columns(args.x);
  with_vectors(columns, {args.x, args.weight, args.d_y, args.d_x}, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_passes(stream, matrix_rows(args.x), columns / size,
               NormBackwardOp<size, Centred>{.x = numbers_of(args.x),
                                             .weight = numbers_of(args.weight),
                                             .d_y = numbers_of(args.d_y),
                                             .d_x = numbers_of(args.d_x),
                                             .statistics = {numbers_of(args.statistics)},
                                             .columns = columns});
  });
}

BoxIndex index_of(const Box& box, std::int64_t width) {
  return {.row_elements = box.row_heads * width, .row_step = box.row_step};
}
Numbers numbers_in(const Box& box) { return {.data = box.data, .dtype = box.dtype}; }

/// f(heads, tokens) for each range of tokens.
template <class F>
void for_each_range(const HeadMove& move, const SplitHeadsArgs& args, const F& f) {
  HeadsOfRange heads{.turns = {.width = move.part.width,
                               .log2_theta = args.theta > 0 ? std::log2(args.theta) : 0,
                               .sign = move.sign},
                     .turned = move.sign != 0,
                     .batch = move.part.batch,
                     .heads = move.part.heads};
  for (const TokenRange& range : args.positions.ranges()) {
    heads.turns.first_position = range.begin;
    heads.turns.stride = range.stride;
    f(heads, range.count);
    heads.rows_before += range.count;
  }
}

void rotate(const HeadMove& move, const SplitHeadsArgs& args, cudaStream_t stream) {
  const std::int64_t width = move.part.width;
  for_each_range(move, args, [&](const HeadsOfRange& heads, std::int64_t tokens) {
    for_each(stream, tokens * heads.pieces(),
             RotateOp{.from = numbers_in(move.from),
                      .to = numbers_in(move.to),
                      .from_box = index_of(move.from, width),
                      .to_box = index_of(move.to, width),
                      .turns = heads.turns,
                      .rows_before = heads.rows_before,
                      .batch = heads.batch,
                      .heads = heads.heads});
  });
}

void norm_heads(const HeadMove& move, const SplitHeadsArgs& args, cudaStream_t stream) {
  const std::int64_t width = move.part.width;
  for_each_range(move, args, [&](const HeadsOfRange& heads, std::int64_t tokens) {
    for_passes(stream, tokens * heads.batch * heads.heads, heads.pieces(),
               NormHeadsOp{.heads = heads,
                           .from = numbers_in(move.from),
                           .to = numbers_in(move.to),
                           .gain = numbers_of(move.gain),
                           .from_box = index_of(move.from, width),
                           .to_box = index_of(move.to, width),
                           .epsilon = args.epsilon});
  });
}

/// In `room`: sums over slices of tokens, then 1/rms of each head.
void norm_heads_backward(const HeadMove& move, const SplitHeadsArgs& args, std::byte* room,
                         cudaStream_t stream) {
  if (move.part.count == 0) {
    return fill(move.d_gain, 0, stream);
  }
  const std::int64_t width = move.part.width;
  const Slices slices = slices_of(move.part.count);
  auto* sums = reinterpret_cast<float*>(room);
  float* inverses = sums + slices.count * width;
  for_each_range(move, args, [&](const HeadsOfRange& heads, std::int64_t tokens) {
    float* of_range = inverses + heads.rows_before * heads.batch * heads.heads;
    for_passes(stream, tokens * heads.batch * heads.heads, heads.pieces(),
               NormHeadsBackwardOp{.heads = heads,
                                   .from = numbers_in(move.from),
                                   .x = numbers_in(move.normed),
                                   .to = numbers_in(move.to),
                                   .gain = numbers_of(move.gain),
                                   .from_box = index_of(move.from, width),
                                   .x_box = index_of(move.normed, width),
                                   .to_box = index_of(move.to, width),
                                   .inverses = of_range,
                                   .epsilon = args.epsilon});
    for_each(stream, slices.count * width,
             HeadGainsOp{.heads = heads,
                         .from = numbers_in(move.from),
                         .x = numbers_in(move.normed),
                         .from_box = index_of(move.from, width),
                         .x_box = index_of(move.normed, width),
                         .inverses = of_range,
                         .sums = sums,
                         .tokens = tokens,
                         .slice = (tokens + slices.count - 1) / slices.count,
                         .add = heads.rows_before > 0});
  });
  sum_slices(sums, slices.count, move.d_gain, stream);
}

void bring(const std::array<HeadMove, 3>& moves, const SplitHeadsArgs& args, std::byte* room,
           cudaStream_t stream) {
  for (const HeadMove& heads : moves) {
    if (heads.d_gain.count > 0) {
      norm_heads_backward(heads, args, room, stream);
    } else if (heads.norms()) {
      norm_heads(heads, args, stream);
    } else if (heads.sign != 0) {
      rotate(heads, args, stream);
    } else {
      move(heads.from, heads.to, heads.part.count, heads.part.batch, heads.part.heads,
           heads.part.width, false, stream);
    }
  }
}

template <int N>
void load_layer_kernels_of() {
  load_passes<NormOp<N, false>>();
  load_passes<NormOp<N, true>>();
  load_passes<NormBackwardOp<N, false>>();
  load_passes<NormBackwardOp<N, true>>();
  load_each<SwigluOp<N>>();
  load_each<SwigluBackwardOp<N>>();
  load_each<GeluOp<N>>();
  load_each<GeluBackwardOp<N>>();
  load_each<AddOp<N>>();
  load_rows<BiasWeightsOp<N>>();
}

}  // namespace

void gemm(const GemmArgs& args, cudaStream_t stream) {
  const GemmShape shape = gemm_shape(args);
  for_each(stream, shape.m * shape.n,
           GemmOp{.a = numbers_of(args.a),
                  .b = numbers_of(args.b),
                  .c = numbers_of(args.c),
                  .a_steps = steps_of(args.a, args.kind == GemmKind::weight_gradient),
                  .b_steps = steps_of(args.b, args.kind == GemmKind::input_gradient),
                  .columns = shape.n,
                  .depth = shape.k,
                  .add = args.add});
}

void add_bias(const BiasArgs& args, cudaStream_t stream) {
  ensure_bias(args.y, args.bias, args.weights);
  for_each(stream, args.y.elements(),
           AddBiasOp{.y = numbers_of(args.y),
                     .bias = numbers_of(args.bias),
                     .weights = weights_of(args.weights),
                     .columns = matrix_columns(args.y)});
}

void bias_gradient(const BiasGradientArgs& args, cudaStream_t stream) {
  ensure_bias(args.d_y, args.d_bias, args.weights);
  for_each(stream, matrix_columns(args.d_y),
           BiasGradientOp{.d_y = numbers_of(args.d_y),
                          .d_bias = numbers_of(args.d_bias),
                          .weights = weights_of(args.weights),
                          .rows = matrix_rows(args.d_y),
                          .columns = matrix_columns(args.d_y),
                          .add = args.add});
}

void bias_weights_gradient(const BiasWeightsArgs& args, cudaStream_t stream) {
  ensure_bias(args.d_y, args.bias, args.d_weights);
  const std::int64_t columns = matrix_columns(args.d_y);
  with_vectors(columns, {args.d_y, args.bias}, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_rows(stream, matrix_rows(args.d_y), columns / size,
             BiasWeightsOp<size>{.d_y = numbers_of(args.d_y),
                                 .bias = numbers_of(args.bias),
                                 .d_weights = numbers_of(args.d_weights),
                                 .columns = columns});
  });
}

void rms_norm(const NormArgs& args, float epsilon, cudaStream_t stream) {
  norm<false>(args, epsilon, stream);
}
void layer_norm(const NormArgs& args, float epsilon, cudaStream_t stream) {
  norm<true>(args, epsilon, stream);
}

std::int64_t norm_backward_bytes(const Rows& x, const Rows& weight) {
  return slices_of(matrix_rows(x)).count * weight.elements() * size_of(DType::fp32);
}
void rms_norm_backward(const NormBackwardArgs& args, std::byte* room, cudaStream_t stream) {
  norm_backward<false>(args, room, stream);
}
void layer_norm_backward(const NormBackwardArgs& args, std::byte* room, cudaStream_t stream) {
  norm_backward<true>(args, room, stream);
}

void split_heads(const SplitHeadsArgs& args, cudaStream_t stream) {
  bring(moves_to_split(args), args, nullptr, stream);
}
std::int64_t join_heads_bytes(const Rows& q, const Rows& k) {
  const auto of = [](const Rows& part) {
    return slices_of(part.count).count * part.width + matrix_rows(part) * part.heads;
  };
  return std::max(of(q), of(k)) * size_of(DType::fp32);
}
void join_heads(const JoinHeadsArgs& args, std::byte* room, cudaStream_t stream) {
  bring(moves_to_join(args), args.heads, room, stream);
}

void swiglu(const Rows& gate, const Rows& up, const Rows& a, cudaStream_t stream) {
  ensure_alike(gate, up);
  ensure_alike(gate, a);
  with_vectors(a.elements(), {gate, up, a}, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_each(stream, a.elements() / size,
             SwigluOp<size>{.gate = numbers_of(gate), .up = numbers_of(up), .a = numbers_of(a)});
  });
}

void swiglu_backward(const SwigluBackwardArgs& args, cudaStream_t stream) {
  for (const Rows* other : {&args.up, &args.d_a, &args.d_gate, &args.d_up}) {
    ensure_alike(args.gate, *other);
  }
  with_vectors(args.gate.elements(), {args.gate, args.up, args.d_a, args.d_gate, args.d_up},
               [&](auto n) {
                 constexpr int size = decltype(n)::value;
                 for_each(stream, args.gate.elements() / size,
                          SwigluBackwardOp<size>{.gate = numbers_of(args.gate),
                                                 .up = numbers_of(args.up),
                                                 .d_a = numbers_of(args.d_a),
                                                 .d_gate = numbers_of(args.d_gate),
                                                 .d_up = numbers_of(args.d_up)});
               });
}

void gelu(const Rows& h, const Rows& a, cudaStream_t stream) {
  ensure_alike(h, a);
  with_vectors(h.elements(), {h, a}, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_each(stream, h.elements() / size, GeluOp<size>{.h = numbers_of(h), .a = numbers_of(a)});
  });
}

void gelu_backward(const Rows& h, const Rows& d_a, const Rows& d_h, cudaStream_t stream) {
  ensure_alike(h, d_a);
  ensure_alike(h, d_h);
  with_vectors(h.elements(), {h, d_a, d_h}, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_each(
        stream, h.elements() / size,
        GeluBackwardOp<size>{.h = numbers_of(h), .d_a = numbers_of(d_a), .d_h = numbers_of(d_h)});
  });
}

void add(const Rows& x, const Rows& y, const Rows& z, cudaStream_t stream) {
  ensure_alike(x, y);
  ensure_alike(x, z);
  with_vectors(x.elements(), {x, y, z}, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_each(stream, x.elements() / size,
             AddOp<size>{.x = numbers_of(x), .y = numbers_of(y), .z = numbers_of(z)});
  });
}

void load_layer_kernels() {
  load_layer_kernels_of<vector_elements>();
  load_layer_kernels_of<1>();
  load_each<GemmOp>();
  load_each<AddBiasOp>();
  load_each<BiasGradientOp>();
  load_each<NormWeightOp<false>>();
  load_each<NormWeightOp<true>>();
  load_each<RotateOp>();
  load_passes<NormHeadsOp>();
  load_passes<NormHeadsBackwardOp>();
  load_each<HeadGainsOp>();
}

}  // namespace spp::runtime::cuda
