// One class, in one file but for heads and experts (layer_oracle_heads.cpp,
// layer_oracle_experts.cpp): every function of a graph stands beside its gradient.
#include "runtime/trial/layer_oracle.hpp"

#include "base/error.hpp"
#include "runtime/kernels/convert.hpp"
#include "runtime/kernels/reference_attention.hpp"
#include "schedule/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <span>
#include <utility>

namespace spp::runtime {
namespace {

std::size_t index_of(std::int64_t i) { return static_cast<std::size_t>(i); }

/// As it is stored.
double rounded(float value, DType dtype) {
  std::array<std::byte, sizeof(float)> stored{};
  from_floats(dtype, std::span(&value, 1), stored.data());
  return load(dtype, stored.data(), 0);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// GELU's tanh form: x (1 + tanh(u)) / 2, u = c (x + 0.044715 x^3).
constexpr double gelu_cubic = 0.044715;
double gelu_tanh(double x) {
  return std::tanh(std::sqrt(2 / std::numbers::pi) * (x + gelu_cubic * x * x * x));
}
double gelu_slope(double x) {
  const double t = gelu_tanh(x);
  return (1 + t) / 2 +
         x * (1 - t * t) / 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * gelu_cubic * x * x);
}

/// fp32 copies of heads, as attention's oracle reads them.
struct Heads {
  std::vector<float> storage;
  Rows first;  // of micro-batch 0

