// Activation functions and their slopes, one number at a time; for CPU and GPU.
//
//   silu(x) = x sigmoid(x)                          (Elfwing et al., arXiv:1702.03118)
//   gelu(x) = x (1 + tanh(u)) / 2 = x sigmoid(2u)   (Hendrycks, Gimpel, arXiv:1606.08415)
//   u = sqrt(2 / pi) (x + 0.044715 x^3)
#pragma once

#include "runtime/kernels/host_device.hpp"

#include <cmath>

namespace spp::runtime {

struct Activation {
  float value = 0, slope = 0;
};

SPP_HOST_DEVICE inline float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

SPP_HOST_DEVICE inline Activation silu(float x) {
  const float s = sigmoid(x);
  return {.value = x * s, .slope = s * (1 + x * (1 - s))};
}

SPP_HOST_DEVICE inline Activation gelu(float x) {
  constexpr float twice = 1.59576912F;  // 2 sqrt(2 / pi)
  constexpr float cubic = 0.044715F;
  const float square = x * x;
  const float s = sigmoid(twice * x * (1 + cubic * square));
  return {.value = x * s, .slope = s * (1 + x * (1 - s) * twice * (1 + 3 * cubic * square))};
}

}  // namespace spp::runtime
