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

/// Elements a token of the tensors that a layer keeps, by what recomputation makes of them.
struct Kept {
  std::int64_t input = 0;      // the layer's input: always kept
  std::int64_t elements = 0;   // kept unless the whole layer is computed again
  std::int64_t selective = 0;  // computed again by Recompute::selective
  std::int64_t fp32 = 0;       // kept as elements are, in fp32
};

Kept kept_tensors(const Model& model) {
  const std::int64_t h = model.hidden;
  const std::int64_t f = model.ffn;
  const std::int64_t q = model.q_width();
  const std::int64_t kv = model.kv_width();
  Kept kept;
  kept.input = h;           // x: input of norm 1 and of residual 1
  kept.selective += h;      // norm 1's output: input of the QKV GEMM
  kept.elements += q;       // Q after RoPE: input of attention
  kept.elements += 2 * kv;  // K after RoPE, and V
  if (model.qk_norm) {
    kept.elements += q + kv;  // Q and K before their norms
  }
  kept.elements += q;          // attention's output: of its backward and of the out GEMM
  kept.fp32 += model.q_heads;  // LSE
  kept.elements += h;          // x + attention: input of norm 2 and of residual 2
  kept.selective += h;         // norm 2's output: input of the gate and up GEMMs
  kept.fp32 += 2;              // both norms' 1/rms
  kept.elements += f * (model.gated_mlp ? 2 : 1);  // gate, up: input of the activation
  kept.selective += f;                             // product: input of the down GEMM
  if (model.kind == ModelKind::dit) {
    kept.selective += 2 * h;  // the norms' outputs before modulation (above: after it)
    kept.elements += 2 * h;   // both branches' outputs before their gates
  }
  if (model.cross_tokens > 0) {
    kept.elements += 2 * q + h;      // Q, output, and x + cross-attention
    kept.selective += h;             // cross norm's output
    kept.fp32 += model.q_heads + 1;  // LSE, 1/rms
  }
  return kept;
}

/// Gradients alive while a layer's backward runs, elements a token. Most are alive at the MLP's
/// activation: dy of the stream, dproduct, and dgate, dup. (dQ, dK, dV: attention's buffers.)
std::int64_t gradient_elements(const Model& model) {
  return model.hidden + model.ffn * (model.gated_mlp ? 3 : 2);
}

std::int64_t shard(std::int64_t weights, int ranks) { return (weights + ranks - 1) / ranks; }

/// Weights that ZeRO gathers at once: a layer and, prefetched, the next one or a vocabulary table.
std::int64_t gathered_weights(const Model& model) {
  return model.layer_parameters() + std::max(model.layer_parameters(), model.table_parameters());
}

}  // namespace

std::int64_t kept_bytes_per_token(const Model& model, DType dtype, Recompute recompute) {
  const Kept kept = kept_tensors(model);
  const std::int64_t element = size_of(dtype);
  switch (recompute) {
    case Recompute::none:
      return (kept.input + kept.elements + kept.selective) * element + kept.fp32 * 4;
    case Recompute::selective:
      return (kept.input + kept.elements) * element + kept.fp32 * 4;
    case Recompute::full:
      return kept.input * element;
  }
  throw InternalError("no such Recompute");
}

std::int64_t working_bytes_per_token(const Model& model, DType dtype, Recompute recompute) {
  return kept_bytes_per_token(model, dtype, Recompute::none) -
         kept_bytes_per_token(model, dtype, recompute) + gradient_elements(model) * size_of(dtype);
}

std::int64_t forward_bytes_per_token(const Model& model, DType dtype) {
  // The stream x is alive throughout. MLP: norm 2's output until gate and up are there, then their
  // product beside them. Attention: norm 1's output with QKV, then QKV with attention's output.
  const std::int64_t h = model.hidden;
  const std::int64_t f = model.ffn;
  const std::int64_t qkv = model.q_width() + 2 * model.kv_width();
  const std::int64_t mlp = model.gated_mlp ? std::max(h + 2 * f, 3 * f) : std::max(h + f, 2 * f);
  const std::int64_t attention = std::max(h + qkv, qkv + model.q_width());
  return (h + std::max(mlp, attention)) * size_of(dtype);
}

MemoryBytes memory_of(const Model& model, const MemoryRequest& request) {
  ensure(request.ranks >= 1 && request.zero >= 0 && request.zero <= 3, "no such ZeRO stage");
  const bool train = request.step == StepKind::train;
  const DType dtype = request.local.dtype;
  const double element = real(size_of(dtype));
  const double rows = real(request.local.rows());
  const double layers = real(model.layers);
  const std::int64_t weights = model.parameters();
  const std::int64_t part = shard(weights, request.ranks);

  MemoryBytes bytes;
  bytes.attention_buffers = request.attention_buffers;
  bytes.communication = request.communication;
  bytes.parameters = product(real(request.zero >= 3 ? part : weights), element);
  if (request.zero >= 3 && request.ranks > 1) {
    bytes.communication += product(real(gathered_weights(model)), element);
  }
  if (train) {
    const double states = dtype == DType::fp32 ? 8 : 12;
    bytes.gradients = product(real(request.zero >= 2 ? part : weights), 4);
    bytes.optimizer = product(real(request.zero >= 1 ? part : weights), states);
    if (request.zero >= 2 && request.ranks > 1) {  // whole gradients of a layer until reduced
      bytes.communication +=
          product(real(std::max(model.layer_parameters(), model.table_parameters())), 4);
    }
    const double kept = real(kept_bytes_per_token(model, dtype, request.recompute));
    const double working = real(working_bytes_per_token(model, dtype, request.recompute));
    const double ends = 2 * real(model.hidden) * element;  // final norm's input and output
    bytes.activations = product(rows, layers * kept + working + ends);
    // bf16 logits (their gradient later takes their place) and an fp32 copy for the softmax.
    bytes.logits = product(rows, real(model.vocab), dtype == DType::fp32 ? 4 : element + 4);
  } else {
    const double cache = 2 * real(model.kv_width()) * element;
    const bool keeps_cache = model.kind == ModelKind::llm;
    bytes.activations = product(
        rows, real(forward_bytes_per_token(model, dtype)) + (keeps_cache ? layers * cache : 0));
    bytes.logits = product(real(request.local.batch), real(model.vocab),
                           dtype == DType::fp32 ? 4 : element + 4);
  }
  // K and V of the text, of all layers if they are kept.
  const double text = real(model.cross_tokens) * real(request.local.batch);
  const bool one_layer = !train || request.recompute == Recompute::full;
  bytes.activations += product(text, 2 * real(model.kv_width()) * element, one_layer ? 1 : layers);
  return bytes;
}

std::int64_t longest_seq(const std::function<Bytes(std::int64_t seq)>& bytes_at,
                         const SequenceLimits& limits) {
  ensure(limits.unit >= 1, "a unit of tokens is at least one");
  const auto fits = [&](std::int64_t units) {
    return bytes_at(units * limits.unit) <= limits.usable;
  };
  std::int64_t good = 0;  // units that fit
  std::int64_t bad = limits.limit / limits.unit + 1;
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good * limits.unit;
}

}  // namespace spp
