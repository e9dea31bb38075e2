// MindSpeed: Megatron-LM on Ascend, with algorithms of its own for context parallelism: Ulysses,
// a (double) ring, and both.
#include "parallel/attention/double_ring_core.hpp"
#include "planner/export/context_parallel.hpp"
#include "planner/export/megatron_flags.hpp"

namespace spp::frameworks::mindspeed {
namespace {

constexpr std::string_view guide = "https://gitee.com/ascend/MindSpeed";
constexpr std::string_view hybrid =
    "https://gitcode.com/Ascend/MindSpeed-MM/blob/2.3.0/docs/features/dit_usp.md";
constexpr std::array stages{0, 1};
constexpr std::array<Way, 5> ways{
    {{.name = "ulysses_cp_algo", .strategy = "ulysses", .source = guide, .unit = 1},
     {.name = "megatron_cp_algo", .strategy = "zigzag-ring", .source = guide, .unit = 2},
     {.name = "megatron_cp_algo",
      .strategy = "double-ring",
      .source = guide,
      .layouts = zigzag_only,
      .both = false,
      .unit = 2},
     {.name = "hybrid_cp_algo",
      .strategy = "usp",
      .source = hybrid,
      .layouts = zigzag_only,
      .inner = Inner::ulysses,
      .unit = 2},
     {.name = "hybrid_cp_algo",
      .strategy = "double-ring",
      .source = hybrid,
      .layouts = zigzag_only,
      .inner = Inner::ulysses,
      .unit = 2}}};

Snippet emit(const Launch& launch, const Way& way) {
  const SequencePlan& plan = launch.attention;
  Snippet snippet{.says = megatron_says};
  // Its mask type stands beside a ring alone.
  snippet.says.full_mask = plan.ring > 1;
  snippet.says.offload_optimizer = can_offload_optimizer(launch);
  Command command(torchrun(launch, "pretrain_gpt.py"));
  add_megatron_model(command, launch);
  add_megatron_step(command, launch);
  command.add("--context-parallel-size", launch.context());
  if (launch.context() > 1) {
    command.add("--context-parallel-algo", way.name);
  }
  if (way.name == "hybrid_cp_algo") {
    command.add("--ulysses-degree-in-cp", plan.ulysses);
  }
  if (const int window = plan.own[parameters::window]; window > 1) {
    command.add("--cp-window-size", window);
  }
  if (plan.ring > 1) {
    command.add("--use-cp-send-recv-overlap");
    command.add("--attention-mask-type",
                launch.problem.mask.kind == MaskKind::full ? "general" : "causal");
  }
  add_megatron_zero(command, launch);
  command.add("\"${DATA_ARGS[@]}\"");
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.environment.push_back({.name = "CUDA_DEVICE_MAX_CONNECTIONS",
                                 .value = "1",
                                 .why = "asserted by Megatron-LM for context parallelism"});
  snippet.notes.emplace_back(
      "MindSpeed runs on Ascend NPUs alone, and its flags are known where pretrain_gpt.py begins "
      "with 'import mindspeed.megatron_adaptor'.");
  snippet.notes.emplace_back("DATA_ARGS is yours: data, tokenizer, optimizer and checkpoints.");
  note_model(snippet, launch);
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "mindspeed",
    .title = "MindSpeed (Megatron-LM on Ascend)",
    .checked = "MindSpeed, as MindSpeed-MM 2.3.0 documents it: https://gitee.com/ascend/MindSpeed",
    .stack = "",
    .ways = ways,
    .heads = {.values = strict_heads, .source = hybrid},
    .zero = {.values = stages, .source = guide},
    .recompute = {.values = any_recompute, .source = megatron_arguments},
    .modules = megatron_modules,
    .axes = {.tensor = true,
             .pipeline = true,
             .expert = true,
             .orders = plain_and_interleaved,
             .dispatchers = both_dispatchers},
    .models = ModelKind::llm,
    .unit = {.tokens = 1, .source = megatron_mappings},
    .writes_heads = true,
    .emit = emit,
};

}  // namespace spp::frameworks::mindspeed
