// Megatron-Bridge (NeMo): Megatron-Core's options as Python. a2a+p2p without the hierarchical sizes
// switches context parallelism off in silence (NVIDIA-NeMo/Megatron-Bridge#2667), so both are
// written, or neither.
#include "planner/export/context_parallel.hpp"
#include "planner/export/megatron_flags.hpp"

#include <fmt/ranges.h>

namespace spp::frameworks::megatron_bridge {
namespace {

constexpr std::array<std::string_view, 2> aliases{"nemo", "mbridge"};
constexpr std::string_view guide =
    "https://docs.nvidia.com/nemo/megatron-bridge/latest/parallelisms.html";
constexpr std::array ways = transformer_engine_ways(Inner::ulysses);
/// Of diffusion transformers (src/megatron/bridge/diffusion/recipes).
constexpr std::array<FrameworkFamily, 3> families{
    {{.name = "FLUX.1"}, {.name = "FLUX.1-schnell"}, {.name = "Wan"}}};

/// A recipe of megatron/bridge/training/mixed_precision.py; "" for fp32, which has none.
std::string_view mixed_precision(DType dtype, GemmFormat format) {
  if (dtype == DType::fp32) {
    return "";
  }
  const bool half = dtype == DType::fp16;
  switch (format) {
    case GemmFormat::plain:
      return half ? "fp16_mixed" : "bf16_mixed";
    case GemmFormat::fp8:
      return half ? "fp16_with_fp8_current_scaling_mixed" : "bf16_with_fp8_current_scaling_mixed";
    case GemmFormat::fp8_block:
      return half ? "fp16_with_fp8_subchannel_scaling_mixed"
                  : "bf16_with_fp8_subchannel_scaling_mixed";
    case GemmFormat::mxfp8:
      return half ? "fp16_with_mxfp8_mixed" : "bf16_with_mxfp8_mixed";
    case GemmFormat::nvfp4:
      return half ? "" : "bf16_with_nvfp4_mixed";
  }
  throw InternalError("unknown GEMM format");
}

Snippet emit(const Launch& launch, const Way& way) {
  std::string text = "def apply(cfg):  # a ConfigContainer, such as a recipe's\n";
  const auto set = [&](std::string_view key, const auto& value) {
    text += fmt::format("    cfg.{} = {}\n", key, value);
  };
  set("model.seq_length", launch.problem.seq);
  if (launch.model == nullptr || launch.model->kind == ModelKind::llm) {
    set("dataset.seq_length", launch.problem.seq);  // it asserts that both are equal
  }
  set("model.attention_dropout", "0.0");
  set("model.hidden_dropout", "0.0");
  const std::string_view precision = mixed_precision(launch.problem.dtype, launch.format);
  if (!precision.empty()) {
    set("mixed_precision", fmt::format("\"{}\"", precision));
  }
  set("model.tensor_model_parallel_size", launch.tp);
  set("model.sequence_parallel", python(launch.tp > 1 && launch.tensor_sequence));
  set("model.pipeline_model_parallel_size", launch.pp);
  // A recipe may have values of its own for all that follows: what the plan has not is said, too.
  const std::string layout = layout_by_hand(launch);
  set("model.virtual_pipeline_model_parallel_size", launch.virtual_stages > 1 && layout.empty()
                                                        ? fmt::format("{}", launch.virtual_stages)
                                                        : "None");
  set("model.pipeline_model_parallel_layout",
      layout.empty() ? "None" : fmt::format("\"{}\"", layout));
  const CountedEnds ends = counted_ends(launch);
  set("model.account_for_embedding_in_pipeline_split", python(ends.embedding));
  set("model.account_for_loss_in_pipeline_split", python(ends.loss));
  if (launch.model != nullptr && launch.model->experts.count > 0) {
    set("model.expert_model_parallel_size", launch.ep);
    set("model.expert_tensor_parallel_size", launch.etp);
    set("model.moe_token_dispatcher_type",
        launch.to_experts == Dispatcher::all_gather ? "\"allgather\"" : "\"alltoall\"");
  }
  set("model.context_parallel_size", launch.context());
  if (launch.context() > 1) {
    set("model.cp_comm_type", fmt::format("\"{}\"", way.name));
  }
  if (way.strategy == "usp") {
    set("model.hierarchical_context_parallel_sizes",
        fmt::format("[{}, {}]", launch.attention.ulysses, launch.attention.ring));
    set("dist.use_decentralized_pg", "False");
  }
  const bool full = launch.recompute.kind == Recompute::full;
  const bool selective = launch.recompute.kind == Recompute::selective;
  set("model.recompute_granularity", full ? "\"full\"" : selective ? "\"selective\"" : "None");
  set("model.recompute_method", full ? "\"uniform\"" : "None");
  set("model.recompute_num_layers", full ? "1" : "None");
  if (selective) {
    set("model.recompute_modules",
        fmt::format("[\"{}\"]", fmt::join(megatron_names(launch.recompute.modules), "\", \"")));
  }
  set("train.micro_batch_size", launch.problem.batch);
  set("train.global_batch_size", launch.global_batch());
  set("ddp.use_distributed_optimizer", python(launch.zero >= 1));
  set("optimizer.use_distributed_optimizer", python(launch.zero >= 1));
  set("ddp.num_distributed_optimizer_instances", launch.shard_copies);
  set("ddp.overlap_grad_reduce", python(launch.dp * launch.context() > 1));
  set("ddp.overlap_param_gather", python(launch.dp * launch.context() > 1 && launch.zero >= 1));
  set("dist.use_megatron_fsdp", python(launch.zero >= 2));
  set("ddp.use_megatron_fsdp", python(launch.zero >= 2));
  if (launch.zero >= 2) {
    set("ddp.average_in_collective", "False");
    set("ddp.data_parallel_sharding_strategy",
        launch.zero == 2 ? "\"optim_grads\"" : "\"optim_grads_params\"");
    set("model.gradient_accumulation_fusion", "False");
    set("model.init_model_with_meta_device", "True");
    set("checkpoint.ckpt_format", "\"fsdp_dtensor\"");
  }
  if (moves_optimizer(launch.offload) && can_offload_optimizer(launch)) {
    set("optimizer.optimizer_cpu_offload", "True");
    set("optimizer.optimizer_offload_fraction", "1.0");
    set("optimizer.use_precision_aware_optimizer", "True");
  }
  text += "    return cfg\n";
  Snippet snippet{.says = megatron_says};
  snippet.says.window = false;  // the recipe's model has its own
  snippet.says.dtype = snippet.says.format = !precision.empty();
  snippet.says.offload_optimizer = can_offload_optimizer(launch);
  snippet.blocks.push_back({.language = "python", .file = "", .text = std::move(text)});
  snippet.notes.push_back(
      fmt::format("Start your recipe with: {}.", torchrun(launch, "your_recipe.py")));
  note_kv_heads(snippet, launch);
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "megatron-bridge",
    .title = "Megatron-Bridge (NeMo)",
    .aliases = aliases,
    .checked =
        "Megatron-Bridge 0.7: "
        "https://docs.nvidia.com/nemo/megatron-bridge/latest/parallelisms.html",
    .stack = "nemo",
    .ways = ways,
    .heads = {.values = strict_heads, .source = guide},
    .recompute = {.values = any_recompute, .source = guide},
    .modules = megatron_modules,
    .axes = {.tensor = true,
             .pipeline = true,
             .expert = true,
             .kv_copies = true,
             .orders = plain_and_interleaved,
             .dispatchers = both_dispatchers,
             .shard_copies = true},
    .families = families,
    .unit = {.tokens = 1, .source = megatron_mappings},
    .half_attention = transformer_engine_source,
    .loads_models = true,
    .also_step = megatron_step,
    .emit = emit,
};

}  // namespace spp::frameworks::megatron_bridge
