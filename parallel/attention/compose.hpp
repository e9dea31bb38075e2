// The common frame of all strategies: the Ulysses all-to-alls around a *core* that computes
// attention over the ring dimension, for this rank's heads.
//
//   forward:  q,k,v (home tokens, all heads) -pack-> all-to-all -> core -> all-to-all -unpack-> out
//             behind a cache, k and v: all-to-all -> behind the cached ones of these heads -> core
//   backward: d_out -> all-to-all -> core -> d_q,d_k,d_v -> all-to-all -> home
//
// With U = 1 the core works on the inputs and outputs themselves. The forward keeps q, k, v, out
// and lse in head-split form for the backward, as autograd does: four all-to-alls each way.
#pragma once

#include "parallel/attention/attention_mesh.hpp"
#include "parallel/attention/closed_form.hpp"
#include "schedule/builder.hpp"

namespace spp::strategies {

// Streams; kernels run on `compute`, each kind of communication on its own.
inline constexpr StreamId compute{0};
inline constexpr StreamId ulysses_stream{1};
inline constexpr StreamId ring_stream{2};
inline constexpr StreamId gradient_stream{3};
inline constexpr StreamId team_stream{4};
inline constexpr StreamId outer_stream{5};
/// Along which axis a stream moves data; `compute` moves none.
Axis axis_of(StreamId stream);

/// What a core sees: its plan, its options, and its rank's part of the ring dimension.
struct CoreContext {
  SequencePlan plan;
  BuildOptions options;
  HeadRange heads, kv_heads;
  TokenSet tokens;  // ring_tokens of this rank: of its queries
  TokenSet keys;    // the same, but for those that are cached
};

// The core declares lse itself: forward output and backward input have the same tile, and StarTrail
// keeps it for the whole team. It says where it is: a sink is added behind the forward (lse of all
// keys), and its gradient taken behind the backward. Cores without statistics say nothing.
struct Statistics {
  BufferId lse, delta;  // delta: of the rank's tokens
};
struct ForwardBuffers {
  BufferId q, k, v, out;
};
struct BackwardBuffers {
  BufferId q, k, v, out, d_out, d_q, d_k, d_v;  // out: if it is kept
};

/// Gives lse.
using ForwardCore = BufferId (*)(ProgramBuilder&, const AttentionMesh&, const CoreContext&,
                                 ForwardBuffers);
using BackwardCore = Statistics (*)(ProgramBuilder&, const AttentionMesh&, const CoreContext&,
                                    BackwardBuffers);

struct Cores {
  ForwardCore forward;
  BackwardCore backward;
  bool ring_symmetric =
      false;                // with the full mask, all positions of the ring run the same program
  bool ring_alike = false;  // with the causal mask, nearly: where a layout balances it
  bool keeps_out = true;    // for the backward
  bool states = false;      // one of each position of the ring (Grain::slots)
};

/// Builds the schedule of `plan` around a core.
Schedule compose(const Problem& requested, const SequencePlan& plan, Phase phase,
                 const BuildOptions& options, const Cores& cores);

/// The parts of a (query, key) block that a mask needs: ranges in front and behind without any
/// allowed pair are dropped (zigzag: all queries x first half, or second half x all keys), unless
/// the stack computes whole blocks. One between needed ones stays (a window's, of cached and other
/// keys), since the rows that a kernel reads lie together. Both empty if nothing is allowed.
struct Section {
  TokenSet q, k;
  [[nodiscard]] bool empty() const { return q.empty(); }
};
Section needed_section(const TokenSet& q, const TokenSet& k, const Mask& mask,
                       const BuildOptions& options);

}  // namespace spp::strategies
