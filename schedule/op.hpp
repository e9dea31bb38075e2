// The ops of a schedule: what a rank does, in terms of buffers, tokens and heads. Sizes are shapes;
// bytes and FLOPs are derived from them in one place (measure.hpp). An executor visits `OpBody`
// without a default, so an op that it lacks does not compile.
//
// Shapes: a buffer is a tensor tile [batch, tokens, heads, width]; width is head_dim, or 1 for LSE
// and delta (fp32). See docs/schedule.md for the semantics of each op.
#pragma once

#include "base/error.hpp"
#include "base/id.hpp"
#include "schedule/mesh.hpp"
#include "schedule/problem.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <variant>

namespace spp {

enum class Tensor : std::uint8_t { q, k, v, out, lse, d_out, d_q, d_k, d_v, delta };
std::string_view to_string(Tensor);

enum class BufferRole : std::uint8_t { input, output, scratch };
std::string_view to_string(BufferRole);

/// A buffer of a rank. For inputs and outputs `tile` and `head_range` are the contents that are
/// there before / must be there after the program; for scratch they are unset and only the size
/// counts.
struct Buffer {
  std::string name;
  Tensor tensor = Tensor::q;
  BufferRole role = BufferRole::scratch;
  DType dtype = DType::bf16;
  std::int64_t tokens = 0;
  int heads = 0;
  TokenSet tile;
  HeadRange head_range;
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
/// as the mask allows; writes normalised out and natural-log lse of just this block.
struct AttentionForward {
  BufferId q, k, v, out, lse;
  TokenSet q_tokens, k_tokens;
  HeadRange heads, kv_heads;
  friend bool operator==(const AttentionForward&, const AttentionForward&) = default;
};

/// Backward of one block from *global* lse and delta = rowsum(d_out * out): writes the block's
/// contributions d_q (to q_tokens), d_k and d_v (to k_tokens).
struct AttentionBackward {
  BufferId q, k, v, d_out, lse, delta, d_q, d_k, d_v;
  TokenSet q_tokens, k_tokens;
  HeadRange heads, kv_heads;
  friend bool operator==(const AttentionBackward&, const AttentionBackward&) = default;
};

/// delta = rowsum(d_out * out), fp32, for all tokens and heads of d_out.
struct RowDot {
  BufferId out, d_out, delta;
  friend bool operator==(const RowDot&, const RowDot&) = default;
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

/// sum += part, for the tile of `part` (`tokens`, which may be part of the sum's); fp32
/// accumulation. `initial`: the sum was empty, the part is just converted.
struct Accumulate {
  BufferId sum, part;
  TokenSet tokens;
  bool initial = false;
  friend bool operator==(const Accumulate&, const Accumulate&) = default;
};

/// Sets a tile to the neutral element of merge and sum: zero, -infinity for lse. Where a member of
/// a team may meet no key at all for some of its queries, accumulators start from it.
struct Fill {
  BufferId buffer;
  TokenSet tokens;
  HeadRange heads;
  friend bool operator==(const Fill&, const Fill&) = default;
};

enum class CopyKind : std::uint8_t {
  pack,     // into the send order of an all-to-all
  unpack,   // out of the receive order of an all-to-all
  cast,     // to another dtype
  reorder,  // tokens into sequence order
  deal,     // tokens from sequence order into the chunks of the ring's ranks
  fold      // sum the copies of replicated KV heads (gradients), on the way out of an all-to-all
};
std::string_view to_string(CopyKind);

/// A copy kernel: every element of `from` is read and lands in `to`.
struct Copy {
  CopyKind kind = CopyKind::cast;
  BufferId from, to;
  friend bool operator==(const Copy&, const Copy&) = default;
};

// ---- communication
// -------------------------------------------------------------------------------

/// Batched point-to-point: sends `send` to rank `to` and receives into `receive` from rank `from`;
/// either may be missing (invalid rank, empty list). Done when both are done. Messages between two
/// ranks on one stream match in order. `to` == `from` == own rank is a local copy.
struct Exchange {
  Rank to, from;
  BufferList send, receive;
  friend bool operator==(const Exchange&, const Exchange&) = default;
};

enum class AllToAllKind : std::uint8_t { scatter_heads, gather_heads };
std::string_view to_string(AllToAllKind);

/// Ulysses all-to-all inside `group`. scatter_heads: each rank brings `tokens` tokens of all heads
/// and leaves with all the group's tokens of its own heads (`split`; KV heads if `kv`).
/// gather_heads: back.
struct AllToAll {
  RankGroup group;
  AllToAllKind kind = AllToAllKind::scatter_heads;
  BufferId from, to;
  HeadSplit split;
  bool kv = false;
  std::int64_t tokens = 0;  // of one rank, before scatter_heads / after gather_heads
  TokenSet to_tokens;       // what `to` holds afterwards
  HeadRange to_heads;
  friend bool operator==(const AllToAll&, const AllToAll&) = default;
};

/// Every rank of the group gets all ranks' `from` in `to`, one after the other by group index.
struct AllGather {
  RankGroup group;
  BufferId from, to;
  TokenSet to_tokens;
  HeadRange to_heads;
  friend bool operator==(const AllGather&, const AllGather&) = default;
};

/// Element-wise sum over the group of all `from`; each rank gets its own part `to_tokens` in `to`.
struct ReduceScatter {
  RankGroup group;
  BufferId from, to;
  TokenSet to_tokens;
  HeadRange to_heads;
  friend bool operator==(const ReduceScatter&, const ReduceScatter&) = default;
};

/// Element-wise sum over the group of all `from`, which are alike; every rank gets all of it in
/// `to`. Tokens x heads divide by the group's size: a ring reduces equal parts, then gathers them.
struct AllReduce {
  RankGroup group;
  BufferId from, to;
  TokenSet to_tokens;
  HeadRange to_heads;
  friend bool operator==(const AllReduce&, const AllReduce&) = default;
};

using OpBody = std::variant<AttentionForward, AttentionBackward, RowDot, Merge, Rescale, Accumulate,
                            Fill, Copy, Exchange, AllToAll, AllGather, ReduceScatter, AllReduce>;

struct Op {
  StreamId stream;
  OpBody body;
  friend bool operator==(const Op&, const Op&) = default;
};

/// "attention_fwd", "exchange", …: the word of the text form.
std::string_view name_of(const OpBody& body);
/// Communication ops meet other ranks; all others are kernels on the rank's own device.
bool is_communication(const OpBody& body);

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
