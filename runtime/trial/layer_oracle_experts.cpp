// What the oracle of a layer computes of experts.
#include "runtime/trial/layer_oracle.hpp"

#include <algorithm>
#include <cmath>

namespace spp::runtime {
namespace {

std::size_t at_place(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

/// Softmax over the scores of each token's own experts.
void LayerOracle::route(const Definition& d, bool backward) {
  const Routing& routing = graph_.routing;
  const std::int64_t n = routing.experts;
  const auto& scores = at(d.reads[0]);
  std::vector<double>& weights = make(d.writes[0]);
  const double* d_weights = backward ? make({Tensor::d_value, d.writes[0].label}).data() : nullptr;
  double* d_scores = backward ? make({Tensor::d_value, d.reads[0].label}).data() : nullptr;
  for (std::int64_t r = 0; r < rows(); ++r) {
    const auto expert = [&](int slot) {
      return at_place(r * n + routing.expert_of(r / problem_.batch, slot));
    };
    double* of_row = &weights[at_place(r * routing.chosen)];
    double sum = 0;
    for (int slot = 0; slot < routing.chosen && !backward; ++slot) {
      of_row[slot] = std::exp(scores[expert(slot)]);
      sum += of_row[slot];
    }
    for (int slot = 0; slot < routing.chosen && !backward; ++slot) {
      of_row[slot] /= sum;
    }
    if (backward) {
      const double* slopes = d_weights + r * routing.chosen;
      for (int slot = 0; slot < routing.chosen; ++slot) {
        sum += of_row[slot] * slopes[slot];
      }
      for (int slot = 0; slot < routing.chosen; ++slot) {
        d_scores[expert(slot)] += of_row[slot] * (slopes[slot] - sum);
      }
    }
  }
}

/// dispatch: every slot of y = x; combine: y = the sum over x's slots; each is the other's
/// gradient.
void LayerOracle::spread(const Definition& d, bool backward) {
  const auto of = [&](TensorRef ref) {
    return TensorRef(backward ? Tensor::d_value : Tensor::value, ref.label);
  };
  const TensorRef from = of(backward ? d.writes[0] : d.reads[0]);
  const TensorRef to = of(backward ? d.reads[0] : d.writes[0]);
  const auto& x = make(from);
  std::vector<double>& y = make(to);
  for (std::int64_t r = 0; r < rows(); ++r) {
    for (std::int64_t i = 0; i < std::max(width(from), width(to)); ++i) {
      y[at_place(r * width(to) + i % width(to))] += x[at_place(r * width(from) + i % width(from))];
    }
  }
}

void LayerOracle::activate_experts(const Definition& d, bool backward) {
  const std::int64_t n = width(d.writes[0]) / graph_.routing.chosen;
  const auto& gate_up = at(d.reads[0]);
  const auto& weights = at(d.reads[1]);
  std::vector<double>& a = make(d.writes[0]);
  const double* d_a = backward ? make({Tensor::d_value, d.writes[0].label}).data() : nullptr;
  double* d_gate_up = backward ? make({Tensor::d_value, d.reads[0].label}).data() : nullptr;
  double* d_weights = backward ? make({Tensor::d_value, d.reads[1].label}).data() : nullptr;
  for (std::int64_t slot = 0; slot < rows() * graph_.routing.chosen; ++slot) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::size_t gate = at_place(slot * 2 * n + i);
      const std::size_t up = gate + at_place(n);
      const double s = 1 / (1 + std::exp(-gate_up[gate]));
      const double silu = gate_up[gate] * s;
      const double weight = weights[at_place(slot)];
      if (!backward) {
        a[at_place(slot * n + i)] = weight * silu * gate_up[up];
        continue;
      }
      const double slope = d_a[slot * n + i];
      d_gate_up[gate] += slope * weight * gate_up[up] * s * (1 + gate_up[gate] * (1 - s));
      d_gate_up[up] += slope * weight * silu;
      d_weights[slot] += slope * silu * gate_up[up];
    }
  }
}

/// Each slot's expert's bias, times the weight if it has one: in y, or what d_y gives both.
void LayerOracle::add_biases(const Definition& d, bool backward) {
  const Param& all = graph_.param(d.bias);
  const std::int64_t n = all.rows / all.experts;
  const bool is_weighted = d.reads.size() > 1;
  const auto& bias = at({Tensor::param, d.bias});
  std::vector<double>& y = make({backward ? Tensor::d_value : Tensor::value, d.writes[0].label});
  double* d_bias = backward ? make({Tensor::d_param, d.bias}).data() : nullptr;
  double* d_weights =
      backward && is_weighted ? make({Tensor::d_value, d.reads[1].label}).data() : nullptr;
  for (std::int64_t row = 0; row < rows() * graph_.routing.chosen; ++row) {
    const std::int64_t token = row / graph_.routing.chosen / problem_.batch;
    const int slot = static_cast<int>(row % graph_.routing.chosen);
    const std::int64_t first = graph_.routing.expert_of(token, slot) * n;
    const double weight = is_weighted ? at(d.reads[1])[at_place(row)] : 1;
    for (std::int64_t i = 0; i < n; ++i) {
      double& of_y = y[at_place(row * n + i)];
      if (!backward) {
        of_y += weight * bias[at_place(first + i)];
        continue;
      }
      d_bias[first + i] += weight * of_y;
      if (is_weighted) {
        d_weights[row] += bias[at_place(first + i)] * of_y;
      }
    }
  }
}

/// Each slot of a token by its expert's matrix: y, or what d_y gives x and the matrix.
void LayerOracle::multiply_experts(const Definition& d, bool backward) {
  if (d.bias >= 0) {
    add_biases(d, backward);
  }
  const Param& w = graph_.param(d.param);
  const std::int64_t in = w.rows / w.experts;
  const auto& x = at(d.reads[0]);
  const auto& weight = at({Tensor::param, d.param});
  std::vector<double>& y = make({backward ? Tensor::d_value : Tensor::value, d.writes[0].label});
  double* d_x = backward ? make({Tensor::d_value, d.reads[0].label}).data() : nullptr;
  double* d_w = backward ? make({Tensor::d_param, d.param}).data() : nullptr;
  for (std::int64_t r = 0; r < rows(); ++r) {
    for (int slot = 0; slot < graph_.routing.chosen; ++slot) {
      const std::int64_t first = graph_.routing.expert_of(r / problem_.batch, slot) * in;
      const std::int64_t row = r * graph_.routing.chosen + slot;
      for (std::int64_t k = 0; k < in; ++k) {
        const std::size_t of_x = at_place(row * in + k);
        for (std::int64_t n = 0; n < w.columns; ++n) {
          const std::size_t of_w = at_place((first + k) * w.columns + n);
          const std::size_t of_y = at_place(row * w.columns + n);
          if (backward) {
            d_x[of_x] += y[of_y] * weight[of_w];
            d_w[of_w] += y[of_y] * x[of_x];
          } else {
            y[of_y] += x[of_x] * weight[of_w];
          }
        }
      }
    }
  }
}

}  // namespace spp::runtime
