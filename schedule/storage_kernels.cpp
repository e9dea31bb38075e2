// The rows of kernels other than copies.
#include "schedule/storage_rank.hpp"

namespace spp {

void RankStore::apply(const AttentionForward& op, StoredOp& stored) {
  const TokenList queries(op.q_tokens);
  stored.rows = {find(op.q, op.q_tokens, op.heads), find(op.k, op.k_tokens, op.kv_heads),
                 find(op.v, op.k_tokens, op.kv_heads), write(op.out, queries, op.heads),
                 write(op.lse, queries, op.heads)};
}

void RankStore::apply(const AttentionBackward& op, StoredOp& stored) {
  const TokenList keys(op.k_tokens);
  stored.rows = {find(op.q, op.q_tokens, op.heads),
                 find(op.k, op.k_tokens, op.kv_heads),
                 find(op.v, op.k_tokens, op.kv_heads),
                 find(op.d_out, op.q_tokens, op.heads),
                 find(op.lse, op.q_tokens, op.heads),
                 find(op.delta, op.q_tokens, op.heads),
                 write(op.d_q, TokenList(op.q_tokens), op.heads),
                 write(op.d_k, keys, op.kv_heads),
                 write(op.d_v, keys, op.kv_heads)};
}

void RankStore::apply(const Scores& op, StoredOp& stored) {
  expect(op.k_tokens.ranges().size() == 1 && op.k_tokens.ranges()[0].stride == 1,
         "the columns of its keys do not lie together");
  stored.rows = {find(op.rows, op.q_tokens, op.heads), find(op.columns, op.k_tokens, op.kv_heads),
                 target(op.to, op.q_tokens, op.heads, op.initial)};
}

void RankStore::apply(const Softmax& op, StoredOp& stored) {
  const HeadRange heads = piece(op.scores).heads;
  stored.rows = {find(op.scores, op.tokens, heads), write(op.weights, TokenList(op.tokens), heads)};
}

void RankStore::apply(const SoftmaxBackward& op, StoredOp& stored) {
  const StoredPiece weights = piece(op.weights);
  expect(weights == piece(op.d_weights), "weights and d_weights lie in different orders");
  stored.rows = {all_rows(op.weights), all_rows(op.d_weights),
                 write(op.d_scores, weights.tokens, weights.heads)};
}

void RankStore::apply(const Weigh& op, StoredOp& stored) {
  stored.rows = {find(op.weights, op.q_tokens, op.heads), find(op.values, op.k_tokens, op.kv_heads),
                 target(op.to, op.q_tokens, op.heads, op.initial)};
}

void RankStore::apply(const WeighBack& op, StoredOp& stored) {
  stored.rows = {find(op.weights, op.q_tokens, op.heads), find(op.rows, op.q_tokens, op.heads),
                 write(op.to, TokenList(op.k_tokens), op.kv_heads)};
}

void RankStore::apply(const LinearForward& op, StoredOp& stored) {
  stored.rows = {find(op.q, op.tokens, op.heads), find(op.k, op.tokens, op.kv_heads),
                 find(op.v, op.tokens, op.kv_heads), write(op.out, TokenList(op.tokens), op.heads)};
}

void RankStore::apply(const LinearBackward& op, StoredOp& stored) {
  const TokenList tokens(op.tokens);
  stored.rows = {find(op.q, op.tokens, op.heads),    find(op.k, op.tokens, op.kv_heads),
                 find(op.v, op.tokens, op.kv_heads), find(op.d_out, op.tokens, op.heads),
                 write(op.d_q, tokens, op.heads),    write(op.d_k, tokens, op.kv_heads),
                 write(op.d_v, tokens, op.kv_heads)};
}

void RankStore::apply(const MakeState& op, StoredOp& stored) {
  stored.rows = {find(op.rows, op.tokens, op.heads), find(op.values, op.tokens, op.heads),
                 write(op.to, TokenList(TokenSet({.begin = op.slot, .count = 1})), op.kv_heads)};
}

void RankStore::apply(const SumStates& op, StoredOp& stored) {
  const HeadRange heads = piece(op.from).heads;
  stored.rows = {find(op.from, op.slots, heads),
                 write(op.to, TokenList(TokenSet({.begin = op.slot, .count = 1})), heads)};
}

void RankStore::apply(const ApplyState& op, StoredOp& stored) {
  stored.rows = {find(op.rows, op.tokens, op.heads), all_rows(op.state),
                 target(op.to, op.tokens, op.heads, op.initial)};
}

void RankStore::apply(const RowDot& op, StoredOp& stored) {
  const StoredPiece out = piece(op.out);
  expect(out == piece(op.d_out), "out and d_out lie in different orders");
  stored.rows = {all_rows(op.out), all_rows(op.d_out), write(op.delta, out.tokens, out.heads)};
}

namespace {

constexpr HeadRange column{.begin = 0, .end = 1};  // of a parameter that has one

}  // namespace

/// Rows of lse twice: those that out has, then all.
void RankStore::apply(const Sink& op, StoredOp& stored) {
  const StoredPiece out = piece(op.out);
  stored.rows = {all_rows(op.out), find(op.lse, out.tokens, out.heads),
                 find(op.sinks, rows_of_heads(out.heads), column), all_rows(op.lse)};
}

void RankStore::apply(const SinkBackward& op, StoredOp& stored) {
  const StoredPiece delta = piece(op.delta);
  const TokenSet rows = rows_of_heads(delta.heads);
  stored.rows = {find(op.lse, delta.tokens, delta.heads), all_rows(op.delta),
                 find(op.sinks, rows, column), write(op.d_sinks, TokenList(rows), column)};
}

void RankStore::apply(const Merge& op, StoredOp& stored) {
  const HeadRange heads = piece(op.part_out).heads;
  stored.rows = {target(op.out, op.tokens, heads, op.initial),
                 target(op.lse, op.tokens, heads, op.initial), find(op.part_out, op.tokens, heads),
                 find(op.part_lse, op.tokens, heads)};
}

void RankStore::apply(const Rescale& op, StoredOp& stored) {
  const StoredPiece out = piece(op.out);
  expect(out == piece(op.lse), "out and lse lie in different orders");
  const TokenList& all = piece(op.gathered_lse).tokens;
  const std::int64_t rows = out.tokens.count();
  for (std::int64_t at = 0; at < all.count(); at += rows) {
    expect(at + rows <= all.count() && all.slice(at, rows) == out.tokens,
           "a member's lse lies in another order");
  }
  stored.rows = {all_rows(op.out), all_rows(op.lse), all_rows(op.gathered_lse),
                 write(op.scaled, out.tokens, out.heads),
                 write(op.global_lse, out.tokens, out.heads)};
}

void RankStore::apply(const Accumulate& op, StoredOp& stored) {
  const HeadRange heads = piece(op.part).heads;
  stored.rows = {target(op.sum, op.tokens, heads, op.initial), find(op.part, op.tokens, heads)};
}

void RankStore::apply(const Fill& op, StoredOp& stored) {
  stored.rows = {write(op.buffer, TokenList(op.tokens), op.heads)};
}

}  // namespace spp
