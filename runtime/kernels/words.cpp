#include "runtime/kernels/words.hpp"

#include "runtime/kernels/row_checks.hpp"
#include "runtime/kernels/row_floats.hpp"
#include "runtime/kernels/word_numbers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

namespace spp::runtime {
namespace {

std::int64_t word_at(const Rows& words, std::int64_t row) {
  return static_cast<std::int64_t>(load<float>(words.data, row));
}

}  // namespace

void embedding(const EmbeddingArgs& args) {
  const auto& [words, table, x, first] = args;
  ensure_embedding(words, table, x);
  std::vector<float> row = floats(matrix_columns(x));
  for (std::int64_t i = 0; i < matrix_rows(x); ++i) {
    const std::int64_t at = word_at(words, i) - first;
    if (at >= 0 && at < matrix_rows(table)) {
      read(table, at, 0, row);
    } else {
      std::ranges::fill(row, 0.0F);
    }
    write(row, x, i, 0);
  }
}

void embedding_backward(const EmbeddingBackwardArgs& args) {
  const auto& [words, d_x, d_table, first] = args;
  ensure_embedding_backward(args);
  const std::int64_t columns = matrix_columns(d_x);
  std::memset(d_table.data, 0,
              static_cast<std::size_t>(d_table.elements() * size_of(d_table.dtype)));
  std::vector<float> row = floats(columns);
  std::vector<float> sum = row;
  for (std::int64_t i = 0; i < matrix_rows(d_x); ++i) {
    const std::int64_t at = word_at(words, i) - first;
    if (at < 0 || at >= matrix_rows(d_table)) {
      continue;
    }
    read(d_x, i, 0, row);
    read(d_table, at, 0, sum);
    for (std::size_t e = 0; e < row.size(); ++e) {
      sum[e] += row[e];
    }
    write(sum, d_table, at, 0);
  }
}

void word_sums(const WordSumsArgs& args) {
  const auto& [logits, targets, sums, part] = args;
  ensure_word_sums(args);
  std::vector<float> x = floats(matrix_columns(logits));
  std::vector<float> of_parts = floats(matrix_columns(sums));
  for (std::int64_t row = 0; row < matrix_rows(logits); ++row) {
    read(logits, row, 0, x);
    const float most = *std::ranges::max_element(x);
    float sum = 0;
    for (const float logit : x) {
      sum += std::exp(logit - most);
    }
    const std::int64_t target = word_at(targets, row) - part * matrix_columns(logits);
    const bool is_own = target >= 0 && target < matrix_columns(logits);
    float* own = &of_parts[3 * static_cast<std::size_t>(part)];
    own[0] = most;
    own[1] = sum;
    own[2] = is_own ? x[static_cast<std::size_t>(target)] : 0;
    write(of_parts, sums, row, 0);
  }
}

void word_loss(const WordLossArgs& args) {
  const auto& [sums, targets, loss, log_sum] = args;
  ensure_word_loss(args);
  std::vector<float> of_parts = floats(matrix_columns(sums));
  const auto parts = static_cast<int>(matrix_columns(sums) / 3);
  for (std::int64_t row = 0; row < matrix_rows(sums); ++row) {
    read(sums, row, 0, of_parts);
    const WordLoss result =
        loss_of([&](int i) { return of_parts[static_cast<std::size_t>(i)]; }, parts);
    write(std::array{result.log_sum}, log_sum, row, 0);
    write(std::array{word_at(targets, row) < 0 ? 0 : result.log_sum - result.target}, loss, row, 0);
  }
}

void word_sums_backward(const WordSumsBackwardArgs& args) {
  const auto& [logits, targets, log_sum, d_logits, part, scale] = args;
  ensure_word_sums_backward(args);
  std::vector<float> x = floats(matrix_columns(logits));
  for (std::int64_t row = 0; row < matrix_rows(logits); ++row) {
    const std::int64_t word = word_at(targets, row);
    if (word < 0) {
      std::ranges::fill(x, 0.0F);
      write(x, d_logits, row, 0);
      continue;
    }
    read(logits, row, 0, x);
    const auto log_of_all = load<float>(log_sum.data, row);
    for (float& logit : x) {
      logit = scale * std::exp(logit - log_of_all);
    }
    const std::int64_t target = word - part * matrix_columns(logits);
    if (target >= 0 && target < matrix_columns(logits)) {
      x[static_cast<std::size_t>(target)] -= scale;
    }
    write(x, d_logits, row, 0);
  }
}

void adam(const AdamArgs& args) {
  const auto& [gradient, master, first, second, param, rate] = args;
  ensure_adam(args);
  constexpr AdamConstants c;
  std::vector<float> g = floats(matrix_columns(gradient));
  std::vector<float> w = g;
  std::vector<float> m = g;
  std::vector<float> v = g;
  for (std::int64_t row = 0; row < matrix_rows(gradient); ++row) {
    read(gradient, row, 0, g);
    read(master, row, 0, w);
    read(first, row, 0, m);
    read(second, row, 0, v);
    for (std::size_t i = 0; i < g.size(); ++i) {
      const Adam next = adam_of({.weight = w[i], .first = m[i], .second = v[i]}, g[i], rate, c);
      w[i] = next.weight;
      m[i] = next.first;
      v[i] = next.second;
    }
    write(w, master, row, 0);
    write(m, first, row, 0);
    write(v, second, row, 0);
    write(w, param, row, 0);
  }
}

}  // namespace spp::runtime
