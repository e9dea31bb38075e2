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
#include "step/memory.hpp"
#include "transformer/activations.hpp"
#include "transformer/layer_kernels.hpp"
#include "transformer/model.hpp"

#include <array>
#include <cstdint>
#include <functional>

namespace spp {

/// Bytes of tensors for each local token, and for each token of the text.
struct RowBytes {
  std::int64_t tokens = 0, text = 0;
};

/// What memory_of() needs of a model, worked out once for all its questions.
struct ModelMemory {
  DType dtype = DType::bf16;
  std::int64_t layers = 0;
  std::int64_t weights = 0;        // all
  std::int64_t layer_weights = 0;  // of one layer
  std::int64_t table_weights = 0;  // of a vocabulary table
  std::int64_t vocab = 0;
  std::int64_t text_tokens = 0;  // of a sequence
  /// Of a layer and by Recompute; `ends`: of what the model has once.
  std::array<RowBytes, 3> kept{}, working{};
  RowBytes ends{};
  RowBytes forward{};       // of a layer that keeps nothing
  std::int64_t cached = 0;  // K and V of a layer and a token that later tokens attend to
};
ModelMemory memory_model(const Model& model, DType dtype);

struct MemoryRequest {
  std::int64_t tokens = 0;  // of one sequence on this rank: padded seq / P
  std::int64_t batch = 1;
  int ranks = 1;  // P
  int zero = 0;   // stage, 0 to 3
  Recompute recompute = Recompute::none;
  StepKind step = StepKind::train;
  Bytes attention_buffers{};  // scratch and results of the larger of the forward and the backward
  Bytes communication{};      // of the communication library
};

/// Beyond 10^18 bytes a class counts as 10^18.
MemoryBytes memory_of(const ModelMemory& model, const MemoryRequest& request);

}  // namespace spp
