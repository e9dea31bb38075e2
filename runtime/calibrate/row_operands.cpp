// Row-wise functions of a layer, and of a step beside its layers: what each reads and writes, and
// in which sizes it is timed.
#include "base/error.hpp"
#include "runtime/calibrate/layer_probes.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace spp::runtime {
namespace {

constexpr double epsilon = 1e-5;  // of norms
constexpr double theta = 10000;   // of rotations
/// 1 / rms of the numbers that norms are given.
constexpr float statistic = 1.7F;
constexpr double update_rate = 1e-3;  // of updates
/// Columns of logits: so many that what a row costs beside them counts little, as in models.
constexpr std::int64_t logits_width = 4096;
/// Words of a vocabulary for each token that looks one up: clearing the table's gradient and adding
/// to it both count, as with the 32 thousand words and more of models and the tokens of a rank.
constexpr std::int64_t words_of_token = 4;
constexpr std::int64_t sums_width = 3;  // numbers of a part of the logits
/// Of scores, between the 2 of 8 of Mixtral and the 8 of 128 of Qwen3.
constexpr Routing probed_routing{.experts = 64, .chosen = 4, .groups = 1, .period = 16};

/// Writes down the operands of one row-wise function.
class RowOperands {
 public:
  RowOperands(const RowWork& work, const Problem& shape) : work_(work), shape_(shape) {
    kernel_.what = work.function;
    kernel_.tokens = work.rows;
    definition_.function = work.function.function;
  }

  LayerKernel run() {
    switch (work_.function.function) {
      case LayerFunction::rms_norm:
        norm(1);
        break;
      case LayerFunction::layer_norm:
        norm(2);
        break;
      case LayerFunction::split_heads:
        split_heads();
        break;
      case LayerFunction::swiglu:
        values({"gate", "up"}, "a");
        break;
      case LayerFunction::gelu:
        values({"h"}, "a");
        break;
      case LayerFunction::add:
        values({"x", "y"}, "z");
        break;
      case LayerFunction::split:
        split();
        break;
      case LayerFunction::embedding:
        embedding();
        break;
      case LayerFunction::word_sums:
        sums_of_words();
        break;
      case LayerFunction::word_loss:
        word_loss();
        break;
      case LayerFunction::adam:
        update();
        break;
      case LayerFunction::route:
        route();
        break;
      case LayerFunction::expert_swiglu:
        expert_swiglu();
        break;
      case LayerFunction::linear:
      case LayerFunction::dispatch:
      case LayerFunction::combine:
        throw InternalError("no row-wise function");
    }
    kernel_.graph.definitions.push_back(std::move(definition_));
    return std::move(kernel_);
  }

 private:
  [[nodiscard]] bool backward() const { return work_.function.backward; }

  int value(std::string name, std::int64_t width, bool fp32 = false) {
    kernel_.graph.values.push_back({.name = std::move(name), .width = width, .fp32 = fp32});
    return static_cast<int>(kernel_.graph.values.size()) - 1;
  }
  [[nodiscard]] LayerOperand of_value(int label, bool gradient = false) const {
    const Value& value = kernel_.graph.value(label);
    return {.ref = {gradient ? Tensor::d_value : Tensor::value, label},
            .rows = work_.rows,
            .width = value.width,
            .dtype = value.fp32 ? DType::fp32 : shape_.dtype};
  }
  [[nodiscard]] LayerOperand of_heads(Tensor tensor, int heads) const {
    return {.ref = tensor,
            .rows = work_.rows,
            .heads = heads,
            .width = shape_.head_dim,
            .dtype = shape_.dtype};
  }

  /// `weights`: of a column, the gain and perhaps the bias; as many statistics a row.
  void norm(int weights) {
    const int x = value("x", work_.width);
    const int y = value("y", work_.width);
    const int statistics = value("statistics", weights, true);
    kernel_.graph.params.push_back({.name = "weight", .rows = weights * work_.width});
    definition_.reads = {{Tensor::value, x}};
    definition_.writes = {{Tensor::value, y}, {Tensor::value, statistics}};
    definition_.param = 0;
    definition_.constant = epsilon;
    LayerOperand weight{.ref = {Tensor::param, 0},
                        .rows = weights * work_.width,
                        .dtype = shape_.dtype,
                        .middle = 1,
                        .reach = 0.1F};
    LayerOperand known = of_value(statistics);
    known.middle = statistic;
    known.reach = 0.1F;
    if (!backward()) {
      kernel_.reads = {of_value(x), weight};
      kernel_.writes = {of_value(y), known};
      return;
    }
    kernel_.reads = {of_value(x), weight, known, of_value(y, true)};
    weight.ref.tensor = Tensor::d_param;
    weight.dtype = DType::fp32;
    kernel_.writes = {of_value(x, true), weight};
  }

