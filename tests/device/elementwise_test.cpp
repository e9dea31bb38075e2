// The device's kernels against those of the host, which are tested against their definitions. Both
// compute in fp32 from the same numbers of size 1 with a few roundings, so they differ by at most
// one rounding of the result's type and some of fp32: tolerance 2 (u + 16 u32).
#include "runtime/kernels/elementwise.hpp"

#include "runtime/device/cuda/kernels.hpp"
#include "tests/device/device.hpp"
#include "tests/support/catch.hpp"

namespace spp::test {
namespace {

using namespace spp::runtime;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr double u32 = 0x1p-24;

double tolerance(DType result) { return 2 * (unit_of(result) + 16 * u32); }

/// With and without vectors of 8, and several pieces a row.
const std::vector<Shape> shapes = {{3, 2, 2, 128}, {5, 1, 3, 37}, {2, 2, 1, 1032}, {7, 1, 2, 8}};

std::vector<double> fetched(const OnDevice& there, HostTensor& host) {
  there.fetch();
  return host.values();
}

void set_lse(HostTensor& lse, std::mt19937& random) {
  lse.randomize(random);
  const std::vector<float> special = {-infinity, 30, -200, 0, 500};
  for (std::int64_t i = 0; i < lse.size(); ++i) {
    if (random() % 2 == 0) {
      lse.set(i, special[random() % special.size()]);
    }
  }
}

}  // namespace

TEST_CASE("a device's row_dot is the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(1);
  for (const Shape& shape : shapes) {
    const DType type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
    const DType other = GENERATE(DType::fp32, DType::bf16);
    HostTensor out = random_tensor(type, shape, random);
    HostTensor d_out = random_tensor(other, shape, random);
    const Shape scalars{shape.count, shape.batch, shape.heads, 1};
    HostTensor expected(DType::fp32, scalars);
    HostTensor delta(DType::fp32, scalars);
    row_dot(out.rows(), d_out.rows(), expected.rows());
    const OnDevice a(out, stream);
    const OnDevice b(d_out, stream);
    const OnDevice c(delta, stream);
    cuda::row_dot(a.rows(), b.rows(), c.rows(), stream.get());
    // A sum of `width` products of at most 1, in another order.
    CHECK(distance(fetched(c, delta), expected.values()) <= shape.width * shape.width * u32);
  }
}

TEST_CASE("a device's merge is the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(2);
  const bool initial = GENERATE(false, true);
  const DType type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  const DType part_type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  for (const Shape& shape : shapes) {
    const Shape scalars{shape.count, shape.batch, shape.heads, 1};
    HostTensor out = random_tensor(type, shape, random);
    HostTensor part = random_tensor(part_type, shape, random);
    HostTensor lse(DType::fp32, scalars);
    HostTensor part_lse(DType::fp32, scalars);
    set_lse(lse, random);
    set_lse(part_lse, random);
    const OnDevice a(out, stream);
    const OnDevice b(lse, stream);
    const OnDevice c(part, stream);
    const OnDevice d(part_lse, stream);
    merge(out.rows(), lse.rows(), part.rows(), part_lse.rows(), initial);
    const std::vector<double> expected = out.values();
    const std::vector<double> expected_lse = lse.values();
    cuda::merge(a.rows(), b.rows(), c.rows(), d.rows(), initial, stream.get());
    CHECK(distance(fetched(a, out), expected) <= tolerance(type));
    CHECK(distance(fetched(b, lse), expected_lse) <= 500 * 2 * u32);
  }
}

TEST_CASE("a device's rescale is the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(3);
  const DType type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  const DType scaled_type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  for (const Shape& shape : shapes) {
    const Shape scalars{shape.count, shape.batch, shape.heads, 1};
    HostTensor out = random_tensor(type, shape, random);
    HostTensor gathered(DType::fp32, {3 * shape.count, shape.batch, shape.heads, 1});
    set_lse(gathered, random);
    HostTensor lse(DType::fp32, scalars);
    for (std::int64_t i = 0; i < lse.size(); ++i) {
      lse.set(i, gathered.at(lse.size() + i));  // the second of three members
    }
    HostTensor scaled(scaled_type, shape);
    HostTensor global(DType::fp32, scalars);
    rescale(out.rows(), lse.rows(), gathered.rows(), scaled.rows(), global.rows());
    const std::vector<double> expected = scaled.values();
    const std::vector<double> expected_lse = global.values();
    const OnDevice a(out, stream);
    const OnDevice b(lse, stream);
    const OnDevice c(gathered, stream);
    const OnDevice d(scaled, stream);
    const OnDevice e(global, stream);
    cuda::fill(d.rows(), 7, stream.get());
    cuda::rescale(a.rows(), b.rows(), c.rows(), d.rows(), e.rows(), stream.get());
    CHECK(distance(fetched(d, scaled), expected) <= tolerance(scaled_type));
    CHECK(distance(fetched(e, global), expected_lse) <= 500 * 2 * u32);
  }
}

TEST_CASE("a device's sink and its gradient are the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(5);
  const DType type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  for (const Shape& shape : shapes) {
    HostTensor out = random_tensor(type, shape, random);
    HostTensor lse(DType::fp32, {shape.count + 2, shape.batch, shape.heads, 1});
    HostTensor sinks = random_tensor(type, {shape.heads, 1, 1, 1}, random);
    set_lse(lse, random);
    const OnDevice a(out, stream);
    const OnDevice b(lse, stream);
    const OnDevice c(sinks, stream);
    sink({.out = out.rows(), .lse = lse.rows(), .sinks = sinks.rows(), .first = 2});
    const std::vector<double> expected = out.values();
    const std::vector<double> expected_lse = lse.values();
    cuda::sink({.out = a.rows(), .lse = b.rows(), .sinks = c.rows(), .first = 2}, stream.get());
    CHECK(distance(fetched(a, out), expected) <= tolerance(type));
    CHECK(distance(fetched(b, lse), expected_lse) <= 500 * 2 * u32);

    HostTensor delta =
        random_tensor(DType::fp32, {lse.rows().count, shape.batch, shape.heads, 1}, random);
    HostTensor d_sinks(DType::fp32, {shape.heads, 1, 1, 1});
    const OnDevice d(delta, stream);
    const OnDevice e(d_sinks, stream);
    sink_backward({.lse = lse.rows(),
                   .delta = delta.rows(),
                   .sinks = sinks.rows(),
                   .d_sinks = d_sinks.rows()});
    const std::vector<double> gradients = d_sinks.values();
    cuda::sink_backward(
        {.lse = b.rows(), .delta = d.rows(), .sinks = c.rows(), .d_sinks = e.rows()}, stream.get());
    // Terms of at most 1, whose lse has the error above, in another order.
    const std::size_t each = delta.size() / static_cast<std::size_t>(shape.heads);
    const auto terms = static_cast<double>(each);
    CHECK(distance(fetched(e, d_sinks), gradients) <= terms * (terms + 500 * 2) * u32);
  }
}

TEST_CASE("a device's accumulate and fill are the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(4);
  const bool initial = GENERATE(false, true);
  const DType type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  const DType part_type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  for (const Shape& shape : shapes) {
    HostTensor sum = random_tensor(type, shape, random);
    HostTensor part = random_tensor(part_type, shape, random);
    const OnDevice a(sum, stream);
    const OnDevice b(part, stream);
    accumulate(sum.rows(), part.rows(), initial);
    const std::vector<double> expected = sum.values();
    cuda::accumulate(a.rows(), b.rows(), initial, stream.get());
    CHECK(fetched(a, sum) == expected);
    const float value = initial ? 0 : -infinity;
    cuda::fill(a.rows(), value, stream.get());
    CHECK(fetched(a, sum) == std::vector<double>(expected.size(), value));
  }
}

TEST_CASE("projected rows have the sums that delta says") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(8);
  for (const Shape& shape : shapes) {
    HostTensor d_out = random_tensor(DType::fp32, shape, random);
    for (int d = 0; d < shape.width; ++d) {
      d_out.set(d, 0);  // the first row
    }
    HostTensor delta =
        random_tensor(DType::fp32, {shape.count, shape.batch, shape.heads, 1}, random);
    HostTensor out(DType::fp32, shape);
    const OnDevice a(d_out, stream);
    const OnDevice b(delta, stream);
    const OnDevice c(out, stream);
    cuda::project(a.rows(), b.rows(), c.rows(), stream.get());
    c.fetch();
    HostTensor sums(DType::fp32, {shape.count, shape.batch, shape.heads, 1});
    row_dot(out.rows(), d_out.rows(), sums.rows());
    std::vector<double> expected = delta.values();
    expected.front() = 0;
    CHECK(distance(sums.values(), expected) <= shape.width * 4 * u32);
  }
}

