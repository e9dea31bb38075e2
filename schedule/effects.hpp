// What each op does to the symbolic contents of buffers, and what it must find there. The rules:
//
//  attention_fwd   one piece of every q, k, v cell; out and lse get the key atoms that the mask
//  allows
//                  (an atom that the mask cuts counts as met: the kernel applies the mask exactly)
//  attention_bwd   lse and delta of *all* keys of a query; contributions to d_q, d_k, d_v
//  scores          one piece of every cell of rows and columns; columns that are not there yet
//  softmax         scores of all keys that a query may see, of the named tokens and no others;
//                  weights are divided by their sum
//  softmax_bwd     the same of d_weights, and such weights
//  weigh           a disjoint union with the sum: the keys of the block, normalised as the weights
//  weigh_back      the query cells of the block, of every cell of keys
//  linear_fwd/bwd  as attention_fwd/bwd, without statistics
//  make_state      the sum of all its tokens
//  sum_states      the disjoint union of its slots
//  apply_state     a disjoint union with the sum; the mask must allow all pairs that it stands for
//  row_dot         delta of a complete out
//  sink            one more contribution to out and lse, which have none of it yet
//  sink_bwd        lse of all keys and the sink, delta; the tokens of every head
//  merge           a disjoint union with the accumulator; initial: replaces it
//  rescale         normaliser of own out = the disjoint union over the gathered lse
//  accumulate      a disjoint union; out only with equal normalisers
//  fill            no contribution yet
//  copy            unchanged; fold: disjoint union of the pieces of a cell; take: as accumulate
//                  initial, add: as accumulate; dispatch, combine: the named tokens' slots
//  gemm            the row parts of the parameter that are there (forward), a disjoint union of
//                  what its column parts (input gradient) or tokens (weight gradient) give; of
//                  operands that are complete
//  row_kernel        complete, or what this definition gives a gradient; of operands that are
//  complete exchange        the whole content moves; the buffers at both ends are alike all_to_all
//  each rank gets, of its `to_tokens` x `to_heads`, every member's pieces all_gather      the same,
//  and there is nothing else to get reduce_scatter  the same, one piece of a cell from every
//  member, then their disjoint union all_reduce      the same, and all members name the same
//
// A kernel writes tile by tile: pieces of the same cells are replaced, others stay while the buffer
// has room for them, else the buffer was reused and they are gone. A transfer or a copy replaces
// the whole content, but for those of some rows (take, add), which are written as a tile.
#pragma once

#include "schedule/contents.hpp"
#include "schedule/meetings.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

/// What a proof found wrong. The first finding is the counter-example.
class Findings {
 public:
  /// The walk cannot go on.
  void stop(std::string what) {
    note(std::move(what));
    stopped_ = true;
  }
  /// The walk goes on, so that the end can say what else is wrong.
  void note(std::string what) {
    if (first_.empty()) {
      first_ = std::move(what);
    }
  }
  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] const std::string& first() const { return first_; }

 private:
  std::string first_;
  bool stopped_ = false;
};

/// What all ranks of a proof share.
struct Ledger {
  Ledger(const Schedule& schedule, std::span<const std::span<const Buffer>> tiles)
      : grid(schedule, tiles), problem(schedule.contract.attention) {
    for (int attention = 0; attention < schedule.contract.graph.attentions(); ++attention) {
      forward.emplace_back(grid, attention, schedule.contract.recomputes ? 2 : 1);
      backward.emplace_back(grid, attention, 1);
    }
  }
  Ledger(const Ledger&) = delete;  // the meetings look at the grid
  Ledger& operator=(const Ledger&) = delete;
  ~Ledger() = default;

  AtomGrid grid;
  Problem problem;
  std::vector<Meetings> forward, backward;  // by attention
  Findings findings;
};

/// One rank in the middle of one op.
struct Site {
  Ledger* ledger = nullptr;
  Rank rank;
  std::int64_t op = 0;  // counted from 0, as lines of the text form
  std::string_view op_name;
  std::string_view stream;
  int attention = 0;  // whose tensors a kernel of attention works on
  std::span<const Buffer> buffers;
  std::span<Contents> contents;

  [[nodiscard]] const AtomGrid& grid() const { return ledger->grid; }
  [[nodiscard]] const Buffer& buffer(BufferId id) const { return buffers[id.index()]; }
  [[nodiscard]] std::string name(TensorRef ref) const { return grid().graph().name(ref); }
  [[nodiscard]] std::string quoted(BufferId id) const {
    return fmt::format("'{}'", buffer(id).name);
  }
  [[nodiscard]] Contents& content(BufferId id) const { return contents[id.index()]; }
  /// A tensor of the kernel's attention.
  [[nodiscard]] TensorRef own(Tensor tensor) const { return {tensor, attention}; }
  [[nodiscard]] Meetings& meetings(Phase phase) const {
    auto& of_phase = phase == Phase::forward ? ledger->forward : ledger->backward;
    return of_phase[static_cast<std::size_t>(attention)];
  }
  /// "rank 3, op 17 attention_fwd (stream compute)".
  [[nodiscard]] std::string where() const;
  void stop(std::string_view what) const;
  void note(std::string_view what) const;
};

