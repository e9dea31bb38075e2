// Megatron-Bridge (NeMo): Megatron-Core's options as Python. a2a+p2p without the hierarchical sizes
// switches context parallelism off in silence (NVIDIA-NeMo/Megatron-Bridge#2667), so both are
// written, or neither.
#include "planner/export/context_parallel.hpp"
#include "planner/export/megatron_flags.hpp"

namespace spp::frameworks::megatron_bridge {
namespace {

constexpr std::array<std::string_view, 2> aliases{"nemo", "mbridge"};
constexpr std::string_view guide =
    "https://docs.nvidia.com/nemo/megatron-bridge/latest/parallelisms.html";
constexpr std::array ways = transformer_engine_ways(Inner::ulysses);

Snippet emit(const Launch& launch, const Way& way) {
  std::string text = "def apply(cfg):  # a ConfigContainer, such as a recipe's\n";
  const auto set = [&](std::string_view key, const auto& value) {
    text += fmt::format("    cfg.{} = {}\n", key, value);
  };
  set("model.seq_length", launch.problem.seq);
  set("model.tensor_model_parallel_size", launch.tp);
  set("model.pipeline_model_parallel_size", launch.pp);
  if (launch.virtual_stages > 1) {
    set("model.virtual_pipeline_model_parallel_size", launch.virtual_stages);
  }
  if (const std::string layout = layout_by_hand(launch); !layout.empty()) {
    set("model.pipeline_model_parallel_layout", fmt::format("\"{}\"", layout));
  }
  const CountedEnds ends = counted_ends(launch);
  if (ends.embedding) {
    set("model.account_for_embedding_in_pipeline_split", "True");
  }
  if (ends.loss) {
    set("model.account_for_loss_in_pipeline_split", "True");
  }
  if (launch.ep > 1) {
    set("model.expert_model_parallel_size", launch.ep);
    set("model.expert_tensor_parallel_size", launch.etp);
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
  if (launch.recompute == Recompute::full) {
    set("model.recompute_granularity", "\"full\"");
    set("model.recompute_method", "\"uniform\"");
    set("model.recompute_num_layers", 1);
  }
  set("train.micro_batch_size", launch.problem.batch);
  set("train.global_batch_size", launch.global_batch());
  set("ddp.use_distributed_optimizer", python(launch.zero >= 1));
  set("optimizer.use_distributed_optimizer", python(launch.zero >= 1));
  if (launch.shard_copies > 1) {
    set("ddp.num_distributed_optimizer_instances", launch.shard_copies);
  }
  if (launch.zero >= 2) {
    set("dist.use_megatron_fsdp", "True");
    set("ddp.use_megatron_fsdp", "True");
    set("ddp.average_in_collective", "False");
    set("ddp.data_parallel_sharding_strategy",
        launch.zero == 2 ? "\"optim_grads\"" : "\"optim_grads_params\"");
    set("model.gradient_accumulation_fusion", "False");
    set("checkpoint.ckpt_format", "\"fsdp_dtensor\"");
  }
  text += "    return cfg\n";
  Snippet snippet;
  snippet.blocks.push_back({.language = "python", .file = "", .text = std::move(text)});
  snippet.notes.push_back(
      fmt::format("Start your recipe with: {}.", torchrun(launch, "your_recipe.py")));
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
    .recompute = {.values = none_or_full, .source = guide},
    .axes = {.tensor = true, .pipeline = true, .expert = true, .shard_copies = true},
    .loads_models = true,
    .emit = emit,
};

}  // namespace spp::frameworks::megatron_bridge
