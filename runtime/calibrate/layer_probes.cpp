#include "runtime/calibrate/layer_probes.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace spp::runtime {
namespace {

constexpr double epsilon = 1e-5;  // of norms
constexpr double theta = 10000;   // of rotations
/// 1 / rms of the numbers that norms are given.
constexpr float statistic = 1.7F;

/// x [tokens, in] times w [in, out].
struct LinearShape {
  std::int64_t tokens = 0, in = 0, out = 0;
};

/// What models' layers multiply, and what tensor parallelism leaves of it: few and many tokens,
/// narrow outputs (column-parallel), short sums (row-parallel), an MLP's wide and deep ones.
constexpr std::array linear_shapes{
    LinearShape{16, 16, 16},       LinearShape{64, 64, 64},       LinearShape{16, 512, 512},
    LinearShape{256, 256, 256},    LinearShape{512, 1024, 64},    LinearShape{512, 64, 1024},
    LinearShape{16, 2048, 2048},   LinearShape{128, 1024, 1024},  LinearShape{1024, 1024, 128},
    LinearShape{1024, 128, 1024},  LinearShape{384, 768, 768},    LinearShape{2048, 512, 256},
    LinearShape{1024, 256, 1024},  LinearShape{256, 1024, 3072},  LinearShape{256, 3072, 1024},
    LinearShape{1024, 1024, 1024}, LinearShape{4096, 768, 512},   LinearShape{128, 4096, 4096},
    LinearShape{2048, 2048, 2048}, LinearShape{4096, 4096, 512},  LinearShape{4096, 512, 4096},
    LinearShape{2048, 4096, 4096}, LinearShape{4096, 4096, 4096}, LinearShape{8192, 4096, 4096}};

GemmShape shape_of(GemmKind kind, const LinearShape& linear) {
  const auto& [tokens, in, out] = linear;
  switch (kind) {
    case GemmKind::forward:
      return {.m = tokens, .n = out, .k = in};
    case GemmKind::input_gradient:
      return {.m = tokens, .n = in, .k = out};
    case GemmKind::weight_gradient:
      return {.m = in, .n = out, .k = tokens};
  }
  throw InternalError("unknown kind of GEMM");
}

LinearShape linear_of(GemmKind kind, const GemmShape& gemm) {
  const auto& [m, n, k] = gemm;
  switch (kind) {
    case GemmKind::forward:
      return {.tokens = m, .in = k, .out = n};
    case GemmKind::input_gradient:
      return {.tokens = m, .in = n, .out = k};
    case GemmKind::weight_gradient:
      return {.tokens = k, .in = m, .out = n};
  }
  throw InternalError("unknown kind of GEMM");
}

/// Writes down the operands of one row-wise function.
class RowOperands {
 public:
  RowOperands(const RowWork& work, const Problem& shape) : work_(work), shape_(shape) {
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
      case LayerFunction::linear:
      case LayerFunction::embedding:
      case LayerFunction::word_sums:
      case LayerFunction::word_loss:
      case LayerFunction::adam:
      case LayerFunction::route:
      case LayerFunction::dispatch:
      case LayerFunction::expert_swiglu:
      case LayerFunction::combine:
        throw InternalError("no row-wise function of a layer");
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
      definition_.reads.push_back({Tensor::value, value(name, work_.width)});
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

  const RowWork& work_;
  const Problem& shape_;
  LayerKernel kernel_;
  Definition definition_;
};

}  // namespace

std::int64_t LayerKernel::touched() const {
  std::int64_t bytes = 0;
  for (const auto* list : {&reads, &writes}) {
    for (const LayerOperand& operand : *list) {
      bytes += operand.bytes();
    }
  }
  return bytes;
}

LayerKernel kernel_of(const GemmBlock& gemm) {
  const LinearShape linear = linear_of(gemm.kind, gemm.shape);
  LayerKernel kernel;
  kernel.tokens = linear.tokens;
  kernel.graph.values = {{.name = "x", .width = linear.in}, {.name = "y", .width = linear.out}};
  kernel.graph.params = {{.name = "w", .rows = linear.in, .columns = linear.out}};
  kernel.graph.definitions = {{.function = LayerFunction::linear,
                               .reads = {{Tensor::value, 0}},
                               .writes = {{Tensor::value, 1}},
                               .param = 0}};
  const auto value = [&](Tensor tensor, int label) {
    return LayerOperand{.ref = {tensor, label},
                        .rows = linear.tokens,
                        .width = label == 0 ? linear.in : linear.out,
                        .dtype = gemm.dtype};
  };
  const auto weight = [&](Tensor tensor, DType dtype) {
    return LayerOperand{.ref = {tensor, 0}, .rows = linear.in, .width = linear.out, .dtype = dtype};
  };
  switch (gemm.kind) {
    case GemmKind::forward:
      kernel.reads = {value(Tensor::value, 0), weight(Tensor::param, gemm.dtype)};
      kernel.writes = {value(Tensor::value, 1)};
      break;
    case GemmKind::input_gradient:
      kernel.reads = {value(Tensor::d_value, 1), weight(Tensor::param, gemm.dtype)};
      kernel.writes = {value(Tensor::d_value, 0)};
      break;
    case GemmKind::weight_gradient:
      kernel.reads = {value(Tensor::value, 0), value(Tensor::d_value, 1)};
      kernel.writes = {weight(Tensor::d_param, DType::fp32)};
      break;
  }
  return kernel;
}

LayerKernel kernel_of(const RowWork& work, const Problem& shape) {
  return RowOperands(work, shape).run();
}

std::vector<Probe> gemm_probes(DType dtype, const Crew& crew, std::int64_t largest) {
  std::vector<Probe> probes;
  for (const LinearShape& linear : linear_shapes) {
    for (const GemmKind kind :
         {GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient}) {
      const GemmBlock gemm{.kind = kind, .shape = shape_of(kind, linear), .dtype = dtype};
      const LayerKernel kernel = kernel_of(gemm);
      const bool fits = std::ranges::all_of(kernel.reads,
                                            [&](const LayerOperand& operand) {
                                              return operand.bytes() <= largest;
                                            }) &&
                        kernel.writes.front().bytes() <= largest;
      if (fits || &linear == linear_shapes.data()) {
        Series series = probe_labels("layer", "gemm", crew.active);
        series.size = static_cast<double>(kernel.touched());
        series.gemm = gemm;
        probes.push_back({.series = std::move(series), .work = everybodys(gemm, crew)});
      }
    }
  }
  std::ranges::stable_sort(probes, {},
                           [](const Probe& probe) { return probe.series.gemm->shape.flops(); });
  return probes;
}

std::vector<Probe> row_probes(const Problem& shape, const Crew& crew, std::int64_t largest) {
  constexpr std::int64_t smallest = 256 << 10;
  constexpr std::int64_t growth = 8;
  const std::int64_t width = std::int64_t{shape.q_heads} * shape.head_dim;
  std::vector<Probe> probes;
  for (std::int64_t bytes = smallest; bytes <= std::max(largest, smallest); bytes *= growth) {
    for (const RowFunction& function : row_functions()) {
      const RowWork work{.function = function,
                         .rows = std::max<std::int64_t>(1, bytes / (4 * width)),
                         .width = width};
      Series series = probe_labels("layer", to_string(function), crew.active);
      series.size = static_cast<double>(kernel_of(work, shape).touched());
      probes.push_back({.series = std::move(series), .work = everybodys(work, crew)});
    }
  }
  return probes;
}

}  // namespace spp::runtime
