// A layer's kernels as a calibration timed them: written, read, refused, and what they cost.
#include "machine/layer_kernels.hpp"

#include "base/error.hpp"
#include "base/numbers.hpp"
#include "machine/kernel_cost.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

using namespace spp;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

namespace {

const Numbers numbers("2026-01-31");

Json number(double value, std::string_view unit) {
  return numbers.quantity(value, unit, "test", 0.1);
}

/// 10 us + products at half the peak + A at 1 GB/s; norms of 2 us + bytes at 4 GB/s.
Json timed() {
  return layer_kernels_json({.gemms = {{.kind = GemmKind::weight_gradient,
                                        .startup = number(10, "us"),
                                        .efficiency = number(0.5, "fraction"),
                                        .a = number(1, "GB/s"),
                                        .b = {},
                                        .c = {}}},
                             .rows = {{{.function = LayerFunction::rms_norm, .backward = true},
                                       {.startup = number(2, "us"), .rate = number(4, "GB/s")}}}});
}

GpuSpec h100() {
  const Catalog& catalog = test::catalog();
  return catalog.gpu("h100", "test");
}

Seconds time_of(const GpuSpec& gpu, GemmKind kind, std::int64_t m, std::int64_t n, std::int64_t k) {
  const KernelCost cost(gpu, gpu.generation.attention);
  return cost.gemm({.m = m, .n = n, .k = k, .kind = kind}, DType::bf16);
}

std::string refusal_of_layer(const std::string& pointer, const Json& value) {
  Json json = timed();
  json[Json::json_pointer(pointer)] = value;
  return test::message_of<InputError>([&] { (void)read_layer_kernels(JsonView(json, "p.json")); });
}

}  // namespace

TEST_CASE("kernels of a layer survive being written and read") {
  const Json json = timed();
  const LayerKernelsSpec spec = read_layer_kernels(JsonView(json, "p.json"));
  REQUIRE(spec.gemms.size() == 1);
  const MeasuredGemmSpec& gemm = spec.gemms.at(GemmKind::weight_gradient);
  CHECK(gemm.startup.value.count() == Approx(10e-6));
  CHECK(gemm.efficiency.value == 0.5);
  CHECK(gemm.a->value.value() == Approx(1e9));
  CHECK_FALSE(gemm.b.has_value());
  CHECK(spec.rows.at({.function = LayerFunction::rms_norm, .backward = true}).rate.value.value() ==
        Approx(4e9));
  CHECK(spec.rows.size() == 1);
  CHECK(layer_kernels_json({}).is_null());
}

TEST_CASE("wrong kernels of a layer are refused with their key") {
  CHECK_THAT(refusal_of_layer("/gemms", 1), ContainsSubstring("did you mean 'gemm'?"));
  CHECK_THAT(refusal_of_layer("/gemm/backward", 1),
             ContainsSubstring("gemm: unknown key 'backward'"));
  CHECK_THAT(refusal_of_layer("/gemm/weight_gradient/efficiency", number(1.5, "fraction")),
             ContainsSubstring("gemm.weight_gradient.efficiency"));
  CHECK_THAT(refusal_of_layer("/rows/rmsnorm", 1),
             ContainsSubstring("rows.rmsnorm: is no row-wise function of a layer (did you mean "
                               "'rms_norm'?)"));
  CHECK_THAT(refusal_of_layer("/rows/add_backward", 1),
             ContainsSubstring("is no row-wise function"));
}

TEST_CASE("a kind of GEMM that was timed costs what it did, others what the generation says") {
  GpuSpec gpu = h100();
  const Seconds forward = time_of(gpu, GemmKind::forward, 4096, 4096, 4096);
  const Json json = timed();
  gpu.generation.layer = read_layer_kernels(JsonView(json, "p.json"));
  CHECK(time_of(gpu, GemmKind::forward, 4096, 4096, 4096) == forward);
  // As many whole tiles as SMs: 10 us, products at half the peak, A's 2 bytes a number at 1 GB/s.
  const std::int64_t tile = gpu.generation.gemm_tile.value;
  const std::int64_t m = tile * 12;
  const std::int64_t n = tile * 11;
  const double products = 2.0 * static_cast<double>(m * n) * 64 / (0.5 * 989.4e12);
  CHECK(time_of(gpu, GemmKind::weight_gradient, m, n, 64).count() ==
        Approx(10e-6 + products + 2.0 * static_cast<double>(m) * 64 / 1e9).epsilon(1e-3));
}

