// Test data: every element of every input tensor is a function of its global place, so that any
// rank can make any part of it, and the oracle too.
#pragma once

#include "runtime/kernels/rows.hpp"
#include "schedule/graph.hpp"
#include "schedule/op.hpp"

#include <cstdint>
#include <limits>

namespace spp::runtime {

/// Elements are uniform in [-1, 1), rounded to the storage type; tokens and heads that were padded
/// are 0. Parameters of linear layers are smaller, by the root of their rows, so that a product is
/// about as large as what it is of; gains are near 1, biases near 0. Words are any of theirs, -1 of
/// padding. An optimizer's copy of a parameter is the parameter; what it remembers of gradients is
/// as large as those of a mean over all tokens.
struct InputData {
  Problem requested;  // before padding
  std::uint64_t seed = 1;
  Graph graph{};

  [[nodiscard]] float value(Tensor tensor, std::int64_t batch, std::int64_t token, int head,
                            int dim) const;
  /// Fills rows: row i is the i-th token of `tokens`, its heads are `heads`.
  void fill(Tensor tensor, const TokenSet& tokens, HeadRange heads, const Rows& rows) const;
  /// The same of any tensor; of a parameter, row i is the i-th of `tokens`.
  void fill_ref(TensorRef ref, const TokenSet& tokens, HeadRange heads, const Rows& rows) const;
};

/// Elements of one tensor of the graph: a value or its gradient, a parameter, what an optimizer
/// keeps of it. What does not depend on the place is worked out once.
class TensorData {
 public:
  TensorData(const InputData& data, TensorRef ref);
  /// `column` of a whole row.
  [[nodiscard]] float operator()(std::int64_t batch, std::int64_t row, std::int64_t column) const;

 private:
  /// Uniform in middle ± reach, times scale.
  struct Numbers {
    float middle = 0, reach = 1, scale = 1;
  };
  std::uint64_t key_ = 0;
  bool of_tokens_ = false;
  std::int64_t tokens_ = 0, words_ = 0;
  std::int64_t rows_below_ = std::numeric_limits<std::int64_t>::max();
  Numbers below_, above_;  // of rows below `rows_below_`, of the others
};

}  // namespace spp::runtime