TEST_CASE("a device moves boxes of heads and rows as the host does") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(5);
  const bool add = GENERATE(false, true);
  const DType type = GENERATE(DType::fp32, DType::bf16);
  const DType from_type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  struct Move {
    int from_heads, to_heads, heads, from_first, to_first;
    std::int64_t from_step, to_step;
  };
  for (const int width : {128, 37, 1}) {
    for (const Move& m :
         {Move{4, 4, 4, 0, 0, 1, 1}, Move{4, 2, 2, 1, 0, 1, 1}, Move{2, 6, 2, 0, 3, 1, 1},
          Move{3, 3, 3, 0, 0, 2, 1}, Move{4, 8, 3, 1, 2, 1, 3}}) {
      constexpr std::int64_t rows = 5;
      constexpr std::int64_t batch = 2;
      HostTensor from =
          random_tensor(from_type, {rows * m.from_step, batch, m.from_heads, width}, random);
      HostTensor to = random_tensor(type, {rows * m.to_step, batch, m.to_heads, width}, random);
      const OnDevice a(from, stream);
      const OnDevice b(to, stream);
      const auto box = [&](std::byte* data, DType dtype, int row_heads, int first,
                           std::int64_t step) {
        return Box{.data = data + std::int64_t{first} * width * size_of(dtype),
                   .dtype = dtype,
                   .row_heads = row_heads,
                   .row_step = step};
      };
      move(box(from.rows().data, from_type, m.from_heads, m.from_first, m.from_step),
           box(to.rows().data, type, m.to_heads, m.to_first, m.to_step), rows, batch, m.heads,
           width, add);
      const std::vector<double> expected = to.values();
      cuda::move(box(a.rows().data, from_type, m.from_heads, m.from_first, m.from_step),
                 box(b.rows().data, type, m.to_heads, m.to_first, m.to_step), rows, batch, m.heads,
                 width, add, stream.get());
      CHECK(fetched(b, to) == expected);
    }
  }
}