  void split_heads() {
    const int kv = shape_.kv_heads;
    const int qkv =
        value("qkv", std::int64_t{shape_.q_heads + 2 * shape_.kv_heads} * shape_.head_dim);
    definition_.reads = {{Tensor::value, qkv}};
    definition_.writes = {Tensor::q, Tensor::k, Tensor::v};
    definition_.constant = theta;
    if (backward()) {
      kernel_.reads = {of_heads(Tensor::d_q, shape_.q_heads), of_heads(Tensor::d_k, kv),
                       of_heads(Tensor::d_v, kv)};
      kernel_.writes = {of_value(qkv, true)};
    } else {
      kernel_.reads = {of_value(qkv)};
      kernel_.writes = {of_heads(Tensor::q, shape_.q_heads), of_heads(Tensor::k, kv),
                        of_heads(Tensor::v, kv)};
    }
  }

  /// A function of values alone; its gradient reads them again, and that of the result.
  void values(const std::vector<std::string>& read, const std::string& written) {
    for (const std::string& name : read) {
      definition_.reads.emplace_back(Tensor::value, value(name, work_.width));
    }
    const int to = value(written, work_.width);
    definition_.writes = {{Tensor::value, to}};
    for (const TensorRef& ref : definition_.reads) {
      kernel_.reads.push_back(of_value(ref.label));
      if (backward()) {
        kernel_.writes.push_back(of_value(ref.label, true));
      }
    }
    if (backward()) {
      kernel_.reads.push_back(of_value(to, true));
    } else {
      kernel_.writes.push_back(of_value(to));
    }
  }

  /// A row and its halves.
  void split() {
    const int x = value("x", work_.width);
    const int a = value("a", work_.width / 2);
    const int b = value("b", work_.width - work_.width / 2);
    definition_.reads = {{Tensor::value, x}};
    definition_.writes = {{Tensor::value, a}, {Tensor::value, b}};
    std::vector<LayerOperand> row{of_value(x, backward())};
    std::vector<LayerOperand> halves{of_value(a, backward()), of_value(b, backward())};
    kernel_.reads = backward() ? halves : row;
    kernel_.writes = backward() ? row : halves;
  }

  /// Numbers of words below `count`.
  LayerOperand words_below(std::int64_t count) {
    LayerOperand operand = of_value(value("words", 1, true));
    operand.middle = operand.reach = static_cast<float>(count) / 2;
    operand.is_words = true;
    return operand;
  }

  void embedding() {
    const std::int64_t vocabulary = words_of_token * work_.rows;
    const LayerOperand chosen = words_below(vocabulary);
    const int x = value("x", work_.width);
    kernel_.graph.params.push_back({.name = "table", .rows = vocabulary, .columns = work_.width});
    definition_.reads = {chosen.ref};
    definition_.writes = {{Tensor::value, x}};
    definition_.param = 0;
    LayerOperand table{
        .ref = {Tensor::param, 0}, .rows = vocabulary, .width = work_.width, .dtype = shape_.dtype};
    if (!backward()) {
      kernel_.reads = {chosen, table};
      kernel_.writes = {of_value(x)};
      return;
    }
    kernel_.reads = {chosen, table, of_value(x, true)};
    table.ref.tensor = Tensor::d_param;
    table.dtype = DType::fp32;
    kernel_.writes = {table};
  }

  void sums_of_words() {
    const int logits = value("logits", work_.width);
    const LayerOperand targets = words_below(work_.width);
    const int sums = value("sums", sums_width, true);
    definition_.reads = {{Tensor::value, logits}, targets.ref};
    definition_.writes = {{Tensor::value, sums}};
    if (!backward()) {
      kernel_.reads = {of_value(logits), targets};
      kernel_.writes = {of_value(sums)};
      return;
    }
    LayerOperand log_sum = of_value(value("log_sum", 1, true));
    log_sum.middle = std::log(static_cast<float>(work_.width));
    log_sum.reach = 0.1F;
    kernel_.reads = {of_value(logits), targets, log_sum};
    kernel_.writes = {of_value(logits, true)};
  }

