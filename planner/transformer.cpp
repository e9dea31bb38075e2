#include "planner/transformer.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"

#include <string>
#include <utility>

namespace spp {
namespace {

/// Shapes of a layer, and kernels made from them. T rows, b bytes an element.
class Layer {
 public:
  Layer(const Model& model, const LocalTokens& local)
      : model_(&model), local_(&local), rows_(local.rows()), element_(size_of(local.dtype)) {}

  [[nodiscard]] std::int64_t rows() const { return rows_; }

  void gemm(std::string_view name, std::int64_t m, std::int64_t n, std::int64_t k) {
    kernels_.push_back({.name = name, .work = Gemm{.m = m, .n = n, .k = k}});
  }
  /// Both gradients of [m,k] [k,n].
  void gemm_backward(std::string_view input, std::string_view weight, std::int64_t m,
                     std::int64_t n, std::int64_t k) {
    gemm(input, m, k, n);
    gemm(weight, k, n, m);
  }
  /// Touches `tensors` tensors of [T, width].
  void stream(std::string_view name, std::int64_t tensors, std::int64_t width,
              bool selective = false) {
    stream_bytes(name, Bytes(tensors * rows_ * width * element_), selective);
  }
  void stream_bytes(std::string_view name, Bytes touched, bool selective = false) {
    kernels_.push_back({.name = name, .work = Stream{.touched = touched}, .selective = selective});
  }
  void cross_attention(std::string_view name, Phase phase) {
    const std::int64_t text = model_->cross_tokens;
    kernels_.push_back(
        {.name = name,
         .work = CrossAttention{
             .shape = {.q = TokenSet(TokenRange{.begin = 0, .count = local_->tokens}),
                       .k = TokenSet(TokenRange{.begin = 0, .count = text}),
                       .q_heads = model_->q_heads,
                       .kv_heads = model_->kv_heads,
                       .head_dim = model_->head_dim,
                       .batch = local_->batch,
                       .mask = {.kind = MaskKind::full},
                       .dtype = local_->dtype,
                       .phase = phase}}});
  }
  [[nodiscard]] std::vector<LayerKernel> take() { return std::move(kernels_); }

 private:
  const Model* model_;
  const LocalTokens* local_;
  std::int64_t rows_;
  std::int64_t element_;
  std::vector<LayerKernel> kernels_;
};

}  // namespace

std::string_view to_string(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "none";
    case Recompute::selective:
      return "selective";
    case Recompute::full:
      return "full";
  }
  throw InternalError("no such Recompute");
}

Recompute parse_recompute(std::string_view text, std::string_view where) {
  std::vector<std::string> names;
  for (const Recompute value : {Recompute::none, Recompute::selective, Recompute::full}) {
    if (to_string(value) == text) {
      return value;
    }
    names.emplace_back(to_string(value));
  }
  throw InputError(where,
                   fmt::format("unknown recomputation '{}'{}", text, did_you_mean(text, names)));
}

FlopCount CrossAttention::flops() const {
  // Two matmuls forward, five backward (FlashAttention-2, section 4.1), all pairs allowed.
  const double per_pair = shape.phase == Phase::forward ? 4 : 10;
  return FlopCount(per_pair * static_cast<double>(shape.q.count()) *
                   static_cast<double>(shape.k.count()) * shape.q_heads * shape.head_dim *
                   static_cast<double>(shape.batch));
}

// Widths: h hidden, f ffn, q and kv of all heads together. "2 x [T,h]": two tensors touched.
std::vector<LayerKernel> layer_forward(const Model& model, const LocalTokens& local) {
  Layer layer(model, local);
  const std::int64_t t = layer.rows();
  const std::int64_t h = model.hidden;
  const std::int64_t f = model.ffn;
  const std::int64_t q = model.q_width();
  const std::int64_t kv = model.kv_width();
  const bool dit = model.kind == ModelKind::dit;

  layer.stream("norm 1", 2, h, true);  // reads x, writes y
  if (dit) {
    layer.stream("modulate 1", 2, h, true);  // reads y, writes y * (1 + scale) + shift
  }
  layer.gemm("qkv", t, q + 2 * kv, h);  // the bias is in the GEMM's epilogue
  if (model.qk_norm) {
    layer.stream("qk norm", 2, q + kv);  // reads and writes Q and K
  }
  layer.stream("rope", 2, q + kv);  // reads and writes Q and K
  layer.gemm("out", t, h, q);       // behind attention
  if (dit) {
    layer.stream("gate 1", 2, h);  // reads y, writes y * gate
  }
  layer.stream("residual 1", 3, h);  // reads x and y, writes x + y
  if (model.cross_tokens > 0) {
    layer.stream("cross norm", 2, h, true);
    layer.gemm("cross q", t, q, h);
    layer.gemm("cross kv", model.cross_tokens * local.batch, 2 * kv, h);
    layer.cross_attention("cross attention", Phase::forward);
    layer.gemm("cross out", t, h, q);
    layer.stream("cross residual", 3, h);
  }
  layer.stream("norm 2", 2, h, true);
  if (dit) {
    layer.stream("modulate 2", 2, h, true);
  }
  if (model.gated_mlp) {
    layer.gemm("gate", t, f, h);
  }
  layer.gemm("up", t, f, h);
  layer.stream("activation", model.gated_mlp ? 3 : 2, f,
               true);  // reads (gate and) up, writes product
  layer.gemm("down", t, h, f);
  if (dit) {
    layer.stream("gate 2", 2, h);
  }
  layer.stream("residual 2", 3, h);
  return layer.take();
}

