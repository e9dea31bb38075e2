#include "runtime/device/cuda/expert_kernels.hpp"
#include "runtime/device/cuda/expert_ops.cuh"
#include "runtime/device/cuda/kernels.hpp"
#include "runtime/kernels/row_checks.hpp"

namespace spp::runtime::cuda {
namespace {

/// f(range, rows of it) for each range of tokens.
template <class F>
void for_each_range(const TokenSet& tokens, std::int64_t batch, const Routing& routing, F f) {
  RoutedRange range{.batch = batch,
                    .period = routing.period,
                    .classes = routing.classes(),
                    .chosen = routing.chosen};
  for (const TokenRange& of : tokens.ranges()) {
    range.begin = of.begin;
    range.stride = of.stride;
    f(range, of.count * batch);
    range.first_row += of.count * batch;
  }
}

}  // namespace

void route(const RouteArgs& args, cudaStream_t stream) {
  ensure_route(args.scores, args.weights, args.tokens, args.routing);
  for_each_range(args.tokens, args.scores.batch, args.routing,
                 [&](const RoutedRange& range, std::int64_t rows) {
                   for_each(stream, rows,
                            RouteOp{.scores = numbers_of(args.scores),
                                    .weights = numbers_of(args.weights),
                                    .range = range,
                                    .experts = args.routing.experts});
                 });
}

void route_backward(const RouteBackwardArgs& args, cudaStream_t stream) {
  ensure_route(args.d_scores, args.weights, args.tokens, args.routing);
  ensure_alike(args.weights, args.d_weights);
  fill(args.d_scores, 0, stream);
  for_each_range(args.tokens, args.d_scores.batch, args.routing,
                 [&](const RoutedRange& range, std::int64_t rows) {
                   for_each(stream, rows,
                            RouteBackwardOp{.weights = numbers_of(args.weights),
                                            .d_weights = numbers_of(args.d_weights),
                                            .d_scores = numbers_of(args.d_scores),
                                            .range = range,
                                            .experts = args.routing.experts});
                 });
}

void expert_swiglu(const ExpertSwigluArgs& args, cudaStream_t stream) {
  ensure_expert_swiglu(args.gate_up, args.weights, args.a);
  const std::int64_t width = matrix_columns(args.a);
  with_vectors(width, {args.gate_up, args.a}, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_each(stream, args.a.elements() / size,
             ExpertSwigluOp<size>{.gate_up = numbers_of(args.gate_up),
                                  .weights = numbers_of(args.weights),
                                  .a = numbers_of(args.a),
                                  .width = width});
  });
}

void expert_swiglu_backward(const ExpertSwigluBackwardArgs& args, cudaStream_t stream) {
  ensure_expert_swiglu(args.gate_up, args.weights, args.d_a);
  ensure_alike(args.gate_up, args.d_gate_up);
  ensure_alike(args.weights, args.d_weights);
  const std::int64_t width = matrix_columns(args.d_a);
  with_vectors(width, {args.gate_up, args.d_a, args.d_gate_up}, [&](auto n) {
    constexpr int size = decltype(n)::value;
    for_rows(stream, matrix_rows(args.d_a), width / size,
             ExpertSwigluBackwardOp<size>{.gate_up = numbers_of(args.gate_up),
                                          .weights = numbers_of(args.weights),
                                          .d_a = numbers_of(args.d_a),
                                          .d_gate_up = numbers_of(args.d_gate_up),
                                          .d_weights = numbers_of(args.d_weights),
                                          .width = width,
                                          .add = args.add});
  });
}

namespace {

template <int N>
void load_expert_kernels_of() {
  load_each<ExpertSwigluOp<N>>();
  load_rows<ExpertSwigluBackwardOp<N>>();
}

}  // namespace

void load_expert_kernels() {
  load_expert_kernels_of<vector_elements>();
  load_expert_kernels_of<1>();
  load_each<RouteOp>();
  load_each<RouteBackwardOp>();
}

}  // namespace spp::runtime::cuda
