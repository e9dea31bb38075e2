// The ops of a schedule: what a rank does, in terms of buffers, tokens and heads. Sizes are shapes;
// bytes and FLOPs are derived from them in one place (measure.hpp). An op is a kernel, which works
// on the rank's own device, or a transfer, which meets other ranks. An executor visits `Kernel` and
// `Transfer` without a default, so an op that it lacks does not compile.
// One list, hence one file.
//
// Shapes: a buffer is a tensor tile [batch, tokens, heads, width]; width is head_dim, value_dim for
// values and outputs, 1 for LSE and delta, the padded sequence for what belongs to pairs,
// head_dim^2 for states; of what a graph defines, heads are parts of a row (shape_of). See
// docs/schedule.md for the semantics of each op.
#pragma once

#include "base/error.hpp"
#include "base/id.hpp"
#include "schedule/graph.hpp"
#include "schedule/mesh.hpp"
#include "schedule/problem.hpp"
#include "schedule/tensor.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace spp {

/// state: an input that the program replaces by what comes after it, as weights are by a step.
enum class BufferRole : std::uint8_t { input, output, scratch, state };
/// It is there before the program.
constexpr bool is_given(BufferRole role) {
  return role == BufferRole::input || role == BufferRole::state;
}
/// It must be there after the program.
constexpr bool is_result(BufferRole role) {
  return role == BufferRole::output || role == BufferRole::state;
}
std::string_view to_string(BufferRole);

/// A buffer of a rank. For inputs, outputs and states `tile` and `head_range` are the contents that
/// are there before / must be there after the program; for scratch they are unset and only the size
/// counts. An input may have more `tokens` than its tile: room behind it (a cache).
struct Buffer {
  std::string name;
  Tensor tensor = Tensor::q;
  BufferRole role = BufferRole::scratch;
  DType dtype = DType::bf16;
  std::int64_t tokens = 0;
  int heads = 0;
  std::int64_t width = 1;  // elements of a (token, head)
  std::int64_t batch = 1;
  int label = 0;  // of a tensor of the graph: which
  HeadRange head_range;
  TokenSet tile;

  [[nodiscard]] TensorRef ref() const { return {tensor, label}; }
};

/// Up to eight buffers, by value.
class BufferList {
 public:
  BufferList() = default;
  BufferList(std::initializer_list<BufferId> ids) {
    for (const BufferId id : ids) {
      push_back(id);
    }
  }
  void push_back(BufferId id) {
    ensure(size_ < ids_.size(), "more than eight buffers in one transfer");
    ids_.at(size_++) = id;
  }
  [[nodiscard]] std::span<const BufferId> ids() const { return {ids_.data(), size_}; }
  [[nodiscard]] std::span<BufferId> ids() { return {ids_.data(), size_}; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] const BufferId* begin() const { return ids_.data(); }
  [[nodiscard]] const BufferId* end() const { return ids_.data() + size_; }
  friend bool operator==(const BufferList&, const BufferList&) = default;

 private:
  std::array<BufferId, 8> ids_{};
  std::uint8_t size_ = 0;
};

// ---- kernels
// -------------------------------------------------------------------------------------

/// One attention kernel: queries `q_tokens` of buffer q against keys `k_tokens` of k and v, as far
/// as the mask (of the problem's, number `mask`) allows; writes normalised out and natural-log lse
/// of just this block.
struct AttentionForward {
  BufferId q, k, v, out, lse;
  TokenSet q_tokens, k_tokens;
  HeadRange heads, kv_heads;
  int mask = 0;
  friend bool operator==(const AttentionForward&, const AttentionForward&) = default;
};

/// Backward of one block from *global* lse and delta = rowsum(d_out * out): writes the block's
/// contributions d_q (to q_tokens), d_k and d_v (to k_tokens).
struct AttentionBackward {
  BufferId q, k, v, d_out, lse, delta, d_q, d_k, d_v;
  TokenSet q_tokens, k_tokens;
  HeadRange heads, kv_heads;
  int mask = 0;
  friend bool operator==(const AttentionBackward&, const AttentionBackward&) = default;
};

