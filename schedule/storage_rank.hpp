// One rank of store(): what lies where in its buffers, changed op by op.
#pragma once

#include "schedule/storage.hpp"

#include <stdexcept>
#include <string>

namespace spp {

/// An order that does not fit: store() and misplaced() say so, each in its way.
class Misplaced : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a rank brings to a collective.
struct Contribution {
  StoredContent from;
  TokenList to_tokens;
};

class RankStore {
 public:
  /// `buffers`: of the rank's program; they outlive this.
  RankStore(const Schedule& schedule, Rank rank, std::span<const Buffer> buffers);

  [[nodiscard]] const StoredContent& content(BufferId id) const { return contents_[id.index()]; }
  /// The op that the rank is in; for messages.
  void enter(const Op& op) { op_ = &op; }

  // Each follows one op: fills `stored` and changes the contents.
  void apply(const AttentionForward& op, StoredOp& stored);
  void apply(const AttentionBackward& op, StoredOp& stored);
  void apply(const Scores& op, StoredOp& stored);
  void apply(const Softmax& op, StoredOp& stored);
  void apply(const SoftmaxBackward& op, StoredOp& stored);
  void apply(const Weigh& op, StoredOp& stored);
  void apply(const WeighBack& op, StoredOp& stored);
  void apply(const LinearForward& op, StoredOp& stored);
  void apply(const LinearBackward& op, StoredOp& stored);
  void apply(const MakeState& op, StoredOp& stored);
  void apply(const SumStates& op, StoredOp& stored);
  void apply(const ApplyState& op, StoredOp& stored);
  void apply(const RowDot& op, StoredOp& stored);
  void apply(const Sink& op, StoredOp& stored);
  void apply(const SinkBackward& op, StoredOp& stored);
  void apply(const Merge& op, StoredOp& stored);
  void apply(const Rescale& op, StoredOp& stored);
  void apply(const Accumulate& op, StoredOp& stored);
  void apply(const Fill& op, StoredOp& stored);
  void apply(const Copy& op, StoredOp& stored);
  void apply(const Gemm& op, StoredOp& stored);
  void apply(const RowKernel& op, StoredOp& stored);
  void receive(BufferId buffer, StoredContent content);
  /// No op asks any more where it lies.
  void forget(BufferId buffer) { contents_[buffer.index()] = {}; }
  /// `members` by group index.
  void apply(const Collective& op, std::span<const Contribution> members, StoredOp& stored);

 private:
  [[noreturn]] void fail(std::string_view what) const;
  void expect(bool ok, std::string_view what) const;
  [[nodiscard]] const Buffer& buffer(BufferId id) const { return buffers_[id.index()]; }
  /// The only piece.
  [[nodiscard]] const StoredPiece& piece(BufferId id) const;
  [[nodiscard]] RowSpan all_rows(BufferId id) const;
  /// Where `tokens` lie.
  [[nodiscard]] RowSpan find(BufferId id, const TokenList& tokens, HeadRange heads) const;
  [[nodiscard]] RowSpan find(BufferId id, const TokenSet& tokens, HeadRange heads) const {
    return find(id, TokenList(tokens), heads);
  }
  /// Where `tokens` are written; they lie there from now on.
  RowSpan write(BufferId id, const TokenList& tokens, HeadRange heads);
  /// Where a sum of `tokens` lies, which is new (`initial`) or there.
  RowSpan target(BufferId id, const TokenSet& tokens, HeadRange heads, bool initial) {
    return initial ? write(id, TokenList(tokens), heads) : find(id, tokens, heads);
  }
  void overwrite(BufferId id, StoredContent content);
  /// The order in which a copy leaves the pieces.
  [[nodiscard]] StoredContent copied(const Copy& op) const;
  [[nodiscard]] std::int64_t cells(std::int64_t rows, int heads) const {
    return rows * schedule_->contract.attention.batch * heads;
  }
  [[nodiscard]] std::int64_t cells(const StoredPiece& p) const {
    return cells(p.tokens.count(), p.heads.count());
  }
  /// Of a buffer that may be without a batch.
  [[nodiscard]] std::int64_t cells(BufferId id, std::int64_t rows, int heads) const {
    return rows * buffer(id).batch * heads;
  }
  [[nodiscard]] std::int64_t cells(BufferId id, const StoredPiece& p) const {
    return cells(id, p.tokens.count(), p.heads.count());
  }
  void copy_some(const Copy& op, StoredOp& stored);
  void copy_slots(const Copy& op, StoredOp& stored);
  void to_experts(const Collective& op, std::span<const Contribution> members, StoredOp& stored);
  void from_experts(const Collective& op, std::span<const Contribution> members, StoredOp& stored);
  void multiply_experts(const Gemm& op, StoredOp& stored);
  void weigh_bias(const Gemm& op, const StoredContent& slots, StoredOp& stored);
  /// All cells of a buffer of slots, as rows.
  [[nodiscard]] RowSpan all_cells(BufferId id) const;
  void add_moves(const StoredContent& from, const StoredContent& to, StoredOp& stored) const;
  void scatter_heads(const Collective& op, std::span<const Contribution> members, StoredOp& stored);
  void gather_heads(const Collective& op, std::span<const Contribution> members, StoredOp& stored);
  void gather(const Collective& op, std::span<const Contribution> members, StoredOp& stored);
  void update(const RowKernel& op, StoredOp& stored);
  void scatter_sum(const Collective& op, std::span<const Contribution> members, StoredOp& stored);
  void sum(const Collective& op, std::span<const Contribution> members, StoredOp& stored);

  const Schedule* schedule_;
  Rank rank_;
  std::span<const Buffer> buffers_;
  std::vector<StoredContent> contents_;
  const Op* op_ = nullptr;
};

}  // namespace spp