  /// `tokens`: of a micro-batch.
  Heads(const std::vector<double>& from, const Problem& problem, std::int64_t tokens, int heads,
        int width)
      : storage(from.begin(), from.end()),
        first{.data = reinterpret_cast<std::byte*>(storage.data()),
              .dtype = DType::fp32,
              .count = tokens,
              .batch = problem.batch,
              .heads = heads,
              .width = width} {}
  [[nodiscard]] Rows rows(int micro_batch) const {
    Rows rows = first;
    rows.data += micro_batch * first.bytes();
    return rows;
  }
};

/// What one micro-batch has of all.
std::span<double> part_of(std::vector<double>& all, int micro_batch, int micro_batches) {
  const std::size_t size = all.size() / static_cast<std::size_t>(micro_batches);
  return std::span(all).subspan(static_cast<std::size_t>(micro_batch) * size, size);
}
std::span<const double> part_of(const std::vector<double>& all, int micro_batch,
                                int micro_batches) {
  const std::size_t size = all.size() / static_cast<std::size_t>(micro_batches);
  return std::span(all).subspan(static_cast<std::size_t>(micro_batch) * size, size);
}

}  // namespace

double LayerOracle::flops(const Schedule& schedule) {
  const Problem& p = schedule.contract.requested;
  const auto rows = static_cast<double>((p.all_tokens() - p.cached) * p.batch);
  double products = 0;
  for (const Definition& d : schedule.contract.graph.definitions) {
    if (d.function == LayerFunction::linear) {
      const Param& w = schedule.contract.graph.param(d.param);
      const double matrices =
          schedule.contract.graph.is_of_experts(d)
              ? static_cast<double>(schedule.contract.graph.routing.chosen) / w.experts
              : 1;
      products +=
          2 * rows * matrices * static_cast<double>(w.rows) * static_cast<double>(w.columns);
    }
  }
  const double attention = 2 * rows * static_cast<double>(p.end()) * (p.head_dim + p.v_dim()) *
                           p.q_heads * schedule.contract.graph.attentions();
  return (products + attention) * (schedule.contract.phase == Phase::forward ? 1 : 3.5);
}

LayerOracle::LayerOracle(const Schedule& schedule, const InputData& data, const Poll& poll)
    : problem_(schedule.contract.requested),
      graph_(schedule.contract.graph),
      index_(schedule.contract.graph),
      data_(data),
      poll_(poll) {
  for (int label = 0; label < std::ssize(graph_.params); ++label) {
    fill({Tensor::param, label});
  }
  for (const Definition& d : graph_.definitions) {
    forward(d);
    if (poll_) {
      poll_();
    }
  }
  const bool has_gradients = schedule.contract.phase != Phase::forward;
  for (std::size_t i = graph_.definitions.size(); has_gradients && i-- > 0;) {
    backward(graph_.definitions[i]);
    if (poll_) {
      poll_();
    }
  }
  for (const Definition& d : graph_.definitions) {
    if (schedule.contract.phase == Phase::step && d.function == LayerFunction::adam) {
      update(d);
    }
  }
}

std::int64_t LayerOracle::width(TensorRef ref) const {
  if (is_value(ref.tensor)) {
    return graph_.value(ref.label).width;
  }
  const int heads = is_kv(ref.tensor) ? problem_.kv_heads : problem_.q_heads;
  return std::int64_t{heads} *
         (has_values_width(ref.tensor) ? problem_.v_dim() : problem_.head_dim);
}

std::vector<double>& LayerOracle::make(TensorRef ref) {
  std::vector<double>& tensor = tensors_[ref];
  if (tensor.empty()) {
    tensor.assign(is_param(ref.tensor)
                      ? index_of(graph_.param(ref.label).rows * graph_.param(ref.label).columns)
                      : index_of((rows() + (is_kv(ref.tensor) ? cached_rows() : 0)) * width(ref)),
                  0);
    if (is_kv(ref.tensor) && problem_.cached > 0) {
      fill_cached(ref);
    }
  }
  return tensor;
}

void LayerOracle::fill_cached(TensorRef ref) {
  std::vector<double>& tensor = tensors_.at(ref);
  const std::int64_t dim = has_values_width(ref.tensor) ? problem_.v_dim() : problem_.head_dim;
  for (std::int64_t i = 0; i < cached_rows() * width(ref); ++i) {
    const std::int64_t line = i / width(ref);
    const auto head = static_cast<int>(i % width(ref) / dim);
    tensor[index_of(i)] =
        rounded(data_.value(ref.tensor, line % problem_.batch, line / problem_.batch, head,
                            static_cast<int>(i % dim)),
                problem_.dtype);
  }
}

void LayerOracle::fill(TensorRef ref) {
  std::vector<double>& tensor = make(ref);
  const bool of_tokens = is_value(ref.tensor);
  const std::int64_t columns = of_tokens ? width(ref) : graph_.param(ref.label).columns;
  const std::int64_t batch = of_tokens ? problem_.batch : 1;
  const bool exact = of_tokens ? graph_.value(ref.label).fp32 : ref.tensor != Tensor::param;
  const TensorData data(data_, ref);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const auto line = static_cast<std::int64_t>(i) / columns;
    const std::int64_t row = line / batch + (of_tokens ? problem_.cached : 0);
    tensor[i] = rounded(data(line % batch, row, static_cast<std::int64_t>(i) % columns),
                        exact ? DType::fp32 : problem_.dtype);
  }
}

void LayerOracle::forward(const Definition& d) {
  for (const TensorRef ref : d.reads) {
    if (!has(ref)) {
      ensure(is_value(ref.tensor), "a layer reads attention's output before it has it");
      fill(ref);
    }
  }
  switch (d.function) {
    case LayerFunction::linear:
      return multiply(d);
    case LayerFunction::rms_norm:
    case LayerFunction::layer_norm:
      return norm(d);
    case LayerFunction::split:
      return split_columns(d, false);
    case LayerFunction::split_heads:
      d.joins_latents() ? join_latents(d, false) : split(d, false);
      return attend(d.writes[0].label);
    case LayerFunction::embedding:
      return look_up(d);
    case LayerFunction::word_sums:
      return sum_words(d);
    case LayerFunction::word_loss:
      return lose(d);
    case LayerFunction::adam:
      return;
    case LayerFunction::route:
      return route(d, false);
    case LayerFunction::dispatch:
    case LayerFunction::combine:
      return spread(d, false);
    case LayerFunction::expert_swiglu:
      return activate_experts(d, false);
    case LayerFunction::swiglu: {
      const auto& x = at(d.reads[0]);
      std::vector<double>& a = make(d.writes[0]);
      const auto& up = at(d.reads[1]);
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = x[i] * sigmoid(x[i]) * up[i];
      }
      return;
    }
    case LayerFunction::gelu: {
      const auto& x = at(d.reads[0]);
      std::vector<double>& a = make(d.writes[0]);
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = x[i] * (1 + gelu_tanh(x[i])) / 2;
      }
      return;
    }
    case LayerFunction::add: {
      const auto& x = at(d.reads[0]);
      std::vector<double>& z = make(d.writes[0]);
      const auto& y = at(d.reads[1]);
      for (std::size_t i = 0; i < z.size(); ++i) {
        z[i] = x[i] + y[i];
      }
      return;
    }
  }
}