/// Products of all pairs of a block, masked or not: scores = q.k (of k and q), or d_weights =
/// d_out.v; writes the columns of `k_tokens`, one range. `initial`: the rows hold no other columns.
struct Scores {
  BufferId rows, columns, to;
  TokenSet q_tokens, k_tokens;
  HeadRange heads, kv_heads;
  bool initial = false;
  friend bool operator==(const Scores&, const Scores&) = default;
};

/// weights = softmax(scores / sqrt(head_dim)) over the keys that the mask allows; 0 elsewhere.
struct Softmax {
  BufferId scores, weights;
  TokenSet tokens;  // the rows
  int mask = 0;
  friend bool operator==(const Softmax&, const Softmax&) = default;
};

/// d_scores = weights * (d_weights - rowsum(weights * d_weights)) / sqrt(head_dim): the gradient of
/// q.k.
struct SoftmaxBackward {
  BufferId weights, d_weights, d_scores;
  friend bool operator==(const SoftmaxBackward&, const SoftmaxBackward&) = default;
};

/// Sums over the keys of a block: out += weights v, or d_q += d_scores k; `initial`: the sum was
/// empty.
struct Weigh {
  BufferId weights, values, to;
  TokenSet q_tokens, k_tokens;
  HeadRange heads, kv_heads;
  bool initial = false;
  friend bool operator==(const Weigh&, const Weigh&) = default;
};

/// Sums over the queries of a block, and over the query heads of a KV head: d_v = weights^T d_out,
/// or d_k = d_scores^T q; writes `k_tokens`.
struct WeighBack {
  BufferId weights, rows, to;
  TokenSet q_tokens, k_tokens;
  HeadRange heads, kv_heads;
  friend bool operator==(const WeighBack&, const WeighBack&) = default;
};

/// Causal linear attention of a rank's own tokens among each other: writes out of just these.
struct LinearForward {
  BufferId q, k, v, out;
  TokenSet tokens;  // rising
  HeadRange heads, kv_heads;
  friend bool operator==(const LinearForward&, const LinearForward&) = default;
};

/// Its backward: writes what these tokens contribute.
struct LinearBackward {
  BufferId q, k, v, d_out, d_q, d_k, d_v;
  TokenSet tokens;
  HeadRange heads, kv_heads;
  friend bool operator==(const LinearBackward&, const LinearBackward&) = default;
};

/// Slot `slot` of `to` = sum over `tokens` of rows (x) values: state of k and v, d_state of q and
/// d_out (summed over the query heads of a KV head, too).
struct MakeState {
  BufferId rows, values, to;
  TokenSet tokens;
  HeadRange heads, kv_heads;  // of rows and values; of `to`
  std::int64_t slot = 0;
  friend bool operator==(const MakeState&, const MakeState&) = default;
};

/// Slot `slot` of `to` = sum of the slots `slots` of `from`.
struct SumStates {
  BufferId from, to;
  TokenSet slots;
  std::int64_t slot = 0;
  friend bool operator==(const SumStates&, const SumStates&) = default;
};

/// What a state says to rows, / sqrt(head_dim), added to `to` (`initial`: written):
/// out += q state, d_q += d_out state^T, d_k += v d_state^T, d_v += k d_state.
struct ApplyState {
  BufferId rows, state, to;
  TokenSet tokens;
  HeadRange heads, kv_heads;  // of rows and `to`; of the state
  bool initial = false;
  friend bool operator==(const ApplyState&, const ApplyState&) = default;
};

/// delta = rowsum(d_out * out), fp32, for all tokens and heads of d_out.
struct RowDot {
  BufferId out, d_out, delta;
  friend bool operator==(const RowDot&, const RowDot&) = default;
};

/// What a sink of each head, a logit s, makes of all rows of out and lse, which have met every key:
/// lse' = log(e^lse + e^s), out' = e^(lse - lse') out, in place. `sinks`: the parameter, of these
/// heads or more; lse may have tokens that out does not.
struct Sink {
  BufferId out, lse, sinks;
  friend bool operator==(const Sink&, const Sink&) = default;
};

