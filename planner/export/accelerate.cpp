// Accelerate, and what starts through it: TRL, Transformers' Trainer. cp_size is PyTorch's context
// parallelism under FSDP2, sp_size is Ulysses under DeepSpeed; one of them at a time. FSDP2 shards
// over the cp ranks, DeepSpeed over all.
#include "planner/export/context_parallel.hpp"
#include "planner/export/deepspeed_config.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::accelerate {
namespace {

constexpr std::array<std::string_view, 3> aliases{"trl", "transformers", "hf-trainer"};
constexpr std::string_view context_parallelism =
    "https://huggingface.co/docs/accelerate/concept_guides/context_parallelism";
constexpr std::string_view parallelism =
    "https://github.com/huggingface/accelerate/blob/main/src/accelerate/parallelism_config.py";
constexpr std::array<Way, 3> ways{{torch_ways[0],
                                   torch_ways[1],
                                   {.name = "sp_size",
                                    .strategy = "ulysses",
                                    .source = accelerate_sequence_parallelism,
                                    .unit = 1,
                                    .no_sinks = true,
                                    .no_shard_copies = true,
                                    .no_tensor = true,
                                    .one_width = true}}};

constexpr std::string_view launcher =
    "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py";

std::string_view precision(DType dtype) { return dtype == DType::fp32 ? "no" : to_string(dtype); }

std::string head(const Launch& launch, std::string_view type) {
  return fmt::format(
      "compute_environment: LOCAL_MACHINE\n"
      "distributed_type: {}\n"
      "num_machines: {}\n"
      "num_processes: {}\n"
      "machine_rank: 0\n",
      type, launch.nodes, launch.world());
}

std::string under_fsdp(const Launch& launch, const Way& way) {
  return fmt::format(
      "{}"
      "mixed_precision: '{}'\n"
      "fsdp_config:\n"
      "  fsdp_version: 2\n"
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
      "  fsdp_reshard_after_forward: {}\n"
      "  fsdp_activation_checkpointing: {}\n"
      "parallelism_config:\n"
      "  parallelism_config_dp_replicate_size: {}\n"
      "  parallelism_config_dp_shard_size: {}\n"
      "  parallelism_config_tp_size: {}\n"
      "  parallelism_config_cp_size: {}\n"
      "  parallelism_config_cp_comm_strategy: {}\n",
      head(launch, "FSDP"), precision(launch.problem.dtype), launch.zero == 3,
      launch.recompute.kind == Recompute::full, launch.shard_copies, launch.shard_data(), launch.tp,
      launch.context(), way.name);
}

/// Precision is in DeepSpeed's file alone: beside it Accelerate refuses mixed_precision
/// (DeepSpeedPlugin, _deepspeed_config_checks). Of several nodes each is started by hand, not all
/// by pdsh from the first.
std::string under_deepspeed(const Launch& launch) {
  return fmt::format(
      "{}"
      "deepspeed_config:\n"
      "  deepspeed_config_file: ds_config.json\n"
      "{}"
      "parallelism_config:\n"
      "  parallelism_config_dp_replicate_size: 1\n"
      "  parallelism_config_dp_shard_size: {}\n"
      "  parallelism_config_sp_size: {}\n"
      "  parallelism_config_sp_backend: deepspeed\n"
      "  parallelism_config_sp_seq_length_is_variable: true\n"
      "  parallelism_config_sp_attn_implementation: flash_attention_2\n",
      head(launch, "DEEPSPEED"),
      launch.nodes > 1 ? "  deepspeed_multinode_launcher: standard\n" : "", launch.dp,
      launch.context());
}

Cannot also(const SequencePlan& plan, const Problem& problem) {
  if (plan.strategy != "ulysses" || plan.ranks() == 1 || problem.dtype != DType::fp32) {
    return {};
  }
  return {.rule = "dtype",
          .what = "sp_size runs flash_attention_2, which takes 16 bits alone, not fp32",
          .source = std::string(flash_attention)};
}

Snippet emit(const Launch& launch, const Way& way) {
  const bool ulysses = way.strategy == "ulysses";
  Snippet snippet{.says = {.seq = true,
                           .batch = true,
                           .micro_batches = true,
                           .dtype = true,
                           .layers = true,
                           .zero = true,
                           .recompute = true,
                           .offload_optimizer = ulysses,
                           .no_sequence_parallel = true,
                           .nodes = true}};
  Command command("accelerate launch");
  command.add("--config_file", "accelerate.yaml");
  if (launch.nodes > 1) {
    command.add("--machine_rank", "\"$NODE_RANK\"");
    command.add("--main_process_ip", "\"$MASTER_ADDR\"").add("--main_process_port", 29500);
  }
  command.add("train.py");
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.blocks.push_back({.language = "yaml",
                            .file = "accelerate.yaml",
                            .text = ulysses ? under_deepspeed(launch) : under_fsdp(launch, way)});
  if (ulysses) {
    snippet.blocks.push_back({.language = "json",
                              .file = "ds_config.json",
                              .text = deepspeed_config(launch).dump(2) + "\n"});
    snippet.notes.push_back(
        fmt::format("In TRL: SFTConfig(max_length={}, pad_to_multiple_of={}, "
                    "per_device_train_batch_size={}, gradient_accumulation_steps={}, "
                    "gradient_checkpointing={}).",
                    launch.problem.seq, launch.context(), launch.problem.batch,
                    launch.micro_batches, python(launch.recompute.kind == Recompute::full)));
    snippet.notes.emplace_back(
        "Load the model with attn_implementation=\"flash_attention_2\" (in TRL: "
        "model_init_kwargs): "
        "DeepSpeed takes the place of that attention alone, and of another one each rank would "
        "see its own tokens only.");
  } else {
    snippet.notes.push_back(fmt::format(
        "In TRL: SFTConfig(max_length={}, pad_to_multiple_of={}, "
        "per_device_train_batch_size={}, gradient_accumulation_steps={}, "
        "gradient_checkpointing=False): FSDP computes activations again.",
        launch.problem.seq, 2 * launch.context(), launch.problem.batch, launch.micro_batches));
    snippet.notes.emplace_back(
        "The model runs scaled_dot_product_attention (attn_implementation "
        "sdpa) with a causal mask or none.");
  }
  snippet.environment.push_back(expandable_segments());
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "accelerate",
    .title = "Accelerate (and TRL, Transformers' Trainer)",
    .aliases = aliases,
    .checked =
        "Accelerate 1.15: "
        "https://huggingface.co/docs/accelerate/concept_guides/context_parallelism",
    .stack = "hf-accelerate",
    .ways = ways,
    .heads = {.values = divided_or_copied, .source = accelerate_sequence_parallelism},
    .zero = {.values = stages_under_ulysses, .source = accelerate_sequence_parallelism},
    .recompute = {.values = none_or_full, .source = context_parallelism},
    .axes = {.tensor = true,
             .shard_copies = true,
             .cut_weights = parallelism,
             .cut_copies = parallelism},
    .models = ModelKind::llm,
    .even_nodes = launcher,
    .loads_models = true,
    .also = also,
    .emit = emit,
};

}  // namespace spp::frameworks::accelerate
