#include "planner/export/megatron_flags.hpp"

#include "planner/framework_step.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace spp::frameworks {
namespace {

/// Layers as Megatron lists them, "([1,0]*12)": the shortest piece that repeats.
std::string pattern_of(const std::vector<bool>& layers) {
  std::size_t piece = 1;
  const auto repeats = [&](std::size_t n) {
    return layers.size() % n == 0 && std::equal(layers.begin() + static_cast<std::ptrdiff_t>(n),
                                                layers.end(), layers.begin());
  };
  while (piece < layers.size() && !repeats(piece)) {
    ++piece;
  }
  std::vector<int> list(piece);
  std::copy_n(layers.begin(), piece, list.begin());
  return fmt::format("\"([{}]*{})\"", fmt::join(list, ","), layers.size() / piece);
}

/// A window counts the query's own token, TransformerEngine's left size does not.
std::string left_of(std::int64_t window) { return fmt::format("{},0", window - 1); }

void add_attention(Command& command, const Model& m) {
  if (m.latent.kv_rank > 0) {
    command.add("--multi-latent-attention");
    if (m.latent.q_rank > 0) {
      command.add("--q-lora-rank", m.latent.q_rank);
    }
    command.add("--kv-lora-rank", m.latent.kv_rank).add("--qk-head-dim", m.latent.nope_dim);
    command.add("--qk-pos-emb-head-dim", m.latent.rope_dim).add("--v-head-dim", m.latent.value_dim);
  }
  const bool some = std::ranges::find(m.narrow_layers, true) != m.narrow_layers.end();
  if (some && m.narrow_mask.kind == MaskKind::window) {
    command.add("--window-size", left_of(m.narrow_mask.window));
    command.add("--window-attn-skip-freq", pattern_of(m.narrow_layers));
  }
  if (m.attention_sinks) {
    command.add("--softmax-type", "learnable");
  }
  if (m.predict_layers > 0) {
    command.add("--mtp-num-layers", m.predict_layers);
  }
}

void add_experts(Command& command, const Launch& launch) {
  const Model& m = *launch.model;
  const Experts& e = m.experts;
  if (e.count == 0) {
    return;
  }
  command.add("--num-experts", e.count).add("--moe-router-topk", e.per_token);
  command.add("--moe-ffn-hidden-size", e.ffn);
  if (e.shared > 0) {
    command.add("--moe-shared-expert-intermediate-size", e.shared_ffn);
    if (e.shared_gate) {
      command.add("--moe-shared-expert-gate");
    }
  }
  if (e.dense_layers > 0 || e.every > 1) {
    std::vector<bool> routed;
    for (std::int64_t i = 0; i < m.layers; ++i) {
      routed.push_back(e.routes(i));
    }
    command.add("--moe-layer-freq",
                e.every == 1
                    ? fmt::format("\"([0]*{}+[1]*{})\"", e.dense_layers, m.layers - e.dense_layers)
                    : pattern_of(routed));
  }
  command
      .add("--moe-token-dispatcher-type",
           launch.to_experts == Dispatcher::all_gather ? "allgather" : "alltoall")
      .add("--moe-grouped-gemm");
}

void add_activation(Command& command, const Model& m) {
  if (m.gated_mlp && m.activation == Activation::silu) {
    command.add("--swiglu");
  } else if (m.gated_mlp && m.activation == Activation::quick_gelu) {
    command.add("--quick-geglu").add("--glu-linear-offset", "1.0");
    if (m.activation_limit > 0) {
      command.add("--activation-func-clamp-value", fmt::format("{:.1f}", m.activation_limit));
    }
  } else if (!m.gated_mlp && m.activation == Activation::squared_relu) {
    command.add("--squared-relu");
  }
}

/// Whether the flags above say it: a GELU is what Megatron-LM does unasked.
bool says_activation(const Model& m) {
  return m.gated_mlp ? m.activation == Activation::silu || m.activation == Activation::quick_gelu
                     : m.activation == Activation::gelu || m.activation == Activation::squared_relu;
}

/// Of all layers: a model's or a bare shape's.
void add_window(Command& command, const Launch& launch) {
  const bool some =
      launch.model != nullptr &&
      std::ranges::find(launch.model->narrow_layers, true) != launch.model->narrow_layers.end();
  if (const Mask& mask = launch.problem.mask; !some && mask.kind == MaskKind::window) {
    command.add("--window-size", left_of(mask.window));
  }
}

}  // namespace