/// Every definition adds what it gives to its inputs' gradients; the output's comes from outside.
void LayerOracle::backward(const Definition& d) {
  const auto gradient = [&](TensorRef value) -> std::vector<double>& {
    const TensorRef ref{Tensor::d_value, value.label};
    if (!has(ref) && graph_.uses_of(value).empty() && d.writes[0] == value) {
      fill(ref);
    }
    return make(ref);
  };
  switch (d.function) {
    case LayerFunction::linear:
      gradient(d.writes[0]);
      return multiply_back(d);
    case LayerFunction::rms_norm:
    case LayerFunction::layer_norm:
      gradient(d.writes[0]);
      return norm_back(d);
    case LayerFunction::split_heads:
      attend_back(d.writes[0].label);
      return d.joins_latents() ? join_latents(d, true) : split(d, true);
    case LayerFunction::split:
      gradient(d.writes[0]);
      gradient(d.writes[1]);
      return split_columns(d, true);
    case LayerFunction::embedding:
      gradient(d.writes[0]);
      return look_up_back(d);
    case LayerFunction::word_sums:
      return sum_words_back(d);
    case LayerFunction::word_loss:
    case LayerFunction::adam:
      return;
    case LayerFunction::route:
      return route(d, true);
    case LayerFunction::dispatch:
    case LayerFunction::combine:
      return spread(d, true);
    case LayerFunction::expert_swiglu:
      return activate_experts(d, true);
    case LayerFunction::swiglu: {
      const auto& d_a = gradient(d.writes[0]);
      auto& d_gate = gradient(d.reads[0]);
      auto& d_up = gradient(d.reads[1]);
      const auto& gate = at(d.reads[0]);
      const auto& up = at(d.reads[1]);
      for (std::size_t i = 0; i < d_a.size(); ++i) {
        const double s = sigmoid(gate[i]);
        d_gate[i] += d_a[i] * up[i] * s * (1 + gate[i] * (1 - s));
        d_up[i] += d_a[i] * gate[i] * s;
      }
      return;
    }
    case LayerFunction::gelu: {
      const auto& d_a = gradient(d.writes[0]);
      auto& d_h = gradient(d.reads[0]);
      const auto& h = at(d.reads[0]);
      for (std::size_t i = 0; i < d_a.size(); ++i) {
        d_h[i] += d_a[i] * gelu_slope(h[i]);
      }
      return;
    }
    case LayerFunction::add: {
      const auto& d_z = gradient(d.writes[0]);
      for (const TensorRef input : d.reads) {
        auto& d_x = gradient(input);
        for (std::size_t i = 0; i < d_z.size(); ++i) {
          d_x[i] += d_z[i];
        }
      }
      return;
    }
  }
}

namespace {

/// Of a linear layer: what it reads and writes in a row, and where w has what both share.
struct LinearLayer {
  std::int64_t in = 0, out = 0;
  bool transposed = false;

