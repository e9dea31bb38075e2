// Memory of one rank of a sequence-parallel group, by class of tensor.
//
// The classes are added up as if each were at its peak at once. That is right for what lives
// through the whole step (weights, states, kept activations) and up to a few per cent too much for
// what comes and goes (logits, attention's buffers, a layer's working set): an allocator's
// fragments cost about as much.
//
// Bytes a weight (mixed precision; Rajbhandari et al., ZeRO, arXiv:1910.02054, section 3.1, with
// the gradients accumulated in fp32 as Megatron does):
//   parameters 2, gradients 4, optimizer 12 (fp32 master, m, v; fp32 training needs no master: 8).
// ZeRO over the P ranks of the group: stage 1 cuts the optimizer by P, 2 also the gradients, 3 also
// the parameters.
#pragma once

#include "base/units.hpp"
#include "planner/transformer.hpp"
#include "transformer/model.hpp"

#include <cstdint>
#include <functional>

namespace spp {

struct MemoryBytes {
  Bytes parameters{};
  Bytes gradients{};
  Bytes optimizer{};
  Bytes activations{};  // kept for the backward, and one layer's working set; prefill: KV cache
  Bytes attention_buffers{};  // of the schedule, beyond the activations
  Bytes communication{};      // gathered weights, gradients on their way, the library's own buffers
  Bytes logits{};
  [[nodiscard]] Bytes total() const {
    return parameters + gradients + optimizer + activations + attention_buffers + communication +
           logits;
  }
};

struct MemoryRequest {
  LocalTokens local{};
  int ranks = 1;  // P
  int zero = 0;   // stage, 0 to 3
  Recompute recompute = Recompute::none;
  StepKind step = StepKind::train;
  Bytes attention_buffers{};  // scratch and results of the larger of the forward and the backward
  Bytes communication{};      // of the communication library
};

/// Beyond 10^18 bytes a class counts as 10^18.
MemoryBytes memory_of(const Model& model, const MemoryRequest& request);

/// Bytes of one layer and one local token that wait for the backward. Tensors: memory.cpp.
std::int64_t kept_bytes_per_token(const Model& model, DType dtype, Recompute recompute);
/// Bytes of one layer and one local token that come on top while that layer's backward runs:
/// what is computed again, and gradients.
std::int64_t working_bytes_per_token(const Model& model, DType dtype, Recompute recompute);
/// Most bytes of one layer and one local token alive in a forward that keeps nothing.
std::int64_t forward_bytes_per_token(const Model& model, DType dtype);

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
