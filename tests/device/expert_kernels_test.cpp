// The device's kernels of experts against those of the host: both compute in fp32 from the same
// numbers and round once.
#include "runtime/device/cuda/expert_kernels.hpp"

#include "runtime/device/cuda/layer_kernels.hpp"
#include "tests/device/device.hpp"
#include "tests/support/catch.hpp"

namespace spp::test {

using namespace spp::runtime;

TEST_CASE("a device's weights of experts and their gradients are the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(43);
  const DType type = GENERATE(DType::fp32, DType::bf16);
  const Routing routing{.experts = 12, .chosen = 3, .groups = 1, .period = 8};
  const TokenSet tokens({.begin = 8, .count = 11}, {.begin = 40, .count = 5, .stride = 3});
  constexpr int batch = 2;
  Both scores(type, {16, batch, 1, 12}, random, stream);
  Both weights(DType::fp32, {16, batch, 3, 1}, random, stream);
  Both d_weights(DType::fp32, {16, batch, 3, 1}, random, stream);
  Both d_scores(type, {16, batch, 1, 12}, random, stream);
  const auto routed = [&](auto side) {
    return RouteArgs{
        .scores = side(scores), .weights = side(weights), .tokens = tokens, .routing = routing};
  };
  const auto given = [&](auto side) {
    return RouteBackwardArgs{.weights = side(weights),
                             .d_weights = side(d_weights),
                             .d_scores = side(d_scores),
                             .tokens = tokens,
                             .routing = routing};
  };
  cuda::route(routed(device_of), stream.get());
  cuda::route_backward(given(device_of), stream.get());
  route(routed(host_of));
  route_backward(given(host_of));
  weights.check(DType::fp32);
  d_scores.check(type);
}

TEST_CASE("a device's weighted SwiGLU and its gradients are the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(44);
  const DType type = GENERATE(DType::fp32, DType::bf16);
  const int width = GENERATE(1, 7, 64);  // with and without vectors of 8
  const bool add = GENERATE(false, true);
  Both gate_up(type, {37, 2, 1, 2 * width}, random, stream);
  Both weights(DType::fp32, {37, 2, 1, 1}, random, stream);
  Both a(type, {37, 2, 1, width}, random, stream);
  Both d_a(type, {37, 2, 1, width}, random, stream);
  Both d_gate_up(type, {37, 2, 1, 2 * width}, random, stream);
  Both d_weights(DType::fp32, {37, 2, 1, 1}, random, stream);
  const auto active = [&](auto side) {
    return ExpertSwigluArgs{.gate_up = side(gate_up), .weights = side(weights), .a = side(a)};
  };
  const auto given = [&](auto side) {
    return ExpertSwigluBackwardArgs{.gate_up = side(gate_up),
                                    .weights = side(weights),
                                    .d_a = side(d_a),
                                    .d_gate_up = side(d_gate_up),
                                    .d_weights = side(d_weights),
                                    .add = add};
  };
  cuda::expert_swiglu(active(device_of), stream.get());
  cuda::expert_swiglu_backward(given(device_of), stream.get());
  expert_swiglu(active(host_of));
  expert_swiglu_backward(given(host_of));
  a.check(type);
  d_gate_up.check(type);
  d_weights.check(DType::fp32);
}

TEST_CASE("a device's weighted biases and their gradients are the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(45);
  const DType type = GENERATE(DType::fp32, DType::bf16);
  const int width = GENERATE(1, 7, 64);  // with and without vectors of 8
  Both y(type, {37, 2, 1, width}, random, stream);
  Both bias(type, {width, 1, 1, 1}, random, stream);
  Both weights(DType::fp32, {37, 2, 1, 1}, random, stream);
  Both d_bias(DType::fp32, {width, 1, 1, 1}, random, stream);
  Both d_weights(DType::fp32, {37, 2, 1, 1}, random, stream);
  const auto gradient = [&](auto side) {
    return BiasGradientArgs{
        .d_y = side(y), .d_bias = side(d_bias), .weights = side(weights), .add = true};
  };
  const auto of_weights = [&](auto side) {
    return BiasWeightsArgs{.d_y = side(y), .bias = side(bias), .d_weights = side(d_weights)};
  };
  const auto sum = [&](auto side) {
    return BiasArgs{.y = side(y), .bias = side(bias), .weights = side(weights)};
  };
  cuda::bias_gradient(gradient(device_of), stream.get());
  cuda::bias_weights_gradient(of_weights(device_of), stream.get());
  cuda::add_bias(sum(device_of), stream.get());
  bias_gradient(gradient(host_of));
  bias_weights_gradient(of_weights(host_of));
  add_bias(sum(host_of));
  y.check(type);
  d_bias.check(DType::fp32);
  d_weights.check(DType::fp32);
}

}  // namespace spp::test
