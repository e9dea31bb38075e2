// The device's kernels of words and updates against those of the host, which are tested against
// their definitions. Both compute in fp32 from the same numbers and round once.
#include "runtime/device/cuda/word_kernels.hpp"

#include "runtime/kernels/words.hpp"
#include "tests/device/device.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>

namespace spp::test {
namespace {

using namespace spp::runtime;

constexpr std::int64_t word_rows = 37;
constexpr int word_batch = 2;

/// Whole numbers in [-1, words), on both sides.
void set_words(Both& tensor, std::int64_t words, std::mt19937& random) {
  std::uniform_int_distribution<std::int64_t> any(-1, words - 1);
  std::vector<double> values(static_cast<std::size_t>(word_rows * word_batch));
  std::ranges::generate(values, [&] { return static_cast<double>(any(random)); });
  tensor.host.set(values);
  tensor.device.send();
}

}  // namespace

TEST_CASE("a device's embedding and its gradient are the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(41);
  const DType type = GENERATE(DType::fp32, DType::bf16);
  const int width = GENERATE(1, 7, 64);  // with and without vectors of 8
  constexpr std::int64_t part = 40;      // of a table of 100 words
  Both words(DType::fp32, {word_rows, word_batch, 1, 1}, random, stream);
  set_words(words, 100, random);
  Both table(type, {part, 1, 1, width}, random, stream);
  Both x(type, {word_rows, word_batch, 1, width}, random, stream);
  Both d_table(DType::fp32, {part, 1, 1, width}, random, stream);
  const auto looked_up = [&](auto side) {
    return EmbeddingArgs{.words = side(words), .table = side(table), .x = side(x), .first = 30};
  };
  const auto given = [&](auto side) {
    return EmbeddingBackwardArgs{
        .words = side(words), .d_x = side(x), .d_table = side(d_table), .first = 30};
  };
  cuda::embedding(looked_up(device_of), stream.get());
  cuda::embedding_backward(given(device_of), stream.get());
  embedding(looked_up(host_of));
  embedding_backward(given(host_of));
  x.check(type);
  d_table.check(DType::fp32);
}

TEST_CASE("a device's cross-entropy is the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(42);
  const DType type = GENERATE(DType::fp32, DType::bf16);
  const int width = GENERATE(5, 200);
  Both targets(DType::fp32, {word_rows, word_batch, 1, 1}, random, stream);
  set_words(targets, std::int64_t{width} * 3, random);
  Both logits(type, {word_rows, word_batch, 1, width}, random, stream);
  Both sums(DType::fp32, {word_rows, word_batch, 1, 9}, random, stream);
  Both loss(DType::fp32, {word_rows, word_batch, 1, 1}, random, stream);
  Both log_sum(DType::fp32, {word_rows, word_batch, 1, 1}, random, stream);
  Both d_logits(type, {word_rows, word_batch, 1, width}, random, stream);
  const auto summed = [&](auto side) {
    return WordSumsArgs{
        .logits = side(logits), .targets = side(targets), .sums = side(sums), .part = 1};
  };
  const auto lost = [&](auto side) {
    return WordLossArgs{
        .sums = side(sums), .targets = side(targets), .loss = side(loss), .log_sum = side(log_sum)};
  };
  const auto backward = [&](auto side) {
    return WordSumsBackwardArgs{.logits = side(logits),
                                .targets = side(targets),
                                .log_sum = side(log_sum),
                                .d_logits = side(d_logits),
                                .part = 1,
                                .scale = 0.5F};
  };
  word_sums(summed(host_of));
  cuda::word_sums(summed(device_of), stream.get());
  sums.check(DType::fp32);
  // A part that is all of it.
  std::vector<double> values = sums.host.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = i % 9 == 0 || i % 9 == 6 ? -1e30 : values[i];
  }
  sums.host.set(values);
  sums.device.send();
  word_loss(lost(host_of));
  cuda::word_loss(lost(device_of), stream.get());
  loss.check(DType::fp32);
  log_sum.check(DType::fp32);
  log_sum.device.send();
  word_sums_backward(backward(host_of));
  cuda::word_sums_backward(backward(device_of), stream.get());
  d_logits.check(type);
}

TEST_CASE("a device's update is the host's") {
  SPP_NEED_DEVICE();
  const cuda::Stream stream(0);
  std::mt19937 random(43);
  const DType type = GENERATE(DType::fp32, DType::bf16);
  const Shape shape{9, 1, 1, GENERATE(3, 32)};
  Both gradient(DType::fp32, shape, random, stream);
  Both master(DType::fp32, shape, random, stream);
  Both first(DType::fp32, shape, random, stream);
  Both second(DType::fp32, shape, random, stream);
  std::vector<double> squares = second.host.values();
  std::ranges::transform(squares, squares.begin(), [](double x) { return x * x + 0.01; });
  second.host.set(squares);
  second.device.send();
  Both param(type, shape, random, stream);
  const auto args = [&](auto side) {
    return AdamArgs{.gradient = side(gradient),
                    .master = side(master),
                    .first = side(first),
                    .second = side(second),
                    .param = side(param),
                    .rate = 0.125F};
  };
  adam(args(host_of));
  cuda::adam(args(device_of), stream.get());
  for (Both* tensor : {&master, &first, &second}) {
    tensor->check(DType::fp32);
  }
  param.check(type);
}

}  // namespace spp::test