  LinearLayer(const Param& w, const Definition& d)
      : in(d.transposed ? w.columns : w.rows),
        out(d.transposed ? w.rows : w.columns),
        transposed(d.transposed) {}
  [[nodiscard]] std::size_t place(std::int64_t k, std::int64_t n) const {
    return index_of(transposed ? n * in + k : k * out + n);
  }
};

}  // namespace

void LayerOracle::multiply(const Definition& d) {
  if (graph_.is_of_experts(d)) {
    return multiply_experts(d, false);
  }
  const LinearLayer w(graph_.param(d.param), d);
  const auto& x = at(d.reads[0]);
  const auto& weight = at({Tensor::param, d.param});
  std::vector<double>& y = make(d.writes[0]);
  for (std::int64_t r = 0; r < rows(); ++r) {
    for (std::int64_t n = 0; d.bias >= 0 && n < w.out; ++n) {
      y[index_of(r * w.out + n)] = at({Tensor::param, d.bias})[index_of(n)];
    }
    for (std::int64_t k = 0; k < w.in; ++k) {
      const double factor = x[index_of(r * w.in + k)];
      for (std::int64_t n = 0; n < w.out; ++n) {
        y[index_of(r * w.out + n)] += factor * weight[w.place(k, n)];
      }
    }
  }
}

void LayerOracle::multiply_back(const Definition& d) {
  if (graph_.is_of_experts(d)) {
    return multiply_experts(d, true);
  }
  const LinearLayer w(graph_.param(d.param), d);
  const TensorRef input = d.reads[0];
  const auto& x = at(input);
  const auto& weight = at({Tensor::param, d.param});
  const auto& d_y = at({Tensor::d_value, d.writes[0].label});
  std::vector<double>& d_x =
      make(input.tensor == Tensor::out ? TensorRef(Tensor::d_out, input.label)
                                       : TensorRef(Tensor::d_value, input.label));
  std::vector<double>& d_w = make({Tensor::d_param, d.param});
  for (std::int64_t r = 0; d.bias >= 0 && r < rows(); ++r) {
    std::vector<double>& d_b = make({Tensor::d_param, d.bias});
    for (std::int64_t n = 0; n < w.out; ++n) {
      d_b[index_of(n)] += d_y[index_of(r * w.out + n)];
    }
  }
  for (std::int64_t r = 0; r < rows(); ++r) {
    for (std::int64_t k = 0; k < w.in; ++k) {
      double sum = 0;
      const double factor = x[index_of(r * w.in + k)];
      for (std::int64_t n = 0; n < w.out; ++n) {
        const double slope = d_y[index_of(r * w.out + n)];
        sum += slope * weight[w.place(k, n)];
        d_w[w.place(k, n)] += factor * slope;
      }
      d_x[index_of(r * w.in + k)] += sum;
    }
  }
}

void LayerOracle::norm(const Definition& d) {
  const bool centred = d.function == LayerFunction::layer_norm;
  const std::int64_t n = width(d.reads[0]);
  const auto& x = at(d.reads[0]);
  const auto& weight = at({Tensor::param, d.param});
  std::vector<double>& y = make(d.writes[0]);
  std::vector<double>& statistics = make(d.writes[1]);
  for (std::int64_t r = 0; r < rows(); ++r) {
    double mean = 0;
    for (std::int64_t i = 0; centred && i < n; ++i) {
      mean += x[index_of(r * n + i)] / static_cast<double>(n);
    }
    double square = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double difference = x[index_of(r * n + i)] - mean;
      square += difference * difference / static_cast<double>(n);
    }
    const double inverse = 1 / std::sqrt(square + d.constant);
    for (std::int64_t i = 0; i < n; ++i) {
      y[index_of(r * n + i)] = (x[index_of(r * n + i)] - mean) * inverse * weight[index_of(i)] +
                               (centred ? weight[index_of(n + i)] : 0);
    }
    if (centred) {
      statistics[index_of(2 * r)] = mean;
      statistics[index_of(2 * r + 1)] = inverse;
    } else {
      statistics[index_of(r)] = inverse;
    }
  }
}

