#include "runtime/kernels/experts.hpp"

#include "runtime/kernels/activations.hpp"
#include "runtime/kernels/row_checks.hpp"
#include "runtime/kernels/row_floats.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace spp::runtime {
namespace {

/// f(row, token) for every row of such a matrix.
template <class F>
void for_each_row(const TokenSet& tokens, std::int64_t batch, F f) {
  std::int64_t row = 0;
  for (const TokenRange& range : tokens.ranges()) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      for (std::int64_t b = 0; b < batch; ++b, ++row) {
        f(row, range.at(i));
      }
    }
  }
}

}  // namespace

void route(const RouteArgs& args) {
  ensure_route(args.scores, args.weights, args.tokens, args.routing);
  std::vector<float> scores = floats(matrix_columns(args.scores));
  std::vector<float> weights = floats(args.routing.chosen);
  for_each_row(args.tokens, args.scores.batch, [&](std::int64_t row, std::int64_t token) {
    read(args.scores, row, 0, scores);
    const auto score = [&](int slot) {
      return scores[static_cast<std::size_t>(args.routing.expert_of(token, slot))];
    };
    float most = score(0);
    for (int slot = 1; slot < args.routing.chosen; ++slot) {
      most = std::max(most, score(slot));
    }
    float sum = 0;
    for (int slot = 0; slot < args.routing.chosen; ++slot) {
      sum += weights[static_cast<std::size_t>(slot)] = std::exp(score(slot) - most);
    }
    for (float& weight : weights) {
      weight /= sum;
    }
    write(weights, args.weights, row, 0);
  });
}

void route_backward(const RouteBackwardArgs& args) {
  ensure_route(args.d_scores, args.weights, args.tokens, args.routing);
  ensure_alike(args.weights, args.d_weights);
  std::vector<float> weights = floats(args.routing.chosen);
  std::vector<float> slopes = weights;
  std::vector<float> scores = floats(matrix_columns(args.d_scores));
  for_each_row(args.tokens, args.d_scores.batch, [&](std::int64_t row, std::int64_t token) {
    read(args.weights, row, 0, weights);
    read(args.d_weights, row, 0, slopes);
    float sum = 0;
    for (std::size_t slot = 0; slot < weights.size(); ++slot) {
      sum += weights[slot] * slopes[slot];
    }
    std::ranges::fill(scores, 0.0F);
    for (std::size_t slot = 0; slot < weights.size(); ++slot) {
      const int expert = args.routing.expert_of(token, static_cast<int>(slot));
      scores[static_cast<std::size_t>(expert)] = weights[slot] * (slopes[slot] - sum);
    }
    write(scores, args.d_scores, row, 0);
  });
}

void expert_swiglu(const ExpertSwigluArgs& args) {
  ensure_expert_swiglu(args.gate_up, args.weights, args.a);
  const std::int64_t width = matrix_columns(args.a);
  std::vector<float> gate = floats(width);
  std::vector<float> up = gate;
  std::vector<float> weight = floats(1);
  for (std::int64_t row = 0; row < matrix_rows(args.a); ++row) {
    read(args.gate_up, row, 0, gate);
    read(args.gate_up, row, width, up);
    read(args.weights, row, 0, weight);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      up[i] *= weight[0] * silu(gate[i]).value;
    }
    write(up, args.a, row, 0);
  }
}

void expert_swiglu_backward(const ExpertSwigluBackwardArgs& args) {
  ensure_expert_swiglu(args.gate_up, args.weights, args.d_a);
  ensure_alike(args.gate_up, args.d_gate_up);
  ensure_alike(args.weights, args.d_weights);
  const std::int64_t width = matrix_columns(args.d_a);
  std::vector<float> gate = floats(width);
  std::vector<float> up = gate;
  std::vector<float> d = gate;
  std::vector<float> weight = floats(1);
  for (std::int64_t row = 0; row < matrix_rows(args.d_a); ++row) {
    read(args.gate_up, row, 0, gate);
    read(args.gate_up, row, width, up);
    read(args.d_a, row, 0, d);
    read(args.weights, row, 0, weight);
    float slope = 0;
    if (args.add) {
      read(args.d_weights, row, 0, std::span(&slope, 1));
    }
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const Activation s = silu(gate[i]);
      slope += d[i] * s.value * up[i];
      gate[i] = weight[0] * d[i] * up[i] * s.slope;
      up[i] = weight[0] * d[i] * s.value;
    }
    write(gate, args.d_gate_up, row, 0);
    write(up, args.d_gate_up, row, width);
    write(std::span<const float>(&slope, 1), args.d_weights, row, 0);
  }
}

}  // namespace spp::runtime