  void word_loss() {
    const int sums = value("sums", work_.width, true);
    const LayerOperand targets = words_below(logits_width);
    const int loss = value("loss", 1, true);
    const int log_sum = value("log_sum", 1, true);
    definition_.reads = {{Tensor::value, sums}, targets.ref};
    definition_.writes = {{Tensor::value, loss}, {Tensor::value, log_sum}};
    kernel_.reads = {of_value(sums), targets};
    kernel_.reads.front().middle = 2;  // sums of exponentials are positive
    kernel_.writes = {of_value(loss), of_value(log_sum)};
  }

  void update() {
    kernel_.graph.params.push_back({.name = "w", .rows = work_.rows, .columns = work_.width});
    definition_.param = 0;
    definition_.constant = update_rate;
    const auto of_param = [&](Tensor tensor, DType dtype) {
      return LayerOperand{
          .ref = {tensor, 0}, .rows = work_.rows, .width = work_.width, .dtype = dtype};
    };
    kernel_.reads = {of_param(Tensor::d_param, DType::fp32), of_param(Tensor::master, DType::fp32),
                     of_param(Tensor::first_moment, DType::fp32),
                     of_param(Tensor::second_moment, DType::fp32)};
    kernel_.reads.back().middle = 2;  // squares are positive
    for (int i = 1; i < std::ssize(kernel_.reads); ++i) {
      kernel_.writes.push_back(kernel_.reads[static_cast<std::size_t>(i)]);
      kernel_.writes.back().in_place = i;
    }
    kernel_.writes.push_back(of_param(Tensor::param, shape_.dtype));
  }

  void route() {
    kernel_.graph.routing = probed_routing;
    const int scores = value("scores", work_.width);
    const int weights = value("weights", probed_routing.chosen, true);
    kernel_.graph.values.back().parts = probed_routing.chosen;
    definition_.reads = {{Tensor::value, scores}};
    definition_.writes = {{Tensor::value, weights}};
    const auto of_slots = [&](bool gradient) {
      LayerOperand operand = of_value(weights, gradient);
      operand.heads = probed_routing.chosen;
      operand.width = 1;
      return operand;
    };
    if (backward()) {
      kernel_.reads = {of_slots(false), of_slots(true)};
      kernel_.writes = {of_value(scores, true)};
    } else {
      kernel_.reads = {of_value(scores)};
      kernel_.writes = {of_slots(false)};
    }
  }

  void expert_swiglu() {
    const int gate_up = value("gate_up", 2 * work_.width);
    const int weights = value("weights", 1, true);
    const int a = value("a", work_.width);
    definition_.reads = {{Tensor::value, gate_up}, {Tensor::value, weights}};
    definition_.writes = {{Tensor::value, a}};
    kernel_.reads = {of_value(gate_up), of_value(weights)};
    if (backward()) {
      kernel_.reads.push_back(of_value(a, true));
      kernel_.writes = {of_value(gate_up, true), of_value(weights, true)};
    } else {
      kernel_.writes = {of_value(a)};
    }
  }

  const RowWork& work_;
  const Problem& shape_;
  LayerKernel kernel_;
  Definition definition_;
};

}  // namespace

LayerKernel kernel_of(const RowWork& work, const Problem& shape) {
  return RowOperands(work, shape).run();
}

RowWork work_of(const RowFunction& function, std::int64_t bytes, const Problem& shape) {
  std::int64_t width = std::int64_t{shape.q_heads} * shape.head_dim;
  std::int64_t rows_at_once = 1;
  switch (function.function) {
    case LayerFunction::word_sums:
      width = logits_width;
      break;
    case LayerFunction::word_loss:
      width = sums_width;
      break;
    case LayerFunction::route:
      width = probed_routing.experts;
      break;
    case LayerFunction::embedding:  // the bytes are those of the table
      rows_at_once = words_of_token;
      break;
    case LayerFunction::adam:  // the gradient's, and those of what the optimizer keeps
      rows_at_once = 4;
      break;
    default:
      break;
  }
  return {.function = function,
          .rows = std::max<std::int64_t>(1, bytes / (4 * width * rows_at_once)),
          .width = width};
}

}  // namespace spp::runtime
