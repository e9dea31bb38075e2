// Attention of a layer to the keys that an indexer picks (DeepSeek Sparse Attention,
// arXiv:2512.02556), or to a window and entries made of several tokens, all or picked (DeepSeek-V4,
// arXiv:2606.19348), over ranks that share its sequence, in closed form: which keys are picked
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
//
// Of DeepSeek-V4 each rank makes the entries of its own tokens, and all gather entries and the
// indexer's keys of them. Of the window's keys, and of tokens that entries across a border are made
// of, those just before a rank's chunk come from the rank that has them: a halo, one message a
// chunk, counted as the window's keys (Megatron-LM #5087, LoongForge #141; NeMo AutoModel #2445 and
// prime-rl #3508 gather all keys instead).
#pragma once

#include "machine/kernel_cost.hpp"
#include "sim/cluster.hpp"
#include "step/passes.hpp"
#include "step/plan.hpp"

#include <cstdint>

namespace spp {

/// Rule "sparse" if sequence ranks would not gather keys. Legal for models without such attention.
WhyNot why_not_sparse(const Model& model, const StepPlan& plan);

struct SparseWork {
  Problem problem;  // one sequence, padded for the plan; cached keys in front
  StepKind kind = StepKind::train;
  AttentionCall call;  // of all heads; it says which keys meet (sparse_call)
};
/// The layer's sparse attention. InternalError if it has none.
const AttentionCall& sparse_call(const TensorOps& layer);

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
