// The device's kernels of a layer's linear half against those of the host, which are tested against
// their definitions. Both compute in fp32 from the same numbers, sum in another order and round
// once.
#include "runtime/device/cuda/layer_kernels.hpp"

#include "runtime/device/cuda/attention.hpp"
#include "runtime/device/cuda/cublas/gemm.hpp"
#include "runtime/device/cuda/latent_kernels.hpp"
#include "runtime/kernels/attention.hpp"
#include "runtime/kernels/cudnn/sdpa.hpp"
#include "tests/device/device.hpp"
#include "tests/support/catch.hpp"

namespace spp::test {
namespace {

using namespace spp::runtime;

/// Back ends that can multiply here, each with its GEMM.
std::vector<const cuda::DeviceAttentionBackend*> backends() {
  std::vector<const cuda::DeviceAttentionBackend*> all;
  for (const cuda::DeviceAttentionBackend* backend : cuda::device_attention::all()) {
    const bool libraries = sdpa_why_not().empty() && cuda::cublas_why_not().empty();
    if (backend->name != "cudnn" || libraries) {
      all.push_back(backend);
    }
  }
  return all;
}

struct GemmCase {
  GemmShape shape;
  DType in = DType::fp32, right = DType::fp32, out = DType::fp32;
  GemmKind kind = GemmKind::forward;
  bool add = false;
};

Shape matrix(std::int64_t rows, std::int64_t columns) {
  return {rows, 1, 1, static_cast<int>(columns)};
}

void check_gemm(const cuda::DeviceAttentionBackend& backend, const GemmCase& c,
                const cuda::Stream& stream) {
  INFO(backend.name << ", " << c.shape.m << " x " << c.shape.n << " x " << c.shape.k << ", kind "
                    << static_cast<int>(c.kind) << ", " << to_string(c.in) << " "
                    << to_string(c.right) << " " << to_string(c.out) << (c.add ? ", added" : ""));
  const auto& [m, n, k] = c.shape;
  const bool a_flipped = c.kind == GemmKind::weight_gradient;
  const bool b_flipped = c.kind == GemmKind::input_gradient;
  std::mt19937 random(21);
  Both a(c.in, a_flipped ? matrix(k, m) : matrix(m, k), random, stream);
  Both b(c.right, b_flipped ? matrix(n, k) : matrix(k, n), random, stream);
  Both to(c.out, matrix(m, n), random, stream);
  const auto kernels = backend.make(nullptr);
  const GemmArgs there{.a = a.device.rows(),
                       .b = b.device.rows(),
                       .c = to.device.rows(),
                       .kind = c.kind,
                       .add = c.add};
  kernels->prepare(there, stream.get());
  to.device.send();  // preparing may have run it
  kernels->gemm(there, stream.get());
  attention_kernels::by_name("reference", "test")
      .make()
      ->gemm({.a = a.host.rows(),
              .b = b.host.rows(),
              .c = to.host.rows(),
              .kind = c.kind,
              .add = c.add},
             {});
  to.check(c.out);
}

}  // namespace

TEST_CASE("a device's GEMM is the host's, of all types and of any mixture") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  const auto [in, right, out] =
      GENERATE(table<DType, DType, DType>({{DType::fp32, DType::fp32, DType::fp32},
                                           {DType::bf16, DType::bf16, DType::bf16},
                                           {DType::bf16, DType::bf16, DType::fp32},
                                           {DType::fp16, DType::fp16, DType::fp16},
                                           {DType::bf16, DType::fp32, DType::fp16}}));
  const GemmKind kind =
      GENERATE(GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient);
  const bool add = GENERATE(false, true);
  for (const cuda::DeviceAttentionBackend* backend : backends()) {
    for (const GemmShape& shape :
         {GemmShape{.m = 33, .n = 21, .k = 47}, GemmShape{.m = 16, .n = 64, .k = 32},
          GemmShape{.m = 1, .n = 1, .k = 1}}) {
      check_gemm(*backend,
                 {.shape = shape, .in = in, .right = right, .out = out, .kind = kind, .add = add},
                 stream);
    }
  }
}

TEST_CASE("a device's GEMM without depth is zero, and without rows nothing") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  const GemmKind kind =
      GENERATE(GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient);
  for (const cuda::DeviceAttentionBackend* backend : backends()) {
    for (const bool add : {false, true}) {
      check_gemm(*backend, {.shape = {.m = 3, .n = 4, .k = 0}, .kind = kind, .add = add}, stream);
      check_gemm(*backend, {.shape = {.m = 0, .n = 4, .k = 3}, .kind = kind, .add = add}, stream);
    }
  }
}

