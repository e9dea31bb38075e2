// Axolotl: ring-flash-attention's rings behind YAML. varlen_llama3 gathers, batch_ring passes
// round; the balanced layouts are not offered. FSDP2 shards over data x context ranks; under
// DeepSpeed there would be no rings.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::axolotl {
namespace {

constexpr std::string_view guide = "https://docs.axolotl.ai/docs/sequence_parallelism.html";
constexpr std::string_view validation =
    "https://github.com/axolotl-ai-cloud/axolotl/blob/main/src/axolotl/utils/schemas/validation.py";
constexpr std::string_view matrix = "https://docs.axolotl.ai/docs/nd_parallelism.html";
constexpr std::array stages{2, 3};
constexpr std::array<Way, 2> ways{
    {{.name = "batch_ring", .strategy = "ring", .source = guide, .no_sinks = true},
     {.name = "varlen_llama3",
      .strategy = "all-gather",
      .source = guide,
      .layouts = contiguous_only,
      .both = false,
      .no_sinks = true}}};

/// With packed samples ring-flash-attention takes one sequence at once
/// (check_context_parallel_size).
Cannot also(const SequencePlan& plan, const Problem& problem) {
  if (plan.ranks() == 1 || plan.strategy != "all-gather" || problem.batch == 1) {
    return {};
  }
  return {.rule = "batch",
          .what = fmt::format("axolotl wants micro-batches of one sequence for varlen_llama3: {}",
                              problem.batch),
          .source = std::string(validation)};
}

Snippet emit(const Launch& launch, const Way& way) {
  Snippet snippet{.says = {.seq = true,
                           .batch = true,
                           .micro_batches = true,
                           .dtype = true,
                           .layers = true,
                           .zero = true,
                           .recompute = true,
                           .no_sequence_parallel = true,
                           .nodes = true}};
  Command command("axolotl train");
  command.add("axolotl.yaml");
  command.add("--launcher", "torchrun").add("--");
  command.add("--nproc-per-node", processes_per_node(launch));
  if (launch.nodes > 1) {
    command.add("--nnodes", launch.nodes).add("--node-rank", "\"$NODE_RANK\"");
    command.add("--master-addr", "\"$MASTER_ADDR\"").add("--master-port", 29500);
  }
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.blocks.push_back(
      {.language = "yaml",
       .file = "axolotl.yaml",
       .text = fmt::format("sequence_len: {}\n"
                           "micro_batch_size: {}\n"
                           "gradient_accumulation_steps: {}\n"
                           "sample_packing: {}\n"
                           "flash_attention: true\n"
                           "context_parallel_size: {}\n"
                           "ring_attn_func: {}\n"
                           "heads_k_stride: 1\n"
                           "gradient_checkpointing: {}\n"
                           "bf16: {}\n"
                           "fp16: {}\n"
                           "tensor_parallel_size: {}\n"
                           "dp_replicate_size: {}\n"
                           "dp_shard_size: {}\n"
                           "fsdp_version: 2\n"
                           "fsdp_config:\n"
                           "  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                           "  state_dict_type: SHARDED_STATE_DICT\n"
                           "  offload_params: false\n"
                           "  reshard_after_forward: {}\n",
                           launch.problem.seq, launch.problem.batch, launch.micro_batches,
                           way.strategy == "all-gather", launch.context(), way.name,
                           launch.recompute.kind == Recompute::full,
                           launch.problem.dtype == DType::bf16, launch.problem.dtype == DType::fp16,
                           launch.tp, launch.shard_copies, launch.shard_data(), launch.zero == 3)});
  snippet.notes.emplace_back(
      "Add base_model, datasets, optimizer and fsdp_config.transformer_layer_cls_to_wrap. "
      "varlen_llama3 wants packed samples, batch_ring wants none.");
  note_padding(snippet, launch, "Axolotl");
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "axolotl",
    .title = "Axolotl",
    .checked = "Axolotl 0.18: https://docs.axolotl.ai/docs/config-reference.html",
    .stack = "",
    .ways = ways,
    .zero = {.values = stages, .source = matrix},
    .recompute = {.values = none_or_full, .source = guide},
    .axes = {.tensor = true, .shard_copies = true, .cut_weights = matrix, .cut_copies = matrix},
    .models = ModelKind::llm,
    .half_attention = flash_attention,
    .loads_models = true,
    .also = also,
    .emit = emit,
};

}  // namespace spp::frameworks::axolotl
