// Memory with numbers in it for one attention block, to time a kernel without a plan around it.
#pragma once

#include "runtime/calibrate/measure.hpp"
#include "runtime/kernels/attention.hpp"

#include <vector>

namespace spp::runtime {

/// What one call of a kernel reads and writes.
class BlockOperands {
 public:
  explicit BlockOperands(const AttentionBlock& block);

  void run(AttentionKernels& kernels, const Poll& poll) const;
  [[nodiscard]] std::int64_t bytes() const;

 private:
  /// One tensor.
  class Filled {
   public:
    Filled(std::int64_t tokens, const AttentionBlock& b, int heads, int width, DType dtype);
    Filled& fill(float middle, float reach);
    [[nodiscard]] const Rows& rows() const { return rows_; }

   private:
    Rows rows_;
    std::vector<std::byte> memory_;
  };

  AttentionBlock block_;
  std::vector<Filled> tensors_;
  Visibility visible_;
};

}  // namespace spp::runtime