TEST_CASE("a device's GEMM of few rows and long sums rounds once") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  const DType type = GENERATE(DType::bf16, DType::fp16);
  for (const cuda::DeviceAttentionBackend* backend : backends()) {
    check_gemm(*backend,
               {.shape = {.m = 2, .n = 16, .k = 16384}, .in = type, .right = type, .out = type},
               stream);
  }
}

namespace {

/// Ends after what is on a stream, also where a test ends early: it uses memory that goes away.
struct Finished {
  const cuda::Stream& stream;
  ~Finished() { cudaStreamSynchronize(stream.get()); }
};

}  // namespace

TEST_CASE("a device's GEMM takes rows from anywhere in memory") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(22);
  constexpr std::int64_t first = 3;  // rows that are left out
  Both a(DType::bf16, matrix(20, 7), random, stream);
  Both b(DType::bf16, matrix(7, 5), random, stream);
  Both c(DType::bf16, matrix(20, 5), random, stream);
  const auto rest = [](Rows rows) {
    rows.data += first * matrix_columns(rows) * size_of(rows.dtype);
    rows.count -= first;
    return rows;
  };
  for (const cuda::DeviceAttentionBackend* backend : backends()) {
    INFO(backend->name);
    const auto kernels = backend->make(nullptr);
    const Finished finished{stream};
    // Aligned as memory comes, then not at all.
    const GemmArgs whole{.a = a.device.rows(), .b = b.device.rows(), .c = c.device.rows()};
    const GemmArgs part{
        .a = rest(a.device.rows()), .b = b.device.rows(), .c = rest(c.device.rows())};
    kernels->prepare(whole, stream.get());
    kernels->prepare(part, stream.get());
    c.device.send();
    kernels->gemm(part, stream.get());
    attention_kernels::by_name("reference", "test")
        .make()
        ->gemm({.a = rest(a.host.rows()), .b = b.host.rows(), .c = rest(c.host.rows())}, {});
    c.check(DType::bf16);
  }
}

namespace {

enum class Norm : std::uint8_t { rms, layer };

}  // namespace

TEST_CASE("a device's norms and their gradients are the host's, every time alike") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(23);
  const Norm norm = GENERATE(Norm::rms, Norm::layer);
  const int weights = norm == Norm::layer ? 2 : 1;
  const auto [type, of_weight, of_gradient] =
      GENERATE(table<DType, DType, DType>({{DType::fp32, DType::fp32, DType::fp32},
                                           {DType::bf16, DType::bf16, DType::fp32},
                                           {DType::fp16, DType::fp32, DType::fp16}}));
  // With and without vectors of 8; several slices of rows, the last one not full; no rows.
  const Shape shape =
      GENERATE(Shape{3, 2, 2, 128}, Shape{75, 2, 3, 7}, Shape{2, 1, 1, 1032}, Shape{0, 1, 1, 8});
  const Shape of_weights{weights, 1, shape.heads, shape.width};
  Both x(type, shape, random, stream);
  Both weight(of_weight, of_weights, random, stream);
  Both y(type, shape, random, stream);
  Both statistics(DType::fp32, {shape.count, shape.batch, 1, weights}, random, stream);
  Both d_y(type, shape, random, stream);
  Both d_weight(of_gradient, of_weights, random, stream);
  const cuda::DeviceBuffer room(
      static_cast<std::size_t>(cuda::norm_backward_bytes(x.device.rows(), weight.device.rows())));
  constexpr float epsilon = 1e-3F;

  const auto args = [&](auto side) {
    return NormArgs{
        .x = side(x), .weight = side(weight), .y = side(y), .statistics = side(statistics)};
  };
  const auto backward_args = [&](auto side) {
    return NormBackwardArgs{.x = side(x),
                            .weight = side(weight),
                            .statistics = side(statistics),
                            .d_y = side(d_y),
                            .d_x = side(y),
                            .d_weight = side(d_weight)};
  };
  const auto here = [](Both& tensor) { return tensor.host.rows(); };
  const auto there = [](Both& tensor) { return tensor.device.rows(); };
  const auto backward_there = [&] {
    if (norm == Norm::rms) {
      cuda::rms_norm_backward(backward_args(there), room.data(), stream.get());
    } else {
      cuda::layer_norm_backward(backward_args(there), room.data(), stream.get());
    }
  };
  if (norm == Norm::rms) {
    rms_norm(args(here), epsilon);
    cuda::rms_norm(args(there), epsilon, stream.get());
  } else {
    layer_norm(args(here), epsilon);
    cuda::layer_norm(args(there), epsilon, stream.get());
  }
  y.check(type);
  statistics.check(DType::fp32);

  (norm == Norm::rms ? rms_norm_backward : layer_norm_backward)(backward_args(here));
  backward_there();
  y.check(type);
  d_weight.check(of_gradient);
  const std::vector<double> once = d_weight.host.values();
  backward_there();
  d_weight.device.fetch();
  CHECK(d_weight.host.values() == once);
}

