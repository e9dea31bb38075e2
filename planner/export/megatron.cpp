// Megatron-LM: context parallelism of TransformerEngine, behind flags.
//
//   zigzag-ring         --cp-comm-type p2p
//   all-gather          --cp-comm-type all_gather
//   ulysses U8          --cp-comm-type a2a
//   usp U8xR4 zigzag    --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 8 4
//
// Ranks are numbered tp-cp-ep-dp-pp; the first size of the hierarchy is that of adjacent ranks.
// The distributed optimizer and Megatron-FSDP shard over data x context parallel ranks.
#include "planner/export/context_parallel.hpp"
#include "planner/export/megatron_flags.hpp"

namespace spp::frameworks::megatron {
namespace {

constexpr std::array<std::string_view, 2> aliases{"megatron-lm", "megatron-core"};
constexpr std::array ways = transformer_engine_ways(Inner::ulysses);

/// Scales of a whole tensor, as fast as any; of blocks where the format says so, whose gradients
/// need no wider range (Megatron-Bridge's recipes, training/mixed_precision.py).
void add_gemm_format(Command& command, GemmFormat format) {
  switch (format) {
    case GemmFormat::plain:
      return;
    case GemmFormat::fp8:
      command.add("--fp8-format", "hybrid").add("--fp8-recipe", "tensorwise");
      return;
    case GemmFormat::fp8_block:
      command.add("--fp8-format", "e4m3").add("--fp8-recipe", "blockwise");
      return;
    case GemmFormat::mxfp8:
      command.add("--fp8-format", "e4m3").add("--fp8-recipe", "mxfp8");
      return;
    case GemmFormat::nvfp4:
      command.add("--fp4-format", "e2m1").add("--fp4-recipe", "nvfp4");
      return;
  }
}

Snippet emit(const Launch& launch, const Way& way) {
  Snippet snippet{.says = megatron_says};
  snippet.says.format = true;
  snippet.says.offload_optimizer = can_offload_optimizer(launch);
  Command command(torchrun(launch, "pretrain_gpt.py"));
  command.add("--transformer-impl", "transformer_engine");
  add_megatron_model(command, launch);
  add_megatron_step(command, launch);
  add_gemm_format(command, launch.format);
  command.add("--context-parallel-size", launch.context());
  if (launch.context() > 1) {
    command.add("--cp-comm-type", way.name);
  }
  if (way.strategy == "usp") {
    command.add("--hierarchical-context-parallel-sizes",
                fmt::format("{} {}", launch.attention.ulysses, launch.attention.ring));
  }
  add_megatron_zero(command, launch);
  command.add("\"${DATA_ARGS[@]}\"");
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  if (launch.zero >= 2) {
    snippet.environment.push_back(
        {.name = "CUDA_DEVICE_MAX_CONNECTIONS",
         .value = "",
         .why = "Megatron-FSDP needs more than one connection to overlap"});
  } else if (launch.context() > 1 || launch.tp > 1) {
    snippet.environment.push_back(
        {.name = "CUDA_DEVICE_MAX_CONNECTIONS",
         .value = "1",
         .why = "asserted for context and tensor parallelism before Blackwell GPUs"});
  }
  snippet.notes.emplace_back(
      "DATA_ARGS is yours: data, tokenizer, optimizer and checkpoints; what of the model's shape "
      "flags your script has already, leave out.");
  if (way.name == "all_gather") {
    snippet.notes.emplace_back(
        "Megatron-LM's help calls it allgather; TransformerEngine takes all_gather only.");
  }
  note_model(snippet, launch);
  note_kv_heads(snippet, launch);
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "megatron",
    .title = "Megatron-LM",
    .aliases = aliases,
    .checked =
        "Megatron-LM, Core 0.13 to 0.18: "
        "https://docs.nvidia.com/megatron-core/developer-guide/latest/user-guide/"
        "parallelism-guide.html",
    .stack = "megatron-te",
    .ways = ways,
    .heads = {.values = strict_heads, .source = transformer_engine_source},
    .recompute = {.values = any_recompute, .source = megatron_arguments},
    .modules = megatron_modules,
    .axes = {.tensor = true,
             .pipeline = true,
             .expert = true,
             .kv_copies = true,
             .orders = plain_and_interleaved,
             .dispatchers = both_dispatchers,
             .shard_copies = true},
    .models = ModelKind::llm,
    .unit = {.tokens = 1, .source = megatron_mappings},
    .half_attention = transformer_engine_source,
    .writes_heads = true,
    .also_step = megatron_step,
    .emit = emit,
};

}  // namespace spp::frameworks::megatron
