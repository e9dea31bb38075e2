#include "runtime/calibrate/operands.hpp"

#include <algorithm>
#include <cmath>

namespace spp::runtime {
namespace {

std::int64_t last_of(const TokenSet& tokens) {
  std::int64_t last = 0;
  for (const TokenRange& r : tokens.ranges()) {
    last = std::max(last, r.last());
  }
  return last;
}

}  // namespace

BlockOperands::Filled::Filled(std::int64_t tokens, const AttentionBlock& b, int heads, int width,
                              DType dtype)
    : rows_{.data = nullptr,
            .dtype = dtype,
            .count = tokens,
            .batch = b.batch,
            .heads = heads,
            .width = width},
      memory_(static_cast<std::size_t>(rows_.bytes())) {
  rows_.data = memory_.data();
}

BlockOperands::Filled& BlockOperands::Filled::fill(float middle, float reach) {
  fill_numbers(rows_, middle, reach);
  return *this;
}

BlockOperands::BlockOperands(const AttentionBlock& b) : block_(b) {
  const auto of_q = [&](int width, DType dtype) -> Filled& {
    return tensors_.emplace_back(b.q.count(), b, b.q_heads, width, dtype);
  };
  const auto of_k = [&](int width) -> Filled& {
    return tensors_.emplace_back(b.k.count(), b, b.kv_heads, width, b.dtype);
  };
  tensors_.reserve(10);
  const auto keys = static_cast<float>(b.k.count());
  of_q(b.head_dim, b.dtype).fill(0, 1);             // q
  of_k(b.head_dim).fill(0, 1);                      // k
  of_k(b.v_dim()).fill(0, 1);                       // v
  of_q(1, DType::fp32).fill(std::log(keys), 0.1F);  // lse
  if (b.phase == Phase::forward) {
    of_q(b.v_dim(), b.dtype);  // out
  } else {
    of_q(b.head_dim, b.dtype);            // d_q
    of_q(b.v_dim(), b.dtype).fill(0, 1);  // d_out
    of_q(1, DType::fp32).fill(0, 0.1F);   // delta
    of_k(b.head_dim);                     // d_k
    of_k(b.v_dim());                      // d_v
  }
  visible_ = {.q_tokens = b.q,
              .k_tokens = b.k,
              .mask = b.mask,
              .seq = std::max(last_of(b.q), last_of(b.k)) + 1};
}

void BlockOperands::run(AttentionKernels& kernels, const Poll& poll) const {
  const auto rows = [this](std::size_t i) { return tensors_[i].rows(); };
  if (block_.phase == Phase::forward) {
    kernels.forward({.q = rows(0),
                     .k = rows(1),
                     .v = rows(2),
                     .out = rows(4),
                     .lse = rows(3),
                     .visible = visible_},
                    poll);
    return;
  }
  kernels.backward({.q = rows(0),
                    .k = rows(1),
                    .v = rows(2),
                    .d_out = rows(5),
                    .lse = rows(3),
                    .delta = rows(6),
                    .d_q = rows(4),
                    .d_k = rows(7),
                    .d_v = rows(8),
                    .visible = visible_},
                   poll);
}

std::int64_t BlockOperands::bytes() const {
  std::int64_t sum = 0;
  for (const Filled& t : tensors_) {
    sum += t.rows().bytes();
  }
  return sum;
}

}  // namespace spp::runtime
