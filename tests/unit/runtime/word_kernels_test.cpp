// The kernels of words and updates against their definitions in fp64, written once more here. A
// kernel sums in fp32 and rounds its result once, as those of a layer (layer_kernels_test.cpp).
#include "base/error.hpp"
#include "runtime/kernels/words.hpp"
#include "schedule/graph.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/runtime/tensors.hpp"

#include <algorithm>

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

constexpr std::int64_t tokens = 13;
constexpr int batch = 2;
constexpr std::int64_t rows = tokens * batch;

/// Whole numbers in [-1, words), some of them twice.
HostTensor words_of(std::int64_t words, std::mt19937& random) {
  HostTensor tensor(DType::fp32, {tokens, batch, 1, 1});
  std::uniform_int_distribution<std::int64_t> any(-1, words - 1);
  std::vector<double> values(static_cast<std::size_t>(rows));
  std::ranges::generate(values, [&] { return static_cast<double>(any(random)); });
  values[0] = -1;
  values[1] = values[2] = static_cast<double>(words - 1);
  tensor.set(values);
  return tensor;
}

double at(const std::vector<double>& values, std::int64_t i) {
  return values[static_cast<std::size_t>(i)];
}

void check_near(HostTensor& got, const std::vector<double>& expected, double depth) {
  const double limit =
      (unit_of(got.rows().dtype) + depth * unit_of(DType::fp32)) * magnitude(expected);
  CHECK(distance(got.values(), expected) <= limit);
}

}  // namespace

TEST_CASE("an embedding gives each word its row, and the row what its words are given") {
  const DType type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  std::mt19937 random(31);
  constexpr std::int64_t first = 3;
  constexpr std::int64_t part = 5;  // of a table of 11 words
  constexpr int width = 7;
  HostTensor words = words_of(11, random);
  HostTensor table = random_tensor(type, {part, 1, 1, width}, random);
  HostTensor x = random_tensor(type, {tokens, batch, 1, width}, random);
  embedding({.words = words.rows(), .table = table.rows(), .x = x.rows(), .first = first});
  HostTensor d_x = random_tensor(type, {tokens, batch, 1, width}, random);
  HostTensor d_table = random_tensor(DType::fp32, {part, 1, 1, width}, random);
  embedding_backward(
      {.words = words.rows(), .d_x = d_x.rows(), .d_table = d_table.rows(), .first = first});
  std::vector<double> looked_up(static_cast<std::size_t>(rows * width));
  std::vector<double> given(static_cast<std::size_t>(part * width));
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto word = static_cast<std::int64_t>(words.at(i)) - first;
    for (int e = 0; word >= 0 && word < part && e < width; ++e) {
      looked_up[static_cast<std::size_t>(i * width + e)] = table.at(word * width + e);
      given[static_cast<std::size_t>(word * width + e)] += d_x.at(i * width + e);
    }
  }
  CHECK(x.values() == looked_up);
  check_near(d_table, given, static_cast<double>(rows));
}