void LayerOracle::norm_back(const Definition& d) {
  const bool centred = d.function == LayerFunction::layer_norm;
  const std::int64_t n = width(d.reads[0]);
  const auto& x = at(d.reads[0]);
  const auto& weight = at({Tensor::param, d.param});
  const auto& statistics = at(d.writes[1]);
  const auto& d_y = at({Tensor::d_value, d.writes[0].label});
  std::vector<double>& d_x = make({Tensor::d_value, d.reads[0].label});
  std::vector<double>& d_weight = make({Tensor::d_param, d.param});
  for (std::int64_t r = 0; r < rows(); ++r) {
    const double mean = centred ? statistics[index_of(2 * r)] : 0;
    const double inverse = centred ? statistics[index_of(2 * r + 1)] : statistics[index_of(r)];
    double of_slopes = 0;  // means of g and of g z
    double of_products = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double z = (x[index_of(r * n + i)] - mean) * inverse;
      const double slope = d_y[index_of(r * n + i)];
      const double g = slope * weight[index_of(i)];
      of_slopes += centred ? g / static_cast<double>(n) : 0;
      of_products += g * z / static_cast<double>(n);
      d_weight[index_of(i)] += slope * z;
      if (centred) {
        d_weight[index_of(n + i)] += slope;
      }
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const double z = (x[index_of(r * n + i)] - mean) * inverse;
      d_x[index_of(r * n + i)] +=
          inverse * (d_y[index_of(r * n + i)] * weight[index_of(i)] - of_slopes - z * of_products);
    }
  }
}

void LayerOracle::attend(int label) {
  const std::int64_t end = problem_.end();
  const TokenSet queries({.begin = problem_.cached, .count = problem_.seq});
  const TokenSet keys({.begin = 0, .count = end});
  const Mask& mask = problem_.mask_of(index_.mask_of(label));
  const Heads q(at({Tensor::q, label}), problem_, problem_.seq, problem_.q_heads,
                problem_.head_dim);
  const Heads k(at({Tensor::k, label}), problem_, end, problem_.kv_heads, problem_.head_dim);
  const Heads v(at({Tensor::v, label}), problem_, end, problem_.kv_heads, problem_.v_dim());
  std::vector<double>& out = make({Tensor::out, label});
  std::vector<double>& lse = tensors_[{Tensor::lse, label}];
  lse.resize(index_of(rows() * problem_.q_heads));
  for (int r = 0; r < problem_.micro_batches; ++r) {
    reference_forward({.q = q.rows(r),
                       .k = k.rows(r),
                       .v = v.rows(r),
                       .visible = {.q_tokens = queries, .k_tokens = keys, .mask = mask, .seq = end},
                       .out = part_of(out, r, problem_.micro_batches),
                       .lse = part_of(lse, r, problem_.micro_batches)},
                      poll_);
  }
  if (index_.sink_of(label) >= 0) {
    add_sink(label);
  }
}

/// To a softmax over the keys: one more term of every row's normaliser.
void LayerOracle::add_sink(int label) {
  const auto& sinks = at({Tensor::param, index_.sink_of(label)});
  auto& out = tensors_.at({Tensor::out, label});
  auto& lse = tensors_.at({Tensor::lse, label});
  const std::size_t dim = out.size() / lse.size();
  for (std::size_t i = 0; i < lse.size(); ++i) {
    const double keys = std::exp(lse[i]);
    const double all = keys + std::exp(sinks[i % sinks.size()]);
    for (std::size_t j = 0; j < dim; ++j) {
      out[i * dim + j] *= keys / all;
    }
    lse[i] = std::log(all);
  }
}

void LayerOracle::sink_back(int label, const std::vector<double>& delta) {
  const int param = index_.sink_of(label);
  const auto& sinks = at({Tensor::param, param});
  const auto& lse = at({Tensor::lse, label});
  std::vector<double>& d_sinks = make({Tensor::d_param, param});
  for (std::size_t i = 0; i < lse.size(); ++i) {
    const std::size_t head = i % sinks.size();
    d_sinks[head] -= std::exp(sinks[head] - lse[i]) * delta[i];
  }
}

