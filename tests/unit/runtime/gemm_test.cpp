// GEMMs of all back ends against sums in fp64. All inputs are of size 1 and are read as they are
// rounded. A kernel sums in fp32 and rounds its result once: an element may be off by one rounding
// of the result's type, and for each product that it sums by one of fp32 of the sum of their sizes.
#include "base/error.hpp"
#include "runtime/kernels/attention.hpp"
#include "runtime/kernels/layer.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/runtime/tensors.hpp"

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

struct GemmCase {
  GemmShape shape;
  DType in = DType::fp32, right = DType::fp32, out = DType::fp32;
};

/// Rows of a matrix: of two sequences where that goes, columns in three heads where that goes.
Shape shape_of(std::int64_t rows, std::int64_t columns) {
  const std::int64_t batch = rows > 0 && rows % 2 == 0 ? 2 : 1;
  const int heads = columns > 0 && columns % 3 == 0 ? 3 : 1;
  return {rows / batch, batch, heads, static_cast<int>(columns) / heads};
}

struct Product {
  std::vector<double> sum;
  double largest = 0;  // sum of |a| |b|, of any element
};

Product product(HostTensor& a, HostTensor& b, const GemmShape& s, GemmKind kind) {
  const std::vector<double> left = a.values();
  const std::vector<double> right = b.values();
  Product result{.sum = std::vector<double>(static_cast<std::size_t>(s.m * s.n))};
  std::size_t next = 0;
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      double most = 0;
      for (std::int64_t l = 0; l < s.k; ++l) {
        const std::int64_t of_a = kind == GemmKind::weight_gradient ? l * s.m + i : i * s.k + l;
        const std::int64_t of_b = kind == GemmKind::input_gradient ? j * s.k + l : l * s.n + j;
        const double term =
            left[static_cast<std::size_t>(of_a)] * right[static_cast<std::size_t>(of_b)];
        result.sum[next] += term;
        most += std::abs(term);
      }
      ++next;
      result.largest = std::max(result.largest, most);
    }
  }
  return result;
}

constexpr auto all_kinds = {GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient};

void check_gemm(const AttentionBackend& backend, const GemmCase& c, GemmKind kind) {
  INFO(backend.name << ", " << c.shape.m << " x " << c.shape.n << " x " << c.shape.k << ", kind "
                    << static_cast<int>(kind) << ", " << to_string(c.in) << " "
                    << to_string(c.right) << " " << to_string(c.out));
  const GemmShape& s = c.shape;
  std::mt19937 random(3);
  const bool a_flipped = kind == GemmKind::weight_gradient;
  const bool b_flipped = kind == GemmKind::input_gradient;
  HostTensor a = random_tensor(c.in, a_flipped ? shape_of(s.k, s.m) : shape_of(s.m, s.k), random);
  HostTensor b =
      random_tensor(c.right, b_flipped ? shape_of(s.n, s.k) : shape_of(s.k, s.n), random);
  HostTensor to = random_tensor(c.out, shape_of(s.m, s.n), random);
  const std::vector<double> before = to.values();
  Product truth = product(a, b, s, kind);
  // The reference rounds only to fp32 and to the type.
  const double depth = backend.name == "reference" ? 1 : static_cast<double>(s.k) + 1;
  const auto check = [&] {
    const double limit =
        unit_of(c.out) * magnitude(truth.sum) + depth * unit_of(DType::fp32) * (truth.largest + 1);
    CHECK(distance(to.values(), truth.sum) <= limit);
  };
  const std::unique_ptr<AttentionKernels> kernels = backend.make();
  kernels->gemm({.a = a.rows(), .b = b.rows(), .c = to.rows(), .kind = kind}, {});
  check();
  to.set(before);
  kernels->gemm({.a = a.rows(), .b = b.rows(), .c = to.rows(), .kind = kind, .add = true}, {});
  for (std::size_t i = 0; i < before.size(); ++i) {
    truth.sum[i] += before[i];
  }
  check();
}

void check_gemms(const GemmCase& c) {
  for (const AttentionBackend* backend : attention_kernels::all()) {
    if (backend->why_not(c.in).empty()) {
      for (const GemmKind kind : all_kinds) {
        check_gemm(*backend, c, kind);
      }
    }
  }
}

}  // namespace

TEST_CASE("a GEMM is the sum of products, of all types and of any mixture") {
  const auto [in, right, out] =
      GENERATE(table<DType, DType, DType>({{DType::fp32, DType::fp32, DType::fp32},
                                           {DType::bf16, DType::bf16, DType::bf16},
                                           {DType::bf16, DType::bf16, DType::fp32},
                                           {DType::fp16, DType::fp16, DType::fp16},
                                           {DType::fp16, DType::fp16, DType::fp32},
                                           {DType::bf16, DType::fp32, DType::fp16}}));
  check_gemms({.shape = {.m = 33, .n = 21, .k = 47}, .in = in, .right = right, .out = out});
  check_gemms({.shape = {.m = 1, .n = 1, .k = 1}, .in = in, .right = right, .out = out});
}

TEST_CASE("a GEMM of several blocks in every direction is the sum of products") {
  const DType type = GENERATE(DType::fp32, DType::bf16);
  check_gemms({.shape = {.m = 130, .n = 7, .k = 517}, .in = type, .right = type});
  check_gemms({.shape = {.m = 5, .n = 515, .k = 517}, .in = type, .right = type});
}

TEST_CASE("a GEMM without rows changes nothing, without depth it is zero") {
  for (const AttentionBackend* backend : attention_kernels::all()) {
    if (backend->why_not(DType::fp32).empty()) {
      for (const GemmKind kind : all_kinds) {
        check_gemm(*backend, {.shape = {.m = 0, .n = 3, .k = 4}}, kind);
        check_gemm(*backend, {.shape = {.m = 4, .n = 0, .k = 3}}, kind);
        check_gemm(*backend, {.shape = {.m = 4, .n = 3, .k = 0}}, kind);
      }
    }
  }
}

TEST_CASE("a GEMM that takes long polls meanwhile") {
  std::mt19937 random(5);
  HostTensor a = random_tensor(DType::fp32, {256, 1, 1, 2048}, random);
  HostTensor b = random_tensor(DType::fp32, {2048, 1, 1, 1024}, random);
  HostTensor c(DType::fp32, {256, 1, 1, 1024});
  for (const AttentionBackend* backend : attention_kernels::all()) {
    if (backend->why_not(DType::fp32).empty()) {
      INFO(backend->name);
      int polls = 0;
      backend->make()->gemm({.a = a.rows(), .b = b.rows(), .c = c.rows()}, [&] { ++polls; });
      CHECK(polls > 1);
    }
  }
}

TEST_CASE("a GEMM of matrices that do not fit is refused") {
  HostTensor a(DType::fp32, {3, 1, 1, 4});
  HostTensor b(DType::fp32, {4, 1, 1, 5});
  HostTensor c(DType::fp32, {3, 1, 1, 5});
  const auto kernels = attention_kernels::by_name("reference", "test").make();
  for (const GemmKind kind : {GemmKind::input_gradient, GemmKind::weight_gradient}) {
    CHECK_THROWS_AS(kernels->gemm({.a = a.rows(), .b = b.rows(), .c = c.rows(), .kind = kind}, {}),
                    InternalError);
  }
}