Cannot megatron_step(const Request& request, const StepPlan& plan) {
  constexpr std::string_view fsdp =
      "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/distributed/fsdp/"
      "mcore_fsdp_adapter.py";
  if (plan.zero >= 2 && plan.pipeline > 1) {
    return because("zero",
                   fmt::format("megatron's FSDP (ZeRO {}) makes its groups of tensor, context and "
                               "data ranks alone: no pipeline of {} beside it",
                               plan.zero, plan.pipeline),
                   fsdp);
  }
  if (request.model->experts.count > 0 && request.problem.dtype == DType::fp16) {
    return because("dtype",
                   "megatron has grouped GEMMs and expert parallelism in bf16, not in fp16",
                   megatron_arguments);
  }
  return {};
}

std::vector<std::string_view> megatron_names(ModuleSet modules) {
  constexpr std::array<std::pair<RecomputeModule, std::string_view>, 6> names{
      {{RecomputeModule::core_attention, "core_attn"},
       {RecomputeModule::norms, "layernorm"},
       {RecomputeModule::mlp, "mlp"},
       {RecomputeModule::moe, "moe"},
       {RecomputeModule::mla_up, "mla_up_proj"},
       {RecomputeModule::shared_experts, "shared_experts"}}};
  std::vector<std::string_view> found;
  for (const auto& [module, name] : names) {
    if (modules.contains(module)) {
      found.push_back(name);
    }
  }
  return found;
}

void add_megatron_model(Command& command, const Launch& launch) {
  const Problem& p = launch.problem;
  if (launch.model != nullptr) {
    const Model& m = *launch.model;
    command.add("--num-layers", m.layers).add("--hidden-size", m.hidden);
    command.add("--ffn-hidden-size", m.ffn);
  }
  command.add("--num-attention-heads", p.q_heads);
  const bool latent = launch.model != nullptr && launch.model->latent.kv_rank > 0;
  if (!latent) {
    command.add("--kv-channels", p.head_dim);
  }
  if (!latent && p.kv_heads != p.q_heads) {
    command.add("--group-query-attention").add("--num-query-groups", p.kv_heads);
  }
  if (launch.model != nullptr && launch.model->kind == ModelKind::llm) {
    const Model& m = *launch.model;
    command.add("--position-embedding-type", "rope");
    command.add("--normalization", m.norm_bias ? "LayerNorm" : "RMSNorm");
    add_activation(command, m);
    if (!m.mlp_bias && !m.output_bias) {
      command.add("--disable-bias-linear");
    }
    if (m.attention_bias) {
      command.add("--add-qkv-bias");
    }
    // Latents are normed, too, by the same word (get_gpt_layer_with_transformer_engine_spec).
    if (m.qk_norm || m.latent.kv_rank > 0) {
      command.add("--qk-layernorm");
    }
    if (!m.tied_embeddings) {
      command.add("--untie-embeddings-and-output-weights");
    }
    add_attention(command, m);
    add_experts(command, launch);
  }
  add_window(command, launch);
  command.add("--seq-length", p.seq).add("--max-position-embeddings", p.seq);
  command.add("--micro-batch-size", p.batch).add("--global-batch-size", launch.global_batch());
  // Megatron-Core drops a tenth of both unless told (transformer_config.py), plans nothing.
  command.add("--attention-dropout", "0").add("--hidden-dropout", "0");
  if (p.dtype != DType::fp32) {
    command.add(p.dtype == DType::bf16 ? "--bf16" : "--fp16");
    if (p.dtype == DType::fp16) {  // under bf16 Megatron does so by itself (arguments.py)
      command.add("--accumulate-allreduce-grads-in-fp32");
    }
  }
}

void add_megatron_step(Command& command, const Launch& launch) {
  command.add("--tensor-model-parallel-size", launch.tp);
  if (launch.tp > 1 && launch.tensor_sequence) {
    command.add("--sequence-parallel");
  }
  command.add("--pipeline-model-parallel-size", launch.pp);
  if (const std::string layout = layout_by_hand(launch); !layout.empty()) {
    command.add("--pipeline-model-parallel-layout", fmt::format("\"{}\"", layout));
  } else if (launch.virtual_stages > 1) {
    command.add("--num-virtual-stages-per-pipeline-rank", launch.virtual_stages);
  }
  const CountedEnds ends = counted_ends(launch);
  if (ends.embedding) {
    command.add("--account-for-embedding-in-pipeline-split");
  }
  if (ends.loss) {
    command.add("--account-for-loss-in-pipeline-split");
  }
  // Without the second Megatron splits experts as it splits the rest over tensor ranks.
  if (launch.model != nullptr && launch.model->experts.count > 0) {
    command.add("--expert-model-parallel-size", launch.ep);
    command.add("--expert-tensor-parallel-size", launch.etp);
  }
  if (launch.recompute.kind == Recompute::full) {
    command.add("--recompute-granularity", "full").add("--recompute-method", "uniform");
    command.add("--recompute-num-layers", 1);
  } else if (launch.recompute.kind == Recompute::selective) {
    command.add("--recompute-granularity", "selective");
    command.add("--recompute-modules",
                fmt::format("{}", fmt::join(megatron_names(launch.recompute.modules), " ")));
  }
}