/// The sinks' gradient, of all rows of delta: d_s = -sum over them of e^(s - lse') delta, written
/// to the rows of its heads. lse' and delta, with the sink, are what the backward of a block takes.
struct SinkBackward {
  BufferId lse, delta, sinks, d_sinks;
  friend bool operator==(const SinkBackward&, const SinkBackward&) = default;
};

/// Online-softmax merge of a block's (out, lse) into accumulators; fp32 accumulation.
/// `tokens` is the part's tile (it may be part of the accumulator's). `initial`: the accumulator
/// was empty, the part is just converted.
struct Merge {
  BufferId out, lse, part_out, part_lse;
  TokenSet tokens;
  bool initial = false;
  friend bool operator==(const Merge&, const Merge&) = default;
};

/// Prepares an LSE-weighted sum over a team: from the gathered partial LSEs of all members computes
/// the global lse, scales this member's partial out by exp(own lse - global lse) and casts it.
struct Rescale {
  BufferId out, lse, gathered_lse;  // in: own partial out and lse, all members' lse
  BufferId scaled, global_lse;      // out
  friend bool operator==(const Rescale&, const Rescale&) = default;
};

/// sum += part, for the tile of `part` (`tokens`, which may be part of the sum's; of a parameter's
/// gradient its rows); fp32 accumulation. `initial`: the sum was empty, the part is just converted.
struct Accumulate {
  BufferId sum, part;
  TokenSet tokens;
  bool initial = false;
  friend bool operator==(const Accumulate&, const Accumulate&) = default;
};

/// Sets a tile to the neutral element of merge and sum: zero, -infinity for lse. Where a member of
/// a team may meet no key at all for some of its queries, accumulators start from it; so does the
/// gradient of sinks, of which a rank gives only its own heads', and a sum over tokens' slots, of
/// which it has only its own experts'.
struct Fill {
  BufferId buffer;
  TokenSet tokens;
  HeadRange heads;
  friend bool operator==(const Fill&, const Fill&) = default;
};

enum class CopyKind : std::uint8_t {
  pack,      // into the send order of an all-to-all
  unpack,    // out of the receive order of an all-to-all
  cast,      // to another dtype
  reorder,   // tokens into sequence order
  deal,      // tokens from sequence order into the chunks of a layout
  take,      // some rows, beside what the target holds
  add,       // some rows, to the target's sums of their tokens
  fold,      // sum the copies of replicated KV heads (gradients), on the way out of an all-to-all
  dispatch,  // tokens, or what their slots have, into the slots in the order of their experts
  combine    // out of that order: the sum over a token's slots, or what its slots have
};
std::string_view to_string(CopyKind);

/// A copy kernel: every element of `from` is read and lands in `to`; of `take` and `add` those of
/// `tokens`, which need not lie together in the one or the other. `dispatch` and `combine` stand
/// for the graph's functions of these names, and for their gradients, which are each other: between
/// a value and its slots. Between two buffers of one tensor they move what slots have. Of all
/// slots, or of those that one group of experts has: then `combine` adds to sums that are there.
struct Copy {
  [[nodiscard]] bool of_some() const { return kind == CopyKind::take || kind == CopyKind::add; }
  [[nodiscard]] bool of_slots() const {
    return kind == CopyKind::dispatch || kind == CopyKind::combine;
  }
  CopyKind kind = CopyKind::cast;
  BufferId from, to;
  // Of `deal`: the chunks that tokens in sequence order are put into, one after the other.
  Layout layout = Layout::contiguous;
  int chunks = 1;
  TokenSet tokens = {};  // of `take` and `add`; of `dispatch` and `combine`, whose slots
  bool of_group = false;
  int expert_group = 0;
  friend bool operator==(const Copy&, const Copy&) = default;
};

/// A product of `definition`, a linear layer of the graph, for some tokens and the parts that the
/// buffers hold: c = a b. `initial`: the sum was empty, else the product is added. `bias`, none or
/// one, in the product's epilogue: the layer's, which a forward adds to c; its gradient, which a
/// weight gradient writes: the sum of d_y over the tokens. `bias_weights`: of each slot, by which
/// an expert's bias is multiplied, and d_y in its gradient; an input gradient, which then reads the
/// bias, writes theirs: the product of d_y with it.
struct Gemm {
  GemmKind kind = GemmKind::forward;
  int definition = 0;
  BufferId a, b, c;
  BufferList bias{}, bias_weights{};
  TokenSet tokens;
  bool initial = true;
  int experts = 0;  // whose matrices, one below the other, each multiplies its slots; 0: none
  friend bool operator==(const Gemm&, const Gemm&) = default;
};

