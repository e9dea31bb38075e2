// Against the definitions in docs/schedule.md in fp64. Everything is computed in fp32 from exactly
// stored inputs of size 1, with at most 4 roundings (u32 = 2^-24 each) beside exp and log (a few
// u32), and rounded once to the type of the result: tolerance u + 16 u32.
#include "runtime/kernels/elementwise.hpp"

#include "tests/support/catch.hpp"
#include "tests/unit/runtime/tensors.hpp"

#include <vector>

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr double u32 = 0x1p-24;

double tolerance(DType result) { return unit_of(result) + 16 * u32; }

DType any_type() { return GENERATE(DType::fp32, DType::bf16, DType::fp16); }
DType other_type() { return GENERATE(DType::fp32, DType::bf16, DType::fp16); }

/// Rows of 1037 numbers: longer than a piece, and no multiple of a vector.
constexpr Shape rows_of_numbers{3, 2, 2, 1037};
constexpr Shape rows_of_scalars{3, 2, 2, 1};
constexpr std::int64_t width = rows_of_numbers.width;
constexpr std::int64_t scalars = 12;

}  // namespace

TEST_CASE("row_dot is the sum of products over the width") {
  const DType type = any_type();
  const DType d_type = other_type();
  std::mt19937 random(1);
  HostTensor out = random_tensor(type, rows_of_numbers, random);
  HostTensor d_out = random_tensor(d_type, rows_of_numbers, random);
  HostTensor delta(DType::fp32, rows_of_scalars);
  row_dot(out.rows(), d_out.rows(), delta.rows());
  std::vector<double> expected(scalars);
  for (std::int64_t i = 0; i < out.size(); ++i) {
    expected[static_cast<std::size_t>(i / width)] +=
        static_cast<double>(out.at(i)) * static_cast<double>(d_out.at(i));
  }
  // A sum of 1037 terms of at most 1: error at most 1037 u32 of the sum of their sizes (~ 260).
  CHECK(distance(delta.values(), expected) <= 1037 * u32 * 260);
}

TEST_CASE("merge weighs both sides by their lse") {
  const DType type = any_type();
  const DType part_type = other_type();
  std::mt19937 random(2);
  HostTensor out = random_tensor(type, rows_of_numbers, random);
  HostTensor part = random_tensor(part_type, rows_of_numbers, random);
  HostTensor lse(DType::fp32, rows_of_scalars);
  HostTensor part_lse(DType::fp32, rows_of_scalars);
  constexpr double none = -std::numeric_limits<double>::infinity();
  const std::vector<double> ours = {0, 1, -1, 30, -200, none, 5, none, 2, 2, 500, -3};
  const std::vector<double> theirs = {0, 2, -9, -30, 100, 1, none, none, 2, 3, 500, 3};
  lse.set(ours);
  part_lse.set(theirs);
  std::vector<double> expected = out.values();
  std::vector<double> expected_lse(scalars);
  for (std::size_t r = 0; r < scalars; ++r) {
    const double larger = std::max(ours[r], theirs[r]);
    const double sum =
        std::isinf(larger) ? 0 : std::exp(ours[r] - larger) + std::exp(theirs[r] - larger);
    expected_lse[r] = larger + std::log(sum);
    for (std::int64_t d = 0; d < width && sum > 0; ++d) {
      const std::int64_t i = static_cast<std::int64_t>(r) * width + d;
      expected[static_cast<std::size_t>(i)] = std::exp(ours[r] - expected_lse[r]) * out.at(i) +
                                              std::exp(theirs[r] - expected_lse[r]) * part.at(i);
    }
  }
  merge(out.rows(), lse.rows(), part.rows(), part_lse.rows(), false);
  CHECK(distance(out.values(), expected) <= tolerance(type));
  CHECK(distance(lse.values(), expected_lse) <= 500 * u32 * 2);
}