std::vector<LayerKernel> layer_backward(const Model& model, const LocalTokens& local) {
  Layer layer(model, local);
  const std::int64_t t = layer.rows();
  const std::int64_t h = model.hidden;
  const std::int64_t f = model.ffn;
  const std::int64_t q = model.q_width();
  const std::int64_t kv = model.kv_width();
  const bool dit = model.kind == ModelKind::dit;

  if (dit) {
    layer.stream("d gate 2", 3, h);  // reads dy and y (for dgate), writes dy * gate
  }
  if (model.mlp_bias) {
    layer.stream("d down bias", 1, h);  // sums the rows of dy
  }
  layer.gemm_backward("d down input", "d down weight", t, h, f);
  // Reads dproduct, gate, up, writes dgate, dup; plain: reads dproduct, up, writes dup.
  layer.stream("d activation", model.gated_mlp ? 5 : 3, f);
  if (model.mlp_bias) {
    layer.stream("d up bias", model.gated_mlp ? 2 : 1, f);
  }
  layer.gemm_backward("d up input", "d up weight", t, f, h);
  if (model.gated_mlp) {
    layer.gemm_backward("d gate input", "d gate weight", t, f, h);
    layer.stream("d gate + up", 3, h);  // adds the two input gradients
  }
  if (dit) {
    layer.stream("d modulate 2", 3, h);  // reads dy and y (for dscale), writes dx
  }
  layer.stream("d norm 2", 3, h);      // reads dy and x, writes dx
  layer.stream("d residual 2", 3, h);  // adds the branch's gradient to the stream's
  if (model.cross_tokens > 0) {
    const std::int64_t text = model.cross_tokens * local.batch;
    layer.gemm_backward("d cross out input", "d cross out weight", t, h, q);
    layer.cross_attention("d cross attention", Phase::backward);
    layer.gemm_backward("d cross kv input", "d cross kv weight", text, 2 * kv, h);
    layer.gemm_backward("d cross q input", "d cross q weight", t, q, h);
    layer.stream("d cross norm", 3, h);
    layer.stream("d cross residual", 3, h);
  }
  if (dit) {
    layer.stream("d gate 1", 3, h);
  }
  if (model.output_bias) {
    layer.stream("d out bias", 1, h);
  }
  layer.gemm_backward("d out input", "d out weight", t, h, q);
  layer.stream("d rope", 2, q + kv);  // behind attention's backward: reads and writes dQ and dK
  if (model.qk_norm) {
    layer.stream("d qk norm", 3, q + kv);  // reads dy and x, writes dx
  }
  if (model.attention_bias) {
    layer.stream("d qkv bias", 1, q + 2 * kv);
  }
  layer.gemm_backward("d qkv input", "d qkv weight", t, q + 2 * kv, h);
  if (dit) {
    layer.stream("d modulate 1", 3, h);
  }
  layer.stream("d norm 1", 3, h);
  layer.stream("d residual 1", 3, h);
  return layer.take();
}

std::vector<LayerKernel> ends_forward(const Model& model, const LocalTokens& local, StepKind step) {
  Layer ends(model, local);
  const std::int64_t t = ends.rows();
  if (model.vocab > 0) {
    ends.stream("embedding", 2, model.hidden);  // reads T rows of the table, writes x
  }
  ends.stream("final norm", 2, model.hidden);
  if (model.vocab == 0) {
    return ends.take();
  }
  if (step == StepKind::prefill) {
    ends.gemm("logits", local.batch, model.vocab, model.hidden);
    return ends.take();
  }
  const std::int64_t logits = t * model.vocab;
  const std::int64_t element = size_of(local.dtype);
  ends.gemm("logits", t, model.vocab, model.hidden);
  ends.stream_bytes("logits to fp32", Bytes(logits * (element + 4)));  // reads, writes fp32
  ends.stream_bytes("logits max", Bytes(logits * 4));                  // reads
  ends.stream_bytes("softmax", Bytes(logits * 8));                     // reads, writes exp in place
  return ends.take();
}

std::vector<LayerKernel> ends_backward(const Model& model, const LocalTokens& local) {
  Layer ends(model, local);
  const std::int64_t t = ends.rows();
  if (model.vocab > 0) {
    const std::int64_t logits = t * model.vocab;
    ends.stream_bytes("d softmax", Bytes(logits * 8));  // in place
    ends.stream_bytes("d logits from fp32", Bytes(logits * (4 + size_of(local.dtype))));
    ends.gemm_backward("d logits input", "d logits weight", t, model.vocab, model.hidden);
  }
  ends.stream("d final norm", 3, model.hidden);
  if (model.vocab > 0) {
    // Reads dx, reads and writes as many rows of the fp32 gradient.
    ends.stream_bytes("d embedding", Bytes(t * model.hidden * (size_of(local.dtype) + 8)));
  }
  return ends.take();
}