void LayerOracle::attend_back(int label) {
  const TokenSet all({.begin = 0, .count = problem_.seq});
  const Mask& mask = problem_.mask_of(index_.mask_of(label));
  const std::int64_t seq = problem_.seq;
  const Heads q(at({Tensor::q, label}), problem_, seq, problem_.q_heads, problem_.head_dim);
  const Heads k(at({Tensor::k, label}), problem_, seq, problem_.kv_heads, problem_.head_dim);
  const Heads v(at({Tensor::v, label}), problem_, seq, problem_.kv_heads, problem_.v_dim());
  const Heads d_out(at({Tensor::d_out, label}), problem_, seq, problem_.q_heads, problem_.v_dim());
  const auto of = [&](Tensor tensor, int r) {
    return part_of(make({tensor, label}), r, problem_.micro_batches);
  };
  std::vector<double> delta(index_of(rows() * problem_.q_heads));
  for (int r = 0; r < problem_.micro_batches; ++r) {
    const std::span<double> delta_of_one = part_of(delta, r, problem_.micro_batches);
    reference_row_dot(d_out.rows(r), of(Tensor::out, r), delta_of_one);
    reference_backward(
        {.q = q.rows(r),
         .k = k.rows(r),
         .v = v.rows(r),
         .d_out = d_out.rows(r),
         .visible = {.q_tokens = all, .k_tokens = all, .mask = mask, .seq = problem_.seq},
         .lse =
             part_of(std::as_const(tensors_.at({Tensor::lse, label})), r, problem_.micro_batches),
         .delta = delta_of_one,
         .d_q = of(Tensor::d_q, r),
         .d_k = of(Tensor::d_k, r),
         .d_v = of(Tensor::d_v, r)},
        poll_);
  }
  if (index_.sink_of(label) >= 0) {
    sink_back(label, delta);
  }
}

void LayerOracle::look_up(const Definition& d) {
  const std::int64_t n = width(d.writes[0]);
  const auto& words = at(d.reads[0]);
  const auto& table = at({Tensor::param, d.param});
  std::vector<double>& x = make(d.writes[0]);
  for (std::int64_t r = 0; r < rows(); ++r) {
    const auto word = static_cast<std::int64_t>(words[index_of(r)]);
    for (std::int64_t i = 0; word >= 0 && i < n; ++i) {
      x[index_of(r * n + i)] = table[index_of(word * n + i)];
    }
  }
}

void LayerOracle::look_up_back(const Definition& d) {
  const std::int64_t n = width(d.writes[0]);
  const auto& words = at(d.reads[0]);
  const auto& d_x = at({Tensor::d_value, d.writes[0].label});
  std::vector<double>& d_table = make({Tensor::d_param, d.param});
  for (std::int64_t r = 0; r < rows(); ++r) {
    const auto word = static_cast<std::int64_t>(words[index_of(r)]);
    for (std::int64_t i = 0; word >= 0 && i < n; ++i) {
      d_table[index_of(word * n + i)] += d_x[index_of(r * n + i)];
    }
  }
}

/// Of each part of the logits, as it is defined: what a rank of that part knows.
void LayerOracle::sum_words(const Definition& d) {
  const Value& value = graph_.value(d.reads[0].label);
  const std::int64_t part = value.part_width();
  const auto& logits = at(d.reads[0]);
  const auto& targets = at(d.reads[1]);
  std::vector<double>& sums = make(d.writes[0]);
  for (std::int64_t r = 0; r < rows(); ++r) {
    for (int p = 0; p < value.parts; ++p) {
      const double* own = &logits[index_of(r * value.width + p * part)];
      double* to = &sums[index_of(3 * (r * value.parts + p))];
      to[0] = *std::max_element(own, own + part);
      for (std::int64_t i = 0; i < part; ++i) {
        to[1] += std::exp(own[i] - to[0]);
      }
      const auto target = static_cast<std::int64_t>(targets[index_of(r)]) - p * part;
      to[2] = target >= 0 && target < part ? own[target] : 0;
    }
  }
}