TEST_CASE("the first merge converts the part") {
  const DType type = any_type();
  std::mt19937 random(3);
  HostTensor part = random_tensor(DType::bf16, rows_of_numbers, random);
  HostTensor part_lse = random_tensor(DType::fp32, rows_of_scalars, random);
  part_lse.set(3, -infinity);
  HostTensor out(type, rows_of_numbers);
  HostTensor lse(DType::fp32, rows_of_scalars);
  fill(out.rows(), std::numeric_limits<float>::quiet_NaN());  // must not be read
  merge(out.rows(), lse.rows(), part.rows(), part_lse.rows(), true);
  CHECK(distance(out.values(), part.values()) <= unit_of(type));
  CHECK(lse.values() == part_lse.values());
}

TEST_CASE("rescaled outputs of all members sum to the merged output") {
  const DType type = any_type();
  const DType scaled_type = other_type();
  std::mt19937 random(4);
  const Shape gathered_shape{2 * rows_of_scalars.count, 2, 2, 1};
  HostTensor gathered = random_tensor(DType::fp32, gathered_shape, random);
  gathered.set(5, -infinity);  // member 0 met no key, member 1 did
  gathered.set(7, -infinity);  // nobody did
  gathered.set(scalars + 7, -infinity);
  gathered.set(8, 1000);  // and nothing overflows
  gathered.set(scalars + 8, 1001);
  HostTensor out = random_tensor(type, rows_of_numbers, random);
  HostTensor lse(DType::fp32, rows_of_scalars);
  for (std::int64_t r = 0; r < scalars; ++r) {
    lse.set(r, gathered.at(r));
  }
  HostTensor scaled(scaled_type, rows_of_numbers);
  HostTensor global(DType::fp32, rows_of_scalars);
  rescale(out.rows(), lse.rows(), gathered.rows(), scaled.rows(), global.rows());
  std::vector<double> expected;
  std::vector<double> expected_lse;
  for (std::int64_t r = 0; r < scalars; ++r) {
    const double mine = gathered.at(r);
    const double theirs = gathered.at(scalars + r);
    const double larger = std::max(mine, theirs);
    expected_lse.push_back(std::isinf(larger) ? larger
                                              : larger + std::log(std::exp(mine - larger) +
                                                                  std::exp(theirs - larger)));
    const double factor = std::isinf(mine) ? 0 : std::exp(mine - expected_lse.back());
    for (std::int64_t d = 0; d < width; ++d) {
      expected.push_back(factor * out.at(r * width + d));
    }
  }
  // lse of 1000 has an error of 1000 u32, which the factor inherits.
  CHECK(distance(scaled.values(), expected) <= tolerance(scaled_type) + 2 * 1000 * u32);
  CHECK(distance(global.values(), expected_lse) <= 2 * 1001 * u32);
}

TEST_CASE("a sink takes its share of every row that lse is of") {
  const DType type = any_type();
  std::mt19937 random(6);
  constexpr std::int64_t others = 4;  // numbers of lse before those of out's rows, and behind
  HostTensor out = random_tensor(type, rows_of_numbers, random);
  HostTensor lse(DType::fp32, {5, 2, 2, 1});
  HostTensor sinks(type, {2, 1, 1, 1});
  const std::vector<double> logits = {0.5, -3};
  sinks.set(logits);
  constexpr double none = -std::numeric_limits<double>::infinity();
  std::vector<double> before = {0, 1, -1, 30, -200, none, 5, none, 2, 2, 500, -3};
  before.insert(before.begin(), others, 0.5);
  before.insert(before.end(), others, -2);
  lse.set(before);
  std::vector<double> expected = out.values();
  std::vector<double> expected_lse;
  for (std::size_t r = 0; r < before.size(); ++r) {
    const double larger = std::max(before[r], logits[r % 2]);
    expected_lse.push_back(
        larger + std::log(std::exp(before[r] - larger) + std::exp(logits[r % 2] - larger)));
    for (std::int64_t d = 0; r >= others && r < others + scalars && d < width; ++d) {
      expected[(r - others) * width + static_cast<std::size_t>(d)] *=
          std::exp(before[r] - expected_lse[r]);
    }
  }
  sink({.out = out.rows(), .lse = lse.rows(), .sinks = sinks.rows(), .first = 1});
  CHECK(distance(out.values(), expected) <= tolerance(type));
  CHECK(distance(lse.values(), expected_lse) <= 500 * u32 * 2);

  // Its gradient, of the rows in the middle.
  HostTensor own(DType::fp32, rows_of_scalars);
  HostTensor delta = random_tensor(DType::fp32, rows_of_scalars, random);
  HostTensor d_sinks(DType::fp32, {2, 1, 1, 1});
  std::vector<double> gradients(2);
  for (std::int64_t r = 0; r < scalars; ++r) {
    const auto h = static_cast<std::size_t>(r % 2);
    own.set(r, lse.at(others + r));
    gradients[h] -= std::exp(logits[h] - own.at(r)) * delta.at(r);
  }
  sink_backward(
      {.lse = own.rows(), .delta = delta.rows(), .sinks = sinks.rows(), .d_sinks = d_sinks.rows()});
  // Six terms of at most 1, exponents of at most 5 but where they are 0.
  CHECK(distance(d_sinks.values(), gradients) <= 6 * 10 * u32);
}

