// What kernels of words and of updates compute, one number or row at a time: host and device alike.
#pragma once

#include "runtime/kernels/host_device.hpp"
#include "schedule/graph.hpp"

#include <cmath>

namespace spp::runtime {

/// Of one token, from all parts' sums (layer.hpp, word_sums).
struct WordLoss {
  float log_sum = 0;  // of all words
  float target = 0;   // its logit
};

/// sums(i): number i of 3 * parts.
template <class Sums>
SPP_HOST_DEVICE WordLoss loss_of(const Sums& sums, int parts) {
  float most = sums(0);
  for (int part = 1; part < parts; ++part) {
    most = sums(3 * part) > most ? sums(3 * part) : most;
  }
  WordLoss loss;
  float sum = 0;
  for (int part = 0; part < parts; ++part) {
    sum += sums(3 * part + 1) * std::exp(sums(3 * part) - most);
    loss.target += sums(3 * part + 2);
  }
  loss.log_sum = most + std::log(sum);
  return loss;
}

/// A weight and the moving averages of its gradient and of that one's square.
struct Adam {
  float weight = 0, first = 0, second = 0;
};
SPP_HOST_DEVICE inline Adam adam_of(const Adam& old, float gradient, float rate,
                                    const AdamConstants& c) {
  const auto b1 = static_cast<float>(c.beta1);
  const auto b2 = static_cast<float>(c.beta2);
  Adam next;
  next.first = b1 * old.first + (1 - b1) * gradient;
  next.second = b2 * old.second + (1 - b2) * gradient * gradient;
  next.weight =
      old.weight - rate * (next.first / (std::sqrt(next.second) + static_cast<float>(c.epsilon)) +
                           static_cast<float>(c.decay) * old.weight);
  return next;
}

}  // namespace spp::runtime
