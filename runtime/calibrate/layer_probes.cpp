#include "runtime/calibrate/layer_probes.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace spp::runtime {
namespace {

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

}  // namespace

Buffer LayerOperand::buffer(BufferRole role) const {
  const bool is_input = role == BufferRole::input;
  return {.name = "operand",
          .tensor = ref.tensor,
          .role = role,
          .dtype = dtype,
          .tokens = rows,
          .heads = heads,
          .width = width,
          .label = ref.label,
          .head_range = is_input ? HeadRange{.begin = 0, .end = heads} : HeadRange(),
          .tile = is_input ? TokenSet(TokenRange{.begin = 0, .count = rows}) : TokenSet()};
}

OpBody LayerKernel::on(const BufferList& read, const BufferList& written, int definition) const {
  const TokenSet all(TokenRange{.begin = 0, .count = tokens});
  return std::visit(Overloaded{[&](GemmKind kind) -> OpBody {
                                 return Gemm{.kind = kind,
                                             .definition = definition,
                                             .a = read.ids()[0],
                                             .b = read.ids()[1],
                                             .c = written.ids()[0],
                                             .tokens = all};
                               },
                               [&](const RowFunction& function) -> OpBody {
                                 return RowKernel{
                                     .definition = definition,
                                     .backward = function.backward,
                                     .reads = read,
                                     .writes = written,
                                     .tokens = all,
                                     .slots = function.function == LayerFunction::expert_swiglu};
                               }},
                    what);
}

std::int64_t LayerKernel::touched() const {
  std::vector<Buffer> buffers;
  const auto ids_of = [&](const std::vector<LayerOperand>& operands) {
    BufferList ids;
    for (const LayerOperand& operand : operands) {
      ids.push_back(BufferId(buffers.size()));
      buffers.push_back(operand.buffer(BufferRole::scratch));
    }
    return ids;
  };
  const BufferList read = ids_of(reads);
  const BufferList written = ids_of(writes);
  const Problem problem;  // of which these kernels have nothing
  return touched_bytes(std::get<Kernel>(on(read, written, 0)),
                       {.problem = &problem, .buffers = buffers, .rank = Rank(0)})
      .value();
}

LayerKernel kernel_of(const GemmBlock& gemm) {
  const LinearShape linear = linear_of(gemm.kind, gemm.shape);
  LayerKernel kernel;
  kernel.what = gemm.kind;
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
  std::vector<Probe> probes;
  for (std::int64_t bytes = smallest; bytes <= std::max(largest, smallest); bytes *= growth) {
    for (const RowFunction& function : row_functions()) {
      const RowWork work = work_of(function, bytes, shape);
      Series series = probe_labels("layer", to_string(function), crew.active);
      series.size = static_cast<double>(kernel_of(work, shape).touched());
      probes.push_back({.series = std::move(series), .work = everybodys(work, crew)});
    }
  }
  return probes;
}

}  // namespace spp::runtime