TEST_CASE("a device's heads are split, turned and joined as the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(24);
  const auto [packed, apart] = GENERATE(table<DType, DType>(
      {{DType::fp32, DType::fp32}, {DType::bf16, DType::bf16}, {DType::fp16, DType::fp32}}));
  const double theta = GENERATE(0.0, 10000.0, 500000.0);
  const int dim = GENERATE(16, 6);
  const TokenSet positions =
      GENERATE(TokenSet({.begin = 3, .count = 2}, {.begin = 1000001, .count = 3}), TokenSet(),
               TokenSet({.begin = 1, .count = 4, .stride = 3}));
  const std::int64_t n = positions.count();
  Both qkv(packed, {n, 2, 1, 7 * dim}, random, stream);
  Both q(apart, {n, 2, 3, dim}, random, stream);
  Both k(apart, {n, 2, 2, dim}, random, stream);
  Both v(apart, {n, 2, 2, dim}, random, stream);
  const auto args = [&](auto side) {
    return SplitHeadsArgs{.qkv = side(qkv),
                          .q = side(q),
                          .k = side(k),
                          .v = side(v),
                          .positions = positions,
                          .theta = theta};
  };
  const auto here = [](Both& tensor) { return tensor.host.rows(); };
  const auto there = [](Both& tensor) { return tensor.device.rows(); };
  split_heads(args(here));
  cuda::split_heads(args(there), stream.get());
  q.check(apart);
  k.check(apart);
  v.check(apart);
  join_heads({.heads = args(here)});
  cuda::join_heads({.heads = args(there)}, nullptr, stream.get());
  qkv.check(packed);
}

TEST_CASE("a device's heads are normed, and gradients brought back through it, as the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(26);
  const auto [packed, apart, of_gradient] =
      GENERATE(table<DType, DType, DType>({{DType::fp32, DType::fp32, DType::fp32},
                                           {DType::bf16, DType::bf16, DType::fp32},
                                           {DType::fp16, DType::fp32, DType::fp16}}));
  const double theta = GENERATE(0.0, 10000.0);
  const int dim = GENERATE(16, 6);
  // Several slices of tokens, the last one not full; no rows.
  const TokenSet positions =
      GENERATE(TokenSet({.begin = 3, .count = 2}, {.begin = 1001, .count = 75}), TokenSet(),
               TokenSet({.begin = 1, .count = 4, .stride = 3}));
  const std::int64_t n = positions.count();
  Both x(packed, {n, 2, 1, 7 * dim}, random, stream);
  Both d_x(packed, {n, 2, 1, 7 * dim}, random, stream);
  Both q(apart, {n, 2, 3, dim}, random, stream);
  Both k(apart, {n, 2, 2, dim}, random, stream);
  Both v(apart, {n, 2, 2, dim}, random, stream);
  Both gain(packed, {2, 1, 1, dim}, random, stream);
  Both d_gain(of_gradient, {2, 1, 1, dim}, random, stream);
  const auto args = [&](auto side, Both& row) {
    return SplitHeadsArgs{.qkv = side(row),
                          .q = side(q),
                          .k = side(k),
                          .v = side(v),
                          .positions = positions,
                          .theta = theta,
                          .gain = side(gain),
                          .epsilon = 1e-3F};
  };
  const auto here = [](Both& tensor) { return tensor.host.rows(); };
  const auto there = [](Both& tensor) { return tensor.device.rows(); };
  const auto back = [&](auto side) {
    return JoinHeadsArgs{.heads = args(side, d_x), .x = side(x), .d_gain = side(d_gain)};
  };
  split_heads(args(here, x));
  cuda::split_heads(args(there, x), stream.get());
  q.check(apart);
  k.check(apart);
  v.check(apart);
  const cuda::DeviceBuffer room(
      static_cast<std::size_t>(cuda::join_heads_bytes(q.device.rows(), k.device.rows())));
  join_heads(back(here));
  cuda::join_heads(back(there), room.data(), stream.get());
  d_x.check(packed);
  d_gain.check(of_gradient);
  const std::vector<double> once = d_gain.host.values();
  cuda::join_heads(back(there), room.data(), stream.get());
  d_gain.device.fetch();
  CHECK(d_gain.host.values() == once);
}

