// Linear attention of a layer over ranks that share its sequence, in closed form: no schedule
// carries gated states, so nothing proves this, and the runtime cannot execute it.
//
// Of c ranks each has n = N/c tokens of every sequence. Two ways are published:
//   heads   an all-to-all brings each rank all tokens of its part of the heads, behind the
//           projection and in front of the convolution; another one takes the output back:
//           Megatron-Core for Mamba2 (megatron/core/ssm/mamba_context_parallel.py 00caa53af) and
//           for gated DeltaNet (gated_delta_net.py, since Core 0.17). Heads divide over the
//           ranks; fewer groups of Mamba2 are copied. Whatever order attention keeps tokens in is
//           undone and made again: each tensor is copied once.
//   states  each rank finds what its tokens do to a state: the one that they end with, and for
//           the delta rule the matrix of key_dim^2 numbers that they multiply one with. All ranks
//           gather these, in fp32, and begin with the state that those in front of them lead to;
//           backward likewise from behind: LASP-2 (arXiv:2502.07563) without gates,
//           flash-linear-attention's KCP (fla/ops/cp/KCP.md) and Megatron-Core's chunkwise context
//           parallelism (megatron/core/ssm/context_parallel/chunkwise.py 96b463c89) with them. A
//           rank's tokens stand together. The convolution needs the last ones of the rank in
//           front.
// The faster one is taken. Transfers lie between kernels that need them: nothing hides them.
#pragma once

#include "machine/kernel_cost.hpp"
#include "sim/cluster.hpp"
#include "step/passes.hpp"
#include "step/plan.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace spp {

enum class LinearSplit : std::uint8_t { heads, states };
std::string_view to_string(LinearSplit);

/// The ways that the plan's degrees and layout leave; rule "linear" if none is left, or if the
/// heads do not split over the tensor ranks. Legal for models without such layers.
WhyNot why_not_linear(const Model& model, const StepPlan& plan);
/// The heads divide over tensor x sequence ranks.
bool splits_linear_heads(const Model& model, int tensor, int sequence);

struct LinearWork {
  std::int64_t seq = 0;  // tokens of a sequence, padded for the plan
  DType dtype = DType::bf16;
  StepKind kind = StepKind::train;
};

struct LinearCost {
  AttentionCost cost;
  LinearSplit split = LinearSplit::heads;  // of several ranks
  double spread = 0;                       // relative, of its kernels
};

/// Of one rank. `cluster` has the ranks of the sequence in order, as attention's
/// (sim::thinned). The plan is legal. InputError if the GPU's generation does not say how linear
/// attention runs.
LinearCost linear_attention_cost(const Model& model, const LinearWork& work, const StepPlan& plan,
                                 const KernelCost& kernels, const sim::Cluster& cluster);

}  // namespace spp
