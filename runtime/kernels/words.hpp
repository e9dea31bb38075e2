// The kernels of a step beside its layers, on the host: from words to rows, from logits to a loss,
// and from gradients to the next weights. As those of layer.hpp: rows are matrices, computed in
// fp32, rounded once. Words are whole numbers in fp32.
#pragma once

#include "runtime/kernels/rows.hpp"

#include <cstdint>

namespace spp::runtime {

/// x [n, b, 1, width] = rows of table [V, width] of words [n, b, 1, 1] (fp32, `first` is the
/// table's first); 0 of words that are not in it, and of none (-1).
struct EmbeddingArgs {
  Rows words, table, x;
  std::int64_t first = 0;
};
void embedding(const EmbeddingArgs& args);
/// d_table, overwritten: of each word the sum of its tokens' d_x, in fp32.
struct EmbeddingBackwardArgs {
  Rows words, d_x, d_table;
  std::int64_t first = 0;
};
void embedding_backward(const EmbeddingBackwardArgs& args);

/// Vocabulary-parallel cross-entropy (Shoeybi et al., arXiv:1909.08053, section 3): a rank has a
/// part of the logits, [n, b, 1, width] from word part * width on. sums [n, b, 1, 3 parts] in fp32:
/// 0 but for its part's maximum m, sum of exp(logit - m), and the target's logit if that is its
/// own.
struct WordSumsArgs {
  Rows logits, targets, sums;
  int part = 0;
};
void word_sums(const WordSumsArgs& args);
/// Of all parts' sums: log_sum = log of the sum over all words of exp(logit), loss = log_sum - the
/// target's logit, 0 without a target (-1); fp32.
struct WordLossArgs {
  Rows sums, targets, loss, log_sum;
};
void word_loss(const WordLossArgs& args);
/// d_logits = scale (exp(logit - log_sum) - [word is the target]), 0 without a target; may be
/// logits.
struct WordSumsBackwardArgs {
  Rows logits, targets, log_sum, d_logits;
  int part = 0;
  float scale = 1;
};
void word_sums_backward(const WordSumsBackwardArgs& args);

/// Adam (Kingma and Ba, arXiv:1412.6980) with decoupled decay (arXiv:1711.05101), bias corrections
/// left out, of any shape alike:  m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,
/// w <- w - rate (m / (sqrt(v) + epsilon) + decay w). master, first (m) and second (v) are fp32;
/// param gets master in its own type.
struct AdamArgs {
  Rows gradient, master, first, second, param;
  float rate = 0;
};
void adam(const AdamArgs& args);

}  // namespace spp::runtime