TEST_CASE("a device makes heads of latents, and joins their gradients, as the host") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(27);
  const auto [in_rows, apart] = GENERATE(table<DType, DType>(
      {{DType::fp32, DType::fp32}, {DType::bf16, DType::bf16}, {DType::fp16, DType::fp32}}));
  const double theta = GENERATE(0.0, 10000.0);
  const TokenSet positions =
      GENERATE(TokenSet({.begin = 3, .count = 2}, {.begin = 1000001, .count = 3}), TokenSet(),
               TokenSet({.begin = 1, .count = 4, .stride = 3}));
  const std::int64_t n = positions.count();
  Both q_row(in_rows, {n, 2, 1, 3 * 10}, random, stream);
  Both kv_row(in_rows, {n, 2, 1, 3 * 11}, random, stream);
  Both position(in_rows, {n, 2, 1, 4}, random, stream);
  Both q(apart, {n, 2, 3, 10}, random, stream);
  Both k(apart, {n, 2, 3, 10}, random, stream);
  Both v(apart, {n, 2, 3, 5}, random, stream);
  const auto args = [&](auto side) {
    return LatentHeadsArgs{.q_row = side(q_row),
                           .kv_row = side(kv_row),
                           .position = side(position),
                           .q = side(q),
                           .k = side(k),
                           .v = side(v),
                           .positions = positions,
                           .theta = theta};
  };
  const auto here = [](Both& tensor) { return tensor.host.rows(); };
  const auto there = [](Both& tensor) { return tensor.device.rows(); };
  latent_heads(args(here));
  cuda::latent_heads(args(there), stream.get());
  q.check(apart);
  k.check(apart);
  v.check(apart);
  join_latent_heads(args(here));
  cuda::join_latent_heads(args(there), stream.get());
  q_row.check(in_rows);
  kv_row.check(in_rows);
  position.check(in_rows);
}

TEST_CASE("a device's activations and additions are the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(25);
  const auto [of_h, of_a] = GENERATE(table<DType, DType>(
      {{DType::fp32, DType::fp32}, {DType::bf16, DType::bf16}, {DType::fp16, DType::fp32}}));
  const Shape shape =
      GENERATE(Shape{3, 2, 2, 128}, Shape{5, 1, 3, 13}, Shape{0, 1, 1, 8}, Shape{1, 1, 1, 1032});
  const cudaStream_t there = stream.get();
  Both gate(of_h, shape, random, stream);
  Both up(of_h, shape, random, stream);
  Both d_gate(of_h, shape, random, stream);
  Both d_up(of_h, shape, random, stream);
  Both a(of_a, shape, random, stream);
  Both d_a(of_a, shape, random, stream);
  swiglu(gate.host.rows(), up.host.rows(), a.host.rows());
  cuda::swiglu(gate.device.rows(), up.device.rows(), a.device.rows(), there);
  a.check(of_a);
  swiglu_backward({.gate = gate.host.rows(),
                   .up = up.host.rows(),
                   .d_a = d_a.host.rows(),
                   .d_gate = d_gate.host.rows(),
                   .d_up = d_up.host.rows()});
  cuda::swiglu_backward({.gate = gate.device.rows(),
                         .up = up.device.rows(),
                         .d_a = d_a.device.rows(),
                         .d_gate = d_gate.device.rows(),
                         .d_up = d_up.device.rows()},
                        there);
  d_gate.check(of_h);
  d_up.check(of_h);

  Both x(of_h, shape, random, stream);
  Both d_x(of_h, shape, random, stream);
  gelu(x.host.rows(), a.host.rows());
  cuda::gelu(x.device.rows(), a.device.rows(), there);
  a.check(of_a);
  gelu_backward(x.host.rows(), d_a.host.rows(), d_x.host.rows());
  cuda::gelu_backward(x.device.rows(), d_a.device.rows(), d_x.device.rows(), there);
  d_x.check(of_h);

  // Over what is added.
  add(x.host.rows(), d_a.host.rows(), x.host.rows());
  cuda::add(x.device.rows(), d_a.device.rows(), x.device.rows(), there);
  x.check(of_h);
}

TEST_CASE("a device adds biases, and sums their gradients up, as the host does") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(29);
  const DType type = GENERATE(DType::fp32, DType::bf16);
  Both y(type, Shape{33, 2, 1, 19}, random, stream);
  Both bias(type, Shape{19, 1, 1, 1}, random, stream);
  Both d_bias(DType::fp32, Shape{19, 1, 1, 1}, random, stream);
  const auto gradient = [&](auto side) {
    return BiasGradientArgs{.d_y = side(y), .d_bias = side(d_bias)};
  };
  const auto sum = [&](auto side) { return BiasArgs{.y = side(y), .bias = side(bias)}; };
  cuda::bias_gradient(gradient(device_of), stream.get());
  cuda::add_bias(sum(device_of), stream.get());
  bias_gradient(gradient(host_of));
  add_bias(sum(host_of));
  y.check(type);
  d_bias.check(DType::fp32);
}

}  // namespace spp::test
