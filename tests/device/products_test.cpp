// The device's products against those of the host, which are tested against the fp64 reference.
// Both sum in fp32, in another order, and round once or twice.
#include "runtime/kernels/products.hpp"

#include "runtime/device/cuda/product_kernels.hpp"
#include "runtime/device/cuda/seen_rows.hpp"
#include "tests/device/device.hpp"
#include "tests/support/catch.hpp"

namespace spp::test {
namespace {

using namespace spp::runtime;

constexpr std::int64_t rows = 150;  // chunks of 64, the last one not full
constexpr int dim = 24;
const Shape q_shape{rows, 2, 4, dim};
const Shape k_shape{rows, 2, 2, dim};
const Shape pairs_shape{rows, 2, 4, rows};
const Shape state_shape{1, 2, 2, dim* dim};

}  // namespace

TEST_CASE("a device's products with whole rows are the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(5);
  const DType type = GENERATE(DType::fp32, DType::bf16);
  Both q(type, q_shape, random, stream);
  Both k(type, k_shape, random, stream);
  Both d_out(type, q_shape, random, stream);
  Both s(DType::fp32, pairs_shape, random, stream);
  Both p(type, pairs_shape, random, stream);
  Both d_s(type, pairs_shape, random, stream);
  Both out(DType::fp32, q_shape, random, stream);
  Both d_k(DType::fp32, k_shape, random, stream);
  const TokenSet all({.begin = 0, .count = rows});
  const Visibility visible{
      .q_tokens = all,
      .k_tokens = all,
      .mask = {.kind = GENERATE(MaskKind::causal, MaskKind::full), .document_ends = {40, 41, rows}},
      .seq = rows - 3};
  const std::vector<cuda::SeenKeyRows> seen = cuda::seen_rows(visible);
  const cuda::DeviceBuffer table(seen.size() * sizeof(cuda::SeenKeyRows));
  cuda::copy(table.data(), reinterpret_cast<const std::byte*>(seen.data()),
             seen.size() * sizeof(cuda::SeenKeyRows), stream.get());
  constexpr float scale = 0.25F;

  scores(q.host.rows(), k.host.rows(), s.host.rows(), 0, {});
  softmax(s.host.rows(), p.host.rows(), visible, scale, {});
  softmax_backward(p.host.rows(), s.host.rows(), d_s.host.rows(), scale, {});
  weigh(p.host.rows(), k.host.rows(), out.host.rows(), 0, false, {});
  weigh_back(p.host.rows(), d_out.host.rows(), d_k.host.rows(), 0, {});

  const cudaStream_t there = stream.get();
  cuda::scores(q.device.rows(), k.device.rows(), s.device.rows(), 0, there);
  cuda::softmax(s.device.rows(), p.device.rows(),
                reinterpret_cast<const cuda::SeenKeyRows*>(table.data()), scale, there);
  cuda::softmax_backward(p.device.rows(), s.device.rows(), d_s.device.rows(), scale, there);
  cuda::weigh(p.device.rows(), k.device.rows(), out.device.rows(), 0, false, there);
  cuda::weigh_back(p.device.rows(), d_out.device.rows(), d_k.device.rows(), 0, there);
  s.check(DType::fp32);
  p.check(type);
  d_s.check(type);
  out.check(type);
  d_k.check(type);
}

TEST_CASE("a device's linear attention and states are the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(6);
  const DType type = GENERATE(DType::fp32, DType::bf16);
  Both q(type, q_shape, random, stream);
  Both k(type, k_shape, random, stream);
  Both v(type, k_shape, random, stream);
  Both d_out(type, q_shape, random, stream);
  Both out(type, q_shape, random, stream);
  Both d_q(type, q_shape, random, stream);
  Both d_k(type, k_shape, random, stream);
  Both d_v(type, k_shape, random, stream);
  Both state(DType::fp32, state_shape, random, stream);
  Both sum(DType::fp32, state_shape, random, stream);

  linear_forward(q.host.rows(), k.host.rows(), v.host.rows(), out.host.rows(), {});
  linear_backward({.q = q.host.rows(),
                   .k = k.host.rows(),
                   .v = v.host.rows(),
                   .d_out = d_out.host.rows(),
                   .d_q = d_q.host.rows(),
                   .d_k = d_k.host.rows(),
                   .d_v = d_v.host.rows()},
                  {});
  make_state(q.host.rows(), d_out.host.rows(), state.host.rows(), {});
  sum_states(state.host.rows(), sum.host.rows());
  apply_state(q.host.rows(), sum.host.rows(), out.host.rows(), {.add = true}, {});
  apply_state(v.host.rows(), sum.host.rows(), d_k.host.rows(), {.transposed = true}, {});

  constexpr std::int64_t chunk = 64;
  const cuda::DeviceBuffer memory(
      static_cast<std::size_t>(cuda::linear_bytes(k.device.rows(), chunk)));
  const cuda::LinearRoom room{.data = memory.data(), .chunk = chunk};
  const cudaStream_t there = stream.get();
  cuda::linear_forward(q.device.rows(), k.device.rows(), v.device.rows(), out.device.rows(), room,
                       there);
  cuda::linear_backward({.q = q.device.rows(),
                         .k = k.device.rows(),
                         .v = v.device.rows(),
                         .d_out = d_out.device.rows(),
                         .d_q = d_q.device.rows(),
                         .d_k = d_k.device.rows(),
                         .d_v = d_v.device.rows()},
                        room, there);
  cuda::make_state(q.device.rows(), d_out.device.rows(), state.device.rows(), there);
  cuda::sum_states(state.device.rows(), sum.device.rows(), there);
  cuda::apply_state(q.device.rows(), sum.device.rows(), out.device.rows(), {.add = true}, there);
  cuda::apply_state(v.device.rows(), sum.device.rows(), d_k.device.rows(), {.transposed = true},
                    there);
  state.check(DType::fp32);
  sum.check(DType::fp32);
  out.check(type);
  d_q.check(type);
  d_k.check(type);
  d_v.check(type);
}

}  // namespace spp::test