TEST_CASE("GEMMs that were timed never fall with size and never beat the peak") {
  GpuSpec gpu = h100();
  const Json json = timed();
  gpu.generation.layer = read_layer_kernels(JsonView(json, "p.json"));
  for (const std::int64_t size : {1, 16, 129, 1024, 4096}) {
    const auto at = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
      return time_of(gpu, GemmKind::weight_gradient, m, n, k);
    };
    const Seconds time = at(size, size, size);
    CHECK(at(size + 7, size, size) >= time);
    CHECK(at(size, size + 7, size) >= time);
    CHECK(at(size, size, size + 7) >= time);
    const GemmShape shape{.m = size, .n = size, .k = size};
    CHECK(time >= shape.flops() / matrix_rate(gpu, DType::bf16, "test"));
  }
}

TEST_CASE("a row-wise function that was timed costs what it did, others stream") {
  GpuSpec gpu = h100();
  const Json json = timed();
  gpu.generation.layer = read_layer_kernels(JsonView(json, "p.json"));
  const KernelCost cost(gpu, gpu.generation.attention);
  const RowFunction backward{.function = LayerFunction::rms_norm, .backward = true};
  const RowFunction forward{.function = LayerFunction::rms_norm};
  CHECK(cost.times(backward));
  CHECK_FALSE(cost.times(forward));
  CHECK(cost.row_kernel(backward, Bytes(4'000'000)).count() == Approx(1.002e-3));
  CHECK(cost.row_kernel(forward, Bytes(4'000'000)) == cost.memory_bound(Bytes(4'000'000)));
  CHECK(cost.gemm_spread() == Approx(0.1));
}

TEST_CASE("a bias is added by its product, and its gradient reads what the product reads again") {
  const GpuSpec gpu = h100();
  const KernelCost cost(gpu, gpu.generation.attention);
  const Problem problem{.seq = 512, .q_heads = 1, .kv_heads = 1, .head_dim = 1};
  const auto value = [](std::int64_t tokens, int width) {
    Buffer buffer;
    buffer.tensor = Tensor::value;
    buffer.tokens = tokens;
    buffer.heads = 1;
    buffer.width = width;
    return buffer;
  };
  const std::vector<Buffer> buffers{value(512, 256), value(512, 128), value(256, 128),
                                    value(128, 1)};
  const Shapes shapes{.problem = &problem, .buffers = buffers, .rank = Rank(0)};
  const auto time = [&](GemmKind kind, BufferList bias) {
    const BufferId x(0);
    const BufferId y(1);
    const BufferId w(2);
    Gemm op{.kind = kind,
            .a = x,
            .b = w,
            .c = y,
            .bias = bias,
            .tokens = TokenSet({.begin = 0, .count = 512})};
    if (kind == GemmKind::weight_gradient) {
      std::swap(op.b, op.c);
    }
    return cost.of(op, shapes);
  };
  const BufferList bias{BufferId(3)};
  CHECK(time(GemmKind::forward, bias) == time(GemmKind::forward, {}));
  CHECK(time(GemmKind::weight_gradient, bias) ==
        time(GemmKind::weight_gradient, {}) + cost.memory_bound(Bytes(512 * 128 * 2)));
}

TEST_CASE("the optimizer of profiles of earlier versions is the one that they derived") {
  Json json = timed();
  json["optimizer"] = {{"startup", number(3, "us")}, {"rate", number(8, "GB/s")}};
  const LayerKernelsSpec spec = read_layer_kernels(JsonView(json, "p.json"));
  CHECK(spec.rows.at({.function = LayerFunction::adam}).rate.value.value() == Approx(8e9));
  json["rows"]["adam"] = {{"startup", number(1, "us")}, {"rate", number(5, "GB/s")}};
  const LayerKernelsSpec both = read_layer_kernels(JsonView(json, "p.json"));
  CHECK(both.rows.at({.function = LayerFunction::adam}).rate.value.value() == Approx(5e9));
}