// Every effect either leaves its result in the contents or stops the findings.
void apply(const Site& site, const AttentionForward& op);
void apply(const Site& site, const AttentionBackward& op);
void apply(const Site& site, const Scores& op);
void apply(const Site& site, const Softmax& op);
void apply(const Site& site, const SoftmaxBackward& op);
void apply(const Site& site, const Weigh& op);
void apply(const Site& site, const WeighBack& op);
void apply(const Site& site, const LinearForward& op);
void apply(const Site& site, const LinearBackward& op);
void apply(const Site& site, const MakeState& op);
void apply(const Site& site, const SumStates& op);
void apply(const Site& site, const ApplyState& op);
void apply(const Site& site, const RowDot& op);
void apply(const Site& site, const Sink& op);
void apply(const Site& site, const SinkBackward& op);
void apply(const Site& site, const Merge& op);
void apply(const Site& site, const Rescale& op);
void apply(const Site& site, const Accumulate& op);
void apply(const Site& site, const Fill& op);
void apply(const Site& site, const Copy& op);
void apply(const Site& site, const Gemm& op);
void apply(const Site& site, const RowKernel& op);

/// One message: `send` of one rank arrives in `receive` of another (or the same).
void deliver(const Site& sender, const Exchange& sent, const Site& receiver,
             const Exchange& received);
/// All members of the group are here, by group index; their calls agree.
void meet(std::span<const Site> sites, std::span<const Collective* const> ops);

// ---- the parts that effects are made of
// ----------------------------------------------------------

/// The buffer holds `tensor` and something was written to it; else stops.
bool readable(const Site& site, BufferId id, TensorRef tensor);
/// The same of a tensor of the kernel's attention.
inline bool readable(const Site& site, BufferId id, Tensor tensor) {
  return readable(site, id, site.own(tensor));
}
/// The only piece of a cell; stops and gives nullptr if there is none or more than one.
const Piece* only_piece(const Site& site, BufferId id, const Cell& cell);
/// Atoms of a token set that an op names; stops and gives nullptr if it is no union of atoms. The
/// rows of `tensor`: token atoms, or slots of states.
const std::vector<int>* named_tokens(const Site& site, const TokenSet& set);
const std::vector<int>* named_rows(const Site& site, const TokenSet& set, TensorRef tensor);
/// Head atoms of a range that an op names; stops likewise.
std::optional<HeadAtoms> named_heads(const Site& site, HeadRange range, TensorRef tensor);
/// The tile of queries and keys that a kernel works on.
struct Block {
  std::span<const int> queries, keys;
  HeadAtoms heads, kv_heads;
};
/// lse of every query of the block covers all the keys that the mask allows, and the sink; else
/// stops.
/// Whether a tensor's contributions add up: what is no sum has none, so that nobody would see a
/// second one.
bool is_sum(const Site& site, TensorRef ref);
/// Stops, and says no, if it is none.
bool expect_sum(const Site& site, TensorRef ref);
bool global_lse(const Site& site, BufferId lse, const Block& block);
/// Stops if tokens are of several micro-batches.
bool within_micro_batch(const Site& site, const TokenSet& queries, const TokenSet& keys);
/// Stops and gives nothing if the query heads do not attend to the KV heads.
std::optional<HeadAtoms> attended_heads(const Site& site, HeadRange heads, HeadRange kv_heads);
template <class Op>
std::optional<Block> named_block(const Site& site, const Op& op) {
  if (!within_micro_batch(site, op.q_tokens, op.k_tokens)) {
    return {};
  }
  const auto* queries = named_tokens(site, op.q_tokens);
  const auto* keys = queries != nullptr ? named_tokens(site, op.k_tokens) : nullptr;
  const auto heads = keys != nullptr ? named_heads(site, op.heads, Tensor::q) : std::nullopt;
  const auto kv_heads = heads ? attended_heads(site, op.heads, op.kv_heads) : std::nullopt;
  if (!kv_heads) {
    return {};
  }
  return Block{.queries = *queries, .keys = *keys, .heads = *heads, .kv_heads = *kv_heads};
}
/// The same; stops if the mask hides all of it.
std::optional<Block> seen_block(const Site& site, const Block& block, const TokenSet& queries,
                                const TokenSet& keys);
/// One piece of every cell of a tile; else stops.
bool holds(const Site& site, BufferId id, Tensor tensor, std::span<const int> rows,
           HeadAtoms heads);
/// The problem's attention is this; else stops.
bool computes(const Site& site, AttentionFunction function);
/// Its attention's mask is this one of the problem's; else stops.
bool sees_by(const Site& site, int mask);
/// d_k or d_v of a block: what its queries contribute to each cell of its keys.
Contents key_gradients(const Site& site, const Block& block);
/// out or d_q of a block: the keys that each cell of its queries may see, noted as met.
Contents query_sums(const Site& site, const Block& block, Phase phase);
/// Writes tile by tile (see above).
void write(const Site& site, BufferId id, TensorRef tensor, Contents added);
inline void write(const Site& site, BufferId id, Tensor tensor, Contents added) {
  write(site, id, site.own(tensor), std::move(added));
}
/// Replaces the whole content.
void overwrite(const Site& site, BufferId id, Contents added);
/// target += part. Overlap is noted as a double count, `from` and `into` say whose.
void unite(const Site& site, TensorRef tensor, Piece& target, const Piece& part,
           std::string_view from, std::string_view into);

}  // namespace spp