TEST_CASE("accumulate adds, or copies the first part") {
  const DType type = any_type();
  const DType part_type = other_type();
  std::mt19937 random(5);
  HostTensor sum = random_tensor(type, rows_of_numbers, random);
  HostTensor part = random_tensor(part_type, rows_of_numbers, random);
  std::vector<double> expected = sum.values();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] += part.at(static_cast<std::int64_t>(i));
  }
  accumulate(sum.rows(), part.rows(), false);
  CHECK(distance(sum.values(), expected) <= 2 * tolerance(type));  // sums are up to 2
  fill(sum.rows(), infinity);
  accumulate(sum.rows(), part.rows(), true);
  CHECK(distance(sum.values(), part.values()) <= unit_of(type));
}

TEST_CASE("fill writes 0 and -infinity in every type") {
  const DType type = any_type();
  HostTensor rows(type, rows_of_numbers);
  for (const float value : {0.0F, -infinity}) {
    fill(rows.rows(), value);
    CHECK(rows.values() == std::vector<double>(static_cast<std::size_t>(rows.size()), value));
  }
}

TEST_CASE("move carries a box of heads, converts it and adds it") {
  const DType from_type = any_type();
  const DType to_type = other_type();
  const bool add = GENERATE(false, true);
  const int heads = GENERATE(2, 5);  // of 5 and of 7 / all of 5 and of 5
  std::mt19937 random(6);
  const int to_heads = heads == 5 ? 5 : 7;
  const int to_first = heads == 5 ? 0 : 3;
  const int from_first = heads == 5 ? 0 : 1;
  constexpr int d = 19;
  HostTensor from = random_tensor(from_type, {4, 3, 5, d}, random);
  HostTensor to = random_tensor(to_type, {4, 3, to_heads, d}, random);
  std::vector<double> expected = to.values();
  for (std::int64_t row = 0; row < 12; ++row) {
    for (std::int64_t i = 0; i < std::int64_t{heads} * d; ++i) {
      double& x = expected[static_cast<std::size_t>((row * to_heads + to_first) * d + i)];
      x = (add ? x : 0) + from.at((row * 5 + from_first) * d + i);
    }
  }
  move({.data = from.rows().data + from_first * d * size_of(from_type),
        .dtype = from_type,
        .row_heads = 5},
       {.data = to.rows().data + to_first * d * size_of(to_type),
        .dtype = to_type,
        .row_heads = to_heads},
       4, 3, heads, d, add);
  const bool exact = !add && (from_type == to_type || to_type == DType::fp32);
  CHECK(distance(to.values(), expected) <= (exact ? 0 : 2 * tolerance(to_type)));
}

TEST_CASE("operations on no rows do nothing") {
  HostTensor none(DType::fp32, {0, 2, 2, 8});
  HostTensor no_scalars(DType::fp32, {0, 2, 2, 1});
  row_dot(none.rows(), none.rows(), no_scalars.rows());
  merge(none.rows(), no_scalars.rows(), none.rows(), no_scalars.rows(), false);
  rescale(none.rows(), no_scalars.rows(), no_scalars.rows(), none.rows(), no_scalars.rows());
  accumulate(none.rows(), none.rows(), true);
  fill(none.rows(), 0);
  SUCCEED();
}
