// What kernels over rows expect of their arguments; InternalError at the caller's place otherwise.
// Declared apart from base/error.hpp, whose fmt nvcc cannot compile.
#pragma once

#include "runtime/kernels/attention.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/kernels/experts.hpp"
#include "runtime/kernels/layer.hpp"
#include "runtime/kernels/words.hpp"

#include <source_location>

namespace spp::runtime {

using Caller = std::source_location;

/// Same shape.
void ensure_alike(const Rows& a, const Rows& b, Caller at = Caller::current());
/// `scalars` has one number where `rows` has a whole width.
void ensure_scalars(const Rows& rows, const Rows& scalars, Caller at = Caller::current());
/// A sink for each head, and lse for at least all rows of out.
void ensure_sink(const SinkArgs& args, Caller at = Caller::current());
void ensure_sink_backward(const SinkBackwardArgs& args, Caller at = Caller::current());
/// Members of a team whose lse are in `gathered`, one after the other, by those of one of them.
std::int64_t members_of(const Rows& gathered, const Rows& lse, Caller at = Caller::current());
/// Boxes of `heads` heads.
void ensure_box_fits(int heads, const Box& from, const Box& to, Caller at = Caller::current());
/// q and k hold the tokens that the block is about, and heads that go together.
void ensure_block(const Rows& q, const Rows& k, const Visibility& visible,
                  Caller at = Caller::current());

/// Whether a norm takes a mean off, and adds a bias: layer norm, and not RMS norm.
enum class Centring : std::uint8_t { none, mean };
/// Weight and statistics (fp32) are of x's columns and rows.
void ensure_norm(const NormArgs& args, Centring centring, Caller at = Caller::current());
void ensure_norm_backward(const NormBackwardArgs& args, Centring centring,
                          Caller at = Caller::current());

/// One number for each column; weights, if there are any, one in fp32 for each row.
void ensure_bias(const Rows& y, const Rows& bias, const Rows& weights,
                 Caller at = Caller::current());

/// Words, one of each row in fp32; a row of the table is one of x.
void ensure_embedding(const Rows& words, const Rows& table, const Rows& x,
                      Caller at = Caller::current());
void ensure_embedding_backward(const EmbeddingBackwardArgs& args, Caller at = Caller::current());
/// Targets and what is known of a row are numbers in fp32, beside the part's logits.
void ensure_word_sums(const WordSumsArgs& args, Caller at = Caller::current());
void ensure_word_sums_backward(const WordSumsBackwardArgs& args, Caller at = Caller::current());
void ensure_word_loss(const WordLossArgs& args, Caller at = Caller::current());
/// A score for each expert, an fp32 weight for each slot, of so many tokens.
void ensure_route(const Rows& scores, const Rows& weights, const TokenSet& tokens,
                  const Routing& routing, Caller at = Caller::current());
/// gate_up is twice as wide as a; a weight in fp32 for each row.
void ensure_expert_swiglu(const Rows& gate_up, const Rows& weights, const Rows& a,
                          Caller at = Caller::current());
/// All of one shape; what an update keeps is in fp32.
void ensure_adam(const AdamArgs& args, Caller at = Caller::current());

}  // namespace spp::runtime