TEST_CASE("a sum of many parts is added up in fp32 and rounded once") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(6);
  const DType from = GENERATE(DType::fp32, DType::bf16);
  const DType to = GENERATE(DType::fp32, DType::bf16);
  for (const int parts : {1, 3, 64}) {
    const Shape shape{3, 1, 2, GENERATE(128, 37)};
    std::vector<HostTensor> tensors;
    for (int p = 0; p < parts; ++p) {
      tensors.push_back(random_tensor(from, shape, random));
    }
    std::vector<OnDevice> there;
    std::vector<const std::byte*> addresses;
    HostTensor result(to, shape);
    std::vector<double> expected(static_cast<std::size_t>(result.size()));
    for (HostTensor& tensor : tensors) {
      there.emplace_back(tensor, stream);
      addresses.push_back(there.back().rows().data);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] += tensor.at(static_cast<std::int64_t>(i));
      }
    }
    const OnDevice sum(result, stream);
    cuda::sum({.parts = addresses,
               .from = from,
               .to = sum.rows().data,
               .to_type = to,
               .count = result.size()},
              stream.get());
    CHECK(distance(fetched(sum, result), expected) <= parts * (unit_of(to) + parts * u32));
  }
}

TEST_CASE("a stream is held until the time has passed") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  const cuda::DeviceBuffer clock(sizeof(std::uint64_t));
  auto* at = reinterpret_cast<std::uint64_t*>(clock.data());
  const cuda::Event before(cuda::EventUse::time);
  const cuda::Event after(cuda::EventUse::time);
  cuda::stamp(at, stream.get());  // the first launch may load the kernel
  cuda::hold_until(at, Seconds(1e-6), stream.get());
  before.record(stream.get());
  cuda::stamp(at, stream.get());
  cuda::hold_until(at, Seconds(5e-3), stream.get());
  after.record(stream.get());
  stream.synchronize();
  CHECK(cuda::between(before, after).count() >= 4.9e-3);
}

}  // namespace spp::test
