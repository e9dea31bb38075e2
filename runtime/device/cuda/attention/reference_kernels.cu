#include "runtime/device/cuda/attention/reference_kernels.hpp"
#include "runtime/device/cuda/launch.cuh"
#include "runtime/kernels/row_checks.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace spp::runtime::cuda {
namespace {

template <class Args>
AttentionShape shape_of(const Args& args, const SeenKeyRows* seen) {
  ensure_block(args.q, args.k, args.visible);
  return {.queries = args.q.count,
          .keys = args.k.count,
          .batch = args.q.batch,
          .heads = args.q.heads,
          .kv_heads = args.k.heads,
          .width = args.q.width,
          .value_width = args.v.width,
          .scale = 1 / std::sqrt(static_cast<float>(args.q.width)),
          .seen = seen};
}

bool vectors_fit_all(std::initializer_list<Rows> all) {
  bool fit = true;
  for (const Rows& rows : all) {
    fit = fit && vectors_fit(numbers_of(rows), rows.width);
  }
  return fit;
}

template <int N>
void forward(const AttentionForwardArgs& args, const SeenKeyRows* seen, cudaStream_t stream) {
  const AttentionShape shape = shape_of(args, seen);
  for_rows(stream, args.lse.elements(), shape.value_width / N,
           AttentionForwardOp<N>{.shape = shape,
                                 .q = numbers_of(args.q),
                                 .k = numbers_of(args.k),
                                 .v = numbers_of(args.v),
                                 .out = numbers_of(args.out),
                                 .lse = numbers_of(args.lse)});
}

template <int N>
void backward(const AttentionBackwardArgs& args, const SeenKeyRows* seen, cudaStream_t stream) {
  const GradientInputs in{.shape = shape_of(args, seen),
                          .q = numbers_of(args.q),
                          .k = numbers_of(args.k),
                          .v = numbers_of(args.v),
                          .d_out = numbers_of(args.d_out),
                          .lse = numbers_of(args.lse),
                          .delta = numbers_of(args.delta)};
  for_rows(stream, args.lse.elements(), in.shape.width / N,
           AttentionQueryGradientOp<N>{.in = in, .d_q = numbers_of(args.d_q)});
  for_rows(stream, args.k.elements() / args.k.width,
           std::max(in.shape.width, in.shape.value_width) / N,
           AttentionKeyGradientOp<N>{
               .in = in, .d_k = numbers_of(args.d_k), .d_v = numbers_of(args.d_v)});
}

template <int N>
void load() {
  load_rows<AttentionForwardOp<N>>();
  load_rows<AttentionQueryGradientOp<N>>();
  load_rows<AttentionKeyGradientOp<N>>();
}

}  // namespace

void load_reference_kernels() {
  load<vector_elements>();
  load<1>();
}

void reference_forward(const AttentionForwardArgs& args, const SeenKeyRows* seen,
                       cudaStream_t stream) {
  if (vectors_fit_all({args.q, args.k, args.v, args.out})) {
    forward<vector_elements>(args, seen, stream);
  } else {
    forward<1>(args, seen, stream);
  }
}

void reference_backward(const AttentionBackwardArgs& args, const SeenKeyRows* seen,
                        cudaStream_t stream) {
  if (vectors_fit_all({args.q, args.k, args.v, args.d_out, args.d_q, args.d_k, args.d_v})) {
    backward<vector_elements>(args, seen, stream);
  } else {
    backward<1>(args, seen, stream);
  }
}

}  // namespace spp::runtime::cuda