/// Another definition of the graph, row by row, or its gradient, for some tokens and the parts that
/// the buffers hold. Forward: reads what the definition reads, then its parameter; writes what it
/// writes. Backward:
///   norms        x, parameter, statistics, d_y -> d_x, d_parameter
///   split_heads  d_q, d_k, d_v -> d_qkv; where q and k are normed:
///                d_q, d_k, d_v, qkv, parameter -> d_qkv, d_parameter
///   swiglu       gate, up, d_a -> d_gate, d_up
///   gelu         h, d_a -> d_h
///   add          d_z, d_x -> d_x: what others have given an input of the sum, and what it gives
///   embedding    words, table, d_x -> d_table; of the table only its rows' numbers are read
///   word_sums    logits, targets, log_sum -> d_logits of the mean loss; word_loss has none
///   route        weights, d_weights -> d_scores
///   expert_swiglu  gate_up, weights, d_a -> d_gate_up, d_weights; reads d_weights, too, and adds
///                  to them, where a weighted bias gives them before
/// An update (adam) has no backward: d_parameter, master, moments -> master, moments, parameter;
/// `tokens` are rows of the parameter.
struct RowKernel {
  int definition = 0;
  bool backward = false;
  BufferList reads, writes;
  TokenSet tokens;
  int part = 0;        // of an embedding's table, or of the logits of word_sums: which it works on
  bool slots = false;  // its buffers hold slots of the tokens, in the order of their experts
  friend bool operator==(const RowKernel&, const RowKernel&) = default;
};

/// What works on a rank's own device.
using Kernel =
    std::variant<AttentionForward, AttentionBackward, Scores, Softmax, SoftmaxBackward, Weigh,
                 WeighBack, LinearForward, LinearBackward, MakeState, SumStates, ApplyState, RowDot,
                 Sink, SinkBackward, Merge, Rescale, Accumulate, Fill, Copy, Gemm, RowKernel>;

// ---- transfers
// -----------------------------------------------------------------------------------

/// Batched point-to-point: sends `send` to rank `to` and receives into `receive` from rank `from`;
/// either may be missing (invalid rank, empty list). Done when both are done. Messages between two
/// ranks on one stream match in order. `to` == `from` == own rank is a local copy.
struct Exchange {
  Rank to, from;
  BufferList send, receive;
  friend bool operator==(const Exchange&, const Exchange&) = default;
};

enum class CollectiveKind : std::uint8_t {
  all_to_all,      // everybody gets its part of what everybody brings
  all_gather,      // everybody gets all ranks' `from`, one after the other by group index
  reduce_scatter,  // element-wise sum of all `from`; each rank gets its own part of it
  all_reduce  // the same sum, all of it for everybody; a ring reduces equal parts, then gathers
};

/// Parts are tokens, all heads of each.
struct TokenDeal {
  friend bool operator==(const TokenDeal&, const TokenDeal&) = default;
};

enum class HeadDirection : std::uint8_t { scatter_heads, gather_heads };
std::string_view to_string(HeadDirection);

/// Parts are heads (Ulysses). scatter_heads: each rank brings `tokens` tokens of all heads and
/// leaves with all the group's tokens of its own heads (`split`; KV heads if `kv`). gather_heads:
/// back.
struct HeadDeal {
  HeadDirection direction = HeadDirection::scatter_heads;
  HeadSplit split;
  bool kv = false;
  std::int64_t tokens = 0;  // of one rank, before scatter_heads / after gather_heads
  int first = 0;            // part of the split that group index 0 has
  /// Heads of group index `part`.
  [[nodiscard]] HeadRange heads(int part) const {
    return kv ? split.kv(first + part) : split.q(first + part);
  }
  friend bool operator==(const HeadDeal&, const HeadDeal&) = default;
};