void LayerOracle::lose(const Definition& d) {
  const int parts = static_cast<int>(width(d.reads[0]) / 3);
  const auto& sums = at(d.reads[0]);
  const auto& targets = at(d.reads[1]);
  std::vector<double>& loss = make(d.writes[0]);
  std::vector<double>& log_sum = make(d.writes[1]);
  for (std::int64_t r = 0; r < rows(); ++r) {
    double sum = 0;
    double target = 0;
    for (int p = 0; p < parts; ++p) {
      const double* of_part = &sums[index_of(3 * (r * parts + p))];
      sum += of_part[1] * std::exp(of_part[0]);
      target += of_part[2];
    }
    log_sum[index_of(r)] = std::log(sum);
    loss[index_of(r)] = targets[index_of(r)] < 0 ? 0 : std::log(sum) - target;
  }
}

/// Of the mean loss over all tokens.
void LayerOracle::sum_words_back(const Definition& d) {
  const std::int64_t n = width(d.reads[0]);
  const auto& logits = at(d.reads[0]);
  const auto& targets = at(d.reads[1]);
  std::vector<double>& d_logits = make({Tensor::d_value, d.reads[0].label});
  for (std::int64_t r = 0; r < rows(); ++r) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      sum += std::exp(logits[index_of(r * n + i)]);
    }
    const auto target = static_cast<std::int64_t>(targets[index_of(r)]);
    for (std::int64_t i = 0; target >= 0 && i < n; ++i) {
      d_logits[index_of(r * n + i)] =
          (std::exp(logits[index_of(r * n + i)]) / sum - (i == target ? 1 : 0)) /
          static_cast<double>(rows());
    }
  }
}

void LayerOracle::update(const Definition& d) {
  constexpr AdamConstants c;
  for (const Tensor kept : {Tensor::master, Tensor::first_moment, Tensor::second_moment}) {
    fill({kept, d.param});
  }
  const auto& gradient = at({Tensor::d_param, d.param});
  auto& weight = tensors_[{Tensor::master, d.param}];
  auto& first = tensors_[{Tensor::first_moment, d.param}];
  auto& second = tensors_[{Tensor::second_moment, d.param}];
  for (std::size_t i = 0; i < weight.size(); ++i) {
    first[i] = c.beta1 * first[i] + (1 - c.beta1) * gradient[i];
    second[i] = c.beta2 * second[i] + (1 - c.beta2) * gradient[i] * gradient[i];
    weight[i] -= d.constant * (first[i] / (std::sqrt(second[i]) + c.epsilon) + c.decay * weight[i]);
  }
  tensors_[{Tensor::param, d.param}] = weight;
}

const LayerOracle& SharedOracles::of(const Schedule& schedule, const InputData& data,
                                     const Poll& poll) {
  std::unique_lock lock(mutex_);
  Shared& shared = known_[&schedule];
  if (!std::exchange(shared.begun, true)) {
    lock.unlock();
    std::unique_ptr<LayerOracle> oracle;
    std::exception_ptr failed;
    try {
      oracle = std::make_unique<LayerOracle>(schedule, data, poll);
    } catch (...) {
      failed = std::current_exception();
    }
    lock.lock();
    shared.oracle = std::move(oracle);
    shared.failed = failed;
    done_.notify_all();
  }
  constexpr std::chrono::milliseconds now_and_then(20);
  while (shared.oracle == nullptr && shared.failed == nullptr) {
    done_.wait_for(lock, now_and_then);
    lock.unlock();
    poll();
    lock.lock();
  }
  if (shared.failed != nullptr) {
    std::rethrow_exception(shared.failed);
  }
  return *shared.oracle;
}

}  // namespace spp::runtime