std::string layout_by_hand(const Launch& launch) {
  if (launch.model == nullptr || launch.pp == 1 || launch.model->predict_layers == 0) {
    return "";
  }
  const StepPlan plan{.pipeline = launch.pp, .virtual_stages = launch.virtual_stages};
  std::string layout;
  for (const Stage& stage :
       stages_of(*launch.model, plan, false, further_predictions(*launch.model, StepKind::train))) {
    layout += layout.empty() ? "" : "|";
    layout += stage.embeds ? "E" : "";
    layout += std::string(static_cast<std::size_t>(stage.layers), 't') +
              std::string(stage.predictions, 'm');
    layout += stage.ends ? "L" : "";
  }
  return layout;
}

CountedEnds counted_ends(const Launch& launch) {
  if (launch.model == nullptr || launch.pp == 1 || !layout_by_hand(launch).empty()) {
    return {};
  }
  return spp::counted_ends(launch.model->layers, std::int64_t{launch.pp} * launch.virtual_stages);
}

void note_model(Snippet& snippet, const Launch& launch) {
  if (launch.model != nullptr && launch.model->experts.count > 0) {
    snippet.notes.emplace_back(
        "What the router computes (score function, groups, scaling, balancing) and how positions "
        "are turned into heads (--rotary-base, --rotary-percent, --use-rope-scaling) are your "
        "model's and not planned here: add their flags.");
  } else {
    snippet.notes.emplace_back(
        "How positions are turned into heads is your model's: add --rotary-base, and where it has "
        "them --rotary-percent and --use-rope-scaling.");
  }
  if (launch.model != nullptr && !says_activation(*launch.model)) {
    snippet.notes.push_back(fmt::format(
        "No flag of Megatron-LM asks for the {}activation of {}'s MLP: without gated_linear_unit "
        "and activation_func in your TransformerConfig it has another one.",
        launch.model->gated_mlp ? "gated " : "", launch.model->name));
  }
  if (launch.model != nullptr && launch.model->branch_norms) {
    snippet.notes.push_back(
        fmt::format("No flag of Megatron-LM norms what attention and MLP give back, as {} does: "
                    "without a layer spec of your own it trains another model.",
                    launch.model->name));
  }
  if (launch.model == nullptr && launch.problem.v_dim() != launch.problem.head_dim) {
    snippet.notes.emplace_back(fmt::format(
        "--kv-channels is of keys: only Megatron's latent attention has values of another width "
        "({}).",
        launch.problem.v_dim()));
  }
}

void note_kv_heads(Snippet& snippet, const Launch& launch) {
  if (launch.problem.kv_heads % launch.tp != 0) {
    snippet.notes.push_back(fmt::format(
        "{} tensor ranks over {} KV heads: older Megatron-Core refuses them, newer ones "
        "gather queries, keys and values between tensor ranks, which is not counted.",
        launch.tp, launch.problem.kv_heads));
  }
}

bool can_offload_optimizer(const Launch& launch) { return launch.zero == 1; }

void add_megatron_zero(Command& command, const Launch& launch) {
  if (launch.zero >= 2) {
    command.add("--use-megatron-fsdp");
    command.add("--data-parallel-sharding-strategy",
                launch.zero == 2 ? "optim_grads" : "optim_grads_params");
    command.add("--no-gradient-accumulation-fusion").add("--ckpt-format", "fsdp_dtensor");
    // Else each rank makes all of its weights before they are cut.
    command.add("--init-model-with-meta-device");
  }
  if (launch.zero >= 1) {
    command.add("--use-distributed-optimizer");
  }
  if (launch.dp * launch.context() > 1) {  // as the plan counts on; nothing overlaps unasked
    command.add("--overlap-grad-reduce");
    if (launch.zero >= 2) {
      command.add("--overlap-param-gather");
    }
  }
  if (launch.shard_copies > 1) {
    command.add("--num-distributed-optimizer-instances", launch.shard_copies);
  }
  if (moves_optimizer(launch.offload) && can_offload_optimizer(launch)) {
    command.add("--optimizer-cpu-offload").add("--optimizer-offload-fraction", "1.0");
    command.add("--use-precision-aware-optimizer");
  }
}

}  // namespace spp::frameworks