/// Parts are what tokens bring to groups of experts, one of which each member has, by group index.
/// Each rank brings its own tokens' slots in the order of their experts and leaves with what all
/// bring to its own; or back.
struct ExpertDeal {
  bool back = false;
  std::int64_t cells = 0;  // tokens x slots between two members
  friend bool operator==(const ExpertDeal&, const ExpertDeal&) = default;
};

/// How a collective hands out parts.
using Deal = std::variant<TokenDeal, HeadDeal, ExpertDeal>;

/// All ranks of `group` meet. An all-to-all deals heads, or slots to experts; all others deal
/// tokens.
struct Collective {
  CollectiveKind kind = CollectiveKind::all_gather;
  RankGroup group;
  BufferId from, to;
  Deal deal;
  TokenSet to_tokens;  // what `to` holds afterwards
  HeadRange to_heads;
  friend bool operator==(const Collective&, const Collective&) = default;
};

/// What meets other ranks.
using Transfer = std::variant<Exchange, Collective>;

using OpBody = std::variant<Kernel, Transfer>;

struct Op {
  StreamId stream;
  OpBody body;
  friend bool operator==(const Op&, const Op&) = default;
};

/// What an op is, one word for each: for timelines, tables of costs and the text form.
enum class OpKind : std::uint8_t {
  attention_fwd,
  attention_bwd,
  scores,
  softmax,
  softmax_bwd,
  weigh,
  weigh_back,
  linear_fwd,
  linear_bwd,
  make_state,
  sum_states,
  apply_state,
  row_dot,
  sink,
  sink_bwd,
  merge,
  rescale,
  accumulate,
  fill,
  copy,
  gemm,
  row_kernel,
  exchange,
  all_to_all,
  all_gather,
  reduce_scatter,
  all_reduce
};
constexpr std::size_t op_kinds = 27;
std::string_view to_string(OpKind);
OpKind kind_of(const OpBody& body);
/// A kernel that does attention's own matmuls.
constexpr bool is_attention(OpKind kind) {
  return kind < OpKind::row_dot && kind != OpKind::softmax && kind != OpKind::softmax_bwd &&
         kind != OpKind::sum_states;
}
constexpr bool is_transfer(OpKind kind) { return kind >= OpKind::exchange; }
/// An op of that kind with nothing filled in.
OpBody blank_op(OpKind kind);

/// "attention_fwd", "exchange", …: the word of the text form.
inline std::string_view name_of(const OpBody& body) { return to_string(kind_of(body)); }
inline bool is_transfer(const OpBody& body) { return std::holds_alternative<Transfer>(body); }

/// Of the problem's, the mask by which an op sees; 0 of those that see nothing, too.
template <class Body>
int mask_number(const Body& op) {
  if constexpr (requires { op.mask; }) {
    return op.mask;
  } else {
    return 0;
  }
}
/// The op as T (AttentionForward, Exchange, …); nullptr if it is another.
template <class T>
const T* op_if(const OpBody& body) {
  constexpr bool transfer = std::is_same_v<T, Exchange> || std::is_same_v<T, Collective>;
  const auto* either = std::get_if<std::conditional_t<transfer, Transfer, Kernel>>(&body);
  return either != nullptr ? std::get_if<T>(either) : nullptr;
}
template <class T>
T* op_if(OpBody& body) {
  return const_cast<T*>(op_if<T>(std::as_const(body)));
}

/// f(op) with the op as what it is: kernel or transfer.
template <class F>
decltype(auto) visit_op(F&& f, const OpBody& body) {
  return std::visit([&](const auto& either) { return std::visit(f, either); }, body);
}

/// Buffers that an op touches, in the op's own order. An op that reads and writes a buffer lists it
/// in both.
struct Access {
  std::array<BufferId, 16> reads_storage{};
  std::array<BufferId, 16> writes_storage{};
  std::uint8_t read_count = 0;
  std::uint8_t write_count = 0;
  [[nodiscard]] std::span<const BufferId> reads() const {
    return {reads_storage.data(), read_count};
  }
  [[nodiscard]] std::span<const BufferId> writes() const {
    return {writes_storage.data(), write_count};
  }
};
Access access_of(const OpBody& body);

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

}  // namespace spp