Seconds time_of(std::span<const LayerKernel> kernels, const KernelCost& cost, DType dtype) {
  Seconds total{};
  for (const LayerKernel& kernel : kernels) {
    total += cost.launch();
    if (const auto* gemm = std::get_if<Gemm>(&kernel.work)) {
      total += cost.gemm(gemm->m, gemm->n, gemm->k, dtype);
    } else if (const auto* stream = std::get_if<Stream>(&kernel.work)) {
      total += cost.memory_bound(stream->touched);
    } else {
      total += cost.attention(std::get<CrossAttention>(kernel.work).shape);
    }
  }
  return total;
}

FlopCount flops_of(std::span<const LayerKernel> kernels) {
  FlopCount total{};
  for (const LayerKernel& kernel : kernels) {
    if (const auto* gemm = std::get_if<Gemm>(&kernel.work)) {
      total += gemm->flops();
    } else if (const auto* cross = std::get_if<CrossAttention>(&kernel.work)) {
      total += cross->flops();
    }
  }
  return total;
}

BlockCost layer_cost(const Model& model, const LocalTokens& local, Recompute recompute,
                     const KernelCost& cost) {
  const std::vector<LayerKernel> forward = layer_forward(model, local);
  const std::vector<LayerKernel> backward = layer_backward(model, local);
  BlockCost result{.forward = time_of(forward, cost, local.dtype),
                   .backward = time_of(backward, cost, local.dtype),
                   .recompute = Seconds(0),
                   .forward_flops = flops_of(forward),
                   .backward_flops = flops_of(backward)};
  if (recompute == Recompute::full) {
    result.recompute = result.forward;
  } else if (recompute == Recompute::selective) {
    std::vector<LayerKernel> again;
    for (const LayerKernel& kernel : forward) {
      if (kernel.selective) {
        again.push_back(kernel);
      }
    }
    result.recompute = time_of(again, cost, local.dtype);
  }
  return result;
}

BlockCost ends_cost(const Model& model, const LocalTokens& local, StepKind step,
                    const KernelCost& cost) {
  const std::vector<LayerKernel> forward = ends_forward(model, local, step);
  BlockCost result{.forward = time_of(forward, cost, local.dtype),
                   .forward_flops = flops_of(forward)};
  if (step == StepKind::train) {
    const std::vector<LayerKernel> backward = ends_backward(model, local);
    result.backward = time_of(backward, cost, local.dtype);
    result.backward_flops = flops_of(backward);
  }
  return result;
}

Seconds optimizer_cost(const OptimizerWork& work, const KernelCost& cost) {
  // fp32 gradient norm: reads 4 B a weight. Adam: reads gradient, master, m, v (16 B), writes
  // master, m, v (12 B) and the bf16 weight (2 B). Zeroing: writes 4 B a gradient held.
  constexpr std::int64_t norm = 4;
  constexpr std::int64_t adam = 16 + 12 + 2;
  constexpr std::int64_t zeroing = 4;
  constexpr double kernels = 3;
  return cost.memory_bound(Bytes(work.updated * norm)) +
         cost.memory_bound(Bytes(work.updated * adam)) +
         cost.memory_bound(Bytes(work.gradients * zeroing)) + kernels * cost.launch();
}

ModelFlops model_flops(const Model& model, const ModelWork& work) {
  const double passes =
      work.step == StepKind::train ? 3 : 1;  // forward, and a backward of twice it
  const auto seq = static_cast<double>(work.seq);
  const auto batch = static_cast<double>(work.batch);
  const double rows = seq * batch;
  const auto layers = static_cast<double>(model.layers);
  const auto q = static_cast<double>(model.q_width());

  const double matrices = 2 * static_cast<double>(model.layer_matrix_parameters()) * rows * layers;
  const double logit_rows = work.step == StepKind::train ? rows : batch;
  const double head = 2 * static_cast<double>(model.table_parameters()) * logit_rows;
  // Q and output projection of the tokens, K and V of the text, and the pairs between them.
  const auto text = static_cast<double>(model.cross_tokens);
  const auto hidden = static_cast<double>(model.hidden);
  const auto kv = static_cast<double>(model.kv_width());
  const double cross =
      text > 0
          ? layers * batch * (4 * hidden * q * seq + 4 * hidden * kv * text + 4 * seq * text * q)
          : 0;

  double pairs = seq * seq;
  if (work.mask.kind == MaskKind::causal) {
    pairs /= 2;
  } else if (work.mask.kind == MaskKind::window) {
    const TokenRange all{.begin = 0, .count = work.seq};
    pairs = static_cast<double>(allowed_pairs(all, all, work.mask));
  }
  const auto with_attention = [&](double met) {
    return FlopCount(passes * (matrices + head + cross + 4 * met * batch * q * layers));
  };
  return {.causal_halved = with_attention(pairs),
          .full = with_attention(seq * seq),
          .model_6n = FlopCount(passes * 2 * static_cast<double>(model.parameters()) * rows)};
}

}  // namespace spp
