// Memory of the fullest rank of each stage, by class of tensor.
//
// What lives through the whole step (weights, states, what micro-batches in flight keep) is what
// liveness says; of what comes and goes (a layer's working set, attention's buffers, the logits of
// one micro-batch) each class counts at its own peak, which is up to a few per cent too much.
#pragma once

#include "machine/step_practice.hpp"
#include "step/passes.hpp"
#include "step/stages.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace spp {

struct MemoryBytes {
  Bytes parameters{};
  Bytes gradients{};
  Bytes optimizer{};
  Bytes activations{};  // kept for the backward, and one layer's working set; prefill: KV cache
  Bytes attention_buffers{};  // of the schedule, beyond the activations
  Bytes communication{};      // gathered weights, gradients on their way
  Bytes logits{};
  Bytes process{};    // context, communication library, workspaces, what the allocator holds beside
  Bytes allocator{};  // of that, the last: fragments, and what waits for transfers to be seen done
  [[nodiscard]] Bytes total() const {
    return parameters + gradients + optimizer + activations + attention_buffers + communication +
           logits + process;
  }
  /// What has to fit into the part of a GPU's memory that is usable for tensors.
  [[nodiscard]] Bytes tensors() const { return total() - process; }
};

/// Of a list of operations: bytes that wait for the backward, and that come on top while it runs.
/// Kernels that are not fused keep more (StepPractice::kept) than the operations say; what runs
/// again as a whole keeps that only while it does.
struct ActivationBytes {
  double kept = 0, working = 0;
};
ActivationBytes activation_bytes(const TensorOps& ops, const LocalTokens& local,
                                 const Recomputation& recompute, const StepPractice& practice);

/// The largest multiple of `unit`, at most `limit`, whose bytes fit into `usable`; 0 if not even
/// one unit does. bytes_at must not decrease.
struct SequenceLimits {
  Bytes usable{};
  std::int64_t unit = 1;                       // what the plan's layout divides
  std::int64_t limit = std::int64_t{1} << 31;  // as parse_tokens
};
std::int64_t longest_seq(const std::function<Bytes(std::int64_t seq)>& bytes_at,
                         const SequenceLimits& limits);

}  // namespace spp
