// Attention of a layer to the keys that an indexer picks (DeepSeek Sparse Attention,
// arXiv:2512.02556) over ranks that share its sequence, in closed form: which keys are picked
// depends on the numbers, so no schedule says which ones meet, nothing proves this, and the runtime
// cannot execute it.
//
// A query's best keys are known once it has been scored against all that it sees. So each of c
// ranks keeps its own queries and gathers what all keys are made of, the latents that they and
// their values share and the indexer's keys, 704 numbers a token of DeepSeek-V3.2:
// prime-rl (GitHub PrimeIntellect-ai/prime-rl #2293), slime's --allgather-cp, SGLang's prefill. The
// backward gathers them again and reduce-scatters their gradients. Nothing hides these transfers.
// That is all-gather context parallelism with its layouts; no ring hands keys round, and heads are
// not dealt out.
#pragma once

#include "machine/kernel_cost.hpp"
#include "sim/cluster.hpp"
#include "step/passes.hpp"
#include "step/plan.hpp"

#include <cstdint>

namespace spp {

/// Rule "sparse" if sequence ranks would not gather all keys. Legal for models without an indexer.
StepRule why_not_sparse(const Model& model, const StepPlan& plan);

struct SparseWork {
  Problem problem;  // one sequence, padded for the plan; cached keys in front
  StepKind kind = StepKind::train;
};

struct SparseCost {
  AttentionCost cost;
  double spread = 0;  // relative, of its kernels
};

/// Of the rank with most pairs. `cluster` has the ranks of the sequence in order, as attention's
/// (sim::thinned). The plan is legal. InputError if the GPU's generation does not say how such
/// attention runs.
SparseCost sparse_attention_cost(const Model& model, const SparseWork& work, const StepPlan& plan,
                                 const KernelCost& kernels, const sim::Cluster& cluster);

}  // namespace spp