TEST_CASE("cross-entropy of a vocabulary in parts is that of the whole") {
  const DType type = GENERATE(DType::fp32, DType::bf16, DType::fp16);
  const int parts = GENERATE(1, 3);
  constexpr int width = 9;  // of a part
  const std::int64_t vocabulary = std::int64_t{parts} * width;
  std::mt19937 random(32);
  HostTensor targets = words_of(vocabulary, random);
  std::vector<HostTensor> logits;
  std::vector<double> sums(static_cast<std::size_t>(rows * 3 * parts));
  for (int part = 0; part < parts; ++part) {
    logits.push_back(random_tensor(type, {tokens, batch, 1, width}, random));
    HostTensor of_part = random_tensor(DType::fp32, {tokens, batch, 1, 3 * parts}, random);
    word_sums({.logits = logits.back().rows(),
               .targets = targets.rows(),
               .sums = of_part.rows(),
               .part = part});
    std::ranges::transform(sums, of_part.values(), sums.begin(), std::plus());
  }
  HostTensor all(DType::fp32, {tokens, batch, 1, 3 * parts});
  all.set(sums);
  HostTensor loss(DType::fp32, {tokens, batch, 1, 1});
  HostTensor log_sum(DType::fp32, {tokens, batch, 1, 1});
  word_loss({.sums = all.rows(),
             .targets = targets.rows(),
             .loss = loss.rows(),
             .log_sum = log_sum.rows()});
  std::vector<double> losses;
  std::vector<double> log_sums;
  for (std::int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (const HostTensor& part : logits) {
      for (int e = 0; e < width; ++e) {
        sum += std::exp(part.at(i * width + e));
      }
    }
    const auto target = static_cast<std::int64_t>(targets.at(i));
    log_sums.push_back(std::log(sum));
    losses.push_back(target < 0
                         ? 0
                         : std::log(sum) - logits[static_cast<std::size_t>(target / width)].at(
                                               i * width + target % width));
  }
  check_near(log_sum, log_sums, 4 * static_cast<double>(vocabulary));
  check_near(loss, losses, 4 * static_cast<double>(vocabulary));

  constexpr float scale = 0.25F;
  for (int part = 0; part < parts; ++part) {
    HostTensor& own = logits[static_cast<std::size_t>(part)];
    HostTensor d_logits = random_tensor(type, {tokens, batch, 1, width}, random);
    word_sums_backward({.logits = own.rows(),
                        .targets = targets.rows(),
                        .log_sum = log_sum.rows(),
                        .d_logits = d_logits.rows(),
                        .part = part,
                        .scale = scale});
    std::vector<double> expected;
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto target = static_cast<std::int64_t>(targets.at(i));
      for (int e = 0; e < width; ++e) {
        const double share = std::exp(own.at(i * width + e) - at(log_sums, i));
        const bool is_target = target == std::int64_t{part} * width + e;
        expected.push_back(target < 0 ? 0
                                      : static_cast<double>(scale) * (share - (is_target ? 1 : 0)));
      }
    }
    check_near(d_logits, expected, 4 * static_cast<double>(vocabulary));
  }
}

TEST_CASE("an update moves a weight against its averaged gradient, and keeps both averages") {
  const DType type = GENERATE(DType::fp32, DType::bf16);
  const Shape shape{5, 1, 1, 17};
  std::mt19937 random(33);
  HostTensor gradient = random_tensor(DType::fp32, shape, random);
  HostTensor master = random_tensor(DType::fp32, shape, random);
  HostTensor first = random_tensor(DType::fp32, shape, random);
  HostTensor second = random_tensor(DType::fp32, shape, random);
  std::vector<double> squares = second.values();
  std::ranges::transform(squares, squares.begin(), [](double x) { return x * x + 0.01; });
  second.set(squares);
  HostTensor param(type, shape);
  const std::vector<double> w = master.values();
  const std::vector<double> g = gradient.values();
  const std::vector<double> m = first.values();
  const std::vector<double> v = second.values();
  constexpr float rate = 0.125F;
  adam({.gradient = gradient.rows(),
        .master = master.rows(),
        .first = first.rows(),
        .second = second.rows(),
        .param = param.rows(),
        .rate = rate});
  std::vector<double> next_w;
  std::vector<double> next_m;
  std::vector<double> next_v;
  constexpr AdamConstants c;
  for (std::size_t i = 0; i < w.size(); ++i) {
    next_m.push_back(c.beta1 * m[i] + (1 - c.beta1) * g[i]);
    next_v.push_back(c.beta2 * v[i] + (1 - c.beta2) * g[i] * g[i]);
    next_w.push_back(w[i] - static_cast<double>(rate) *
                                (next_m[i] / (std::sqrt(next_v[i]) + c.epsilon) + c.decay * w[i]));
  }
  check_near(first, next_m, 16);
  check_near(second, next_v, 16);
  check_near(master, next_w, 64);
  check_near(param, next_w, 64);
}

TEST_CASE("kernels of words refuse rows that do not belong together") {
  std::mt19937 random(34);
  HostTensor words = words_of(4, random);
  HostTensor table = random_tensor(DType::fp32, {4, 1, 1, 6}, random);
  HostTensor x = random_tensor(DType::fp32, {tokens, batch, 1, 7}, random);
  CHECK_THROWS_AS(embedding({.words = words.rows(), .table = table.rows(), .x = x.rows()}),
                  InternalError);
  HostTensor half = random_tensor(DType::bf16, {4, 1, 1, 7}, random);
  CHECK_THROWS_AS(
      embedding_backward({.words = words.rows(), .d_x = x.rows(), .d_table = half.rows()}),
      InternalError);
  HostTensor sums(DType::fp32, {tokens, batch, 1, 3});
  CHECK_THROWS_AS(
      word_sums({.logits = x.rows(), .targets = words.rows(), .sums = sums.rows(), .part = 1}),
      InternalError);
}
