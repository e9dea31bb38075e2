// What counts as the FLOPs of a model, for mfu: not what its kernels do (layer_kernels.hpp), but
// what has to be done. Recomputation never counts, and a backward is twice a forward.
#pragma once

#include "base/units.hpp"
#include "schedule/tokens.hpp"
#include "transformer/layer.hpp"

#include <cstdint>

namespace spp {

/// One step over all ranks; seq as requested, not padded.
struct ModelWork {
  std::int64_t seq = 0;
  std::int64_t batch = 1;
  Mask mask{};
  StepKind step = StepKind::train;
  std::int64_t cached = 0;  // tokens in front, which are seen
};

/// Of all ranks together.
struct ModelFlops {
  FlopCount causal_halved{};  // GEMMs, and the half of attention that a causal mask leaves (a
                              // window, chunks, picked keys: their exact pairs)
  FlopCount full{};           // the same with unmasked attention
  FlopCount model_6n{};       // 6 (forward alone: 2) x active parameters x tokens, no attention
};
ModelFlops model_flops(const Model& model, const ModelWork& work);

}  // namespace spp
