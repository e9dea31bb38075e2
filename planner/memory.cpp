#include "planner/memory.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace spp {
namespace {

/// Sizes of absurd requests would overflow; 10^18 bytes fit nowhere, and seven of them add up.
Bytes product(double a, double b, double c = 1, double d = 1) {
  constexpr double most = 1e18;
  return Bytes(static_cast<std::int64_t>(std::min(most, a * b * c * d)));
}

double real(std::int64_t n) { return static_cast<double>(n); }

std::int64_t shard(std::int64_t weights, int ranks) { return (weights + ranks - 1) / ranks; }

/// From bytes of one sequence of so many tokens: without any, what is left is the text's.
template <class BytesOf>
RowBytes by_row(const TensorOps& ops, DType dtype, const BytesOf& bytes) {
  const auto at = [&](std::int64_t tokens) {
    return bytes(LocalTokens{.tokens = tokens, .dtype = dtype}).value();
  };
  const std::int64_t text = at(0);
  return {.tokens = at(1) - text, .text = ops.text_tokens > 0 ? text / ops.text_tokens : 0};
}

}  // namespace

ModelMemory memory_model(const Model& model, DType dtype) {
  const TensorOps layer = layer_of(model);
  const TensorOps ends = ends_of(model, StepKind::train);
  ModelMemory m{
      .dtype = dtype,
      .layers = model.layers,
      .weights = model.parameters(),
      .layer_weights = weights_of(layer),
      .table_weights = model.table_parameters(),
      .vocab = model.vocab,
      .text_tokens = model.cross_tokens,
      .ends = by_row(ends, dtype,
                     [&](const LocalTokens& local) { return kept_bytes(ends, local, {}); }),
      .forward = by_row(layer, dtype,
                        [&](const LocalTokens& local) { return forward_bytes(layer, local); })};
  if (model.kind == ModelKind::llm) {
    m.cached = cached_bytes(layer, {.tokens = 1, .dtype = dtype}).value();
  }
  m.ends.tokens -= 4 * model.vocab;  // probabilities: in MemoryBytes::logits
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const auto i = static_cast<std::size_t>(recompute);
    const Recomputation how{.kind = recompute};
    m.kept.at(i) = by_row(layer, dtype,
                          [&](const LocalTokens& local) { return kept_bytes(layer, local, how); });
    m.working.at(i) = by_row(
        layer, dtype, [&](const LocalTokens& local) { return working_bytes(layer, local, how); });
  }
  return m;
}

MemoryBytes memory_of(const ModelMemory& model, const MemoryRequest& request) {
  ensure(request.ranks >= 1 && request.zero >= 0 && request.zero <= 3, "no such ZeRO stage");
  const bool train = request.step == StepKind::train;
  const double element = real(size_of(model.dtype));
  const double batch = real(request.batch);
  const double rows = real(request.tokens * request.batch);
  const double text = real(model.text_tokens) * batch;
  const double layers = real(model.layers);
  const std::int64_t part = shard(model.weights, request.ranks);
  const std::int64_t largest = std::max(model.layer_weights, model.table_weights);

  MemoryBytes bytes;
  bytes.attention_buffers = request.attention_buffers;
  bytes.communication = request.communication;
  bytes.parameters = product(real(request.zero >= 3 ? part : model.weights), element);
  if (request.zero >= 3 && request.ranks > 1) {
    // Gathered at once: a layer and, prefetched, the next one or a vocabulary table.
    bytes.communication += product(real(model.layer_weights + largest), element);
  }
  // Logits in the step's type (their gradient later takes their place) and an fp32 copy for the
  // softmax.
  const double logit = real(model.vocab) * (model.dtype == DType::fp32 ? 4 : element + 4);
  if (train) {
    const double states = model.dtype == DType::fp32 ? 8 : 12;
    bytes.gradients = product(real(request.zero >= 2 ? part : model.weights), 4);
    bytes.optimizer = product(real(request.zero >= 1 ? part : model.weights), states);
    if (request.zero >= 2 && request.ranks > 1) {  // whole gradients of a layer until reduced
      bytes.communication += product(real(largest), 4);
    }
    const auto mode = static_cast<std::size_t>(request.recompute);
    const RowBytes& kept = model.kept.at(mode);
    const RowBytes& working = model.working.at(mode);
    bytes.activations =
        product(rows, layers * real(kept.tokens) + real(working.tokens + model.ends.tokens)) +
        product(text, layers * real(kept.text) + real(working.text));
    bytes.logits = product(rows, logit);
  } else {
    bytes.activations = product(rows, real(model.forward.tokens) + layers * real(model.cached)) +
                        product(text, real(model.forward.text));
    bytes.logits = product(batch, logit);
  }
  return bytes;
}

}  // namespace spp
