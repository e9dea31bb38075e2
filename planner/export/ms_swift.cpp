// ms-swift: sequence_parallel_size N; which part of it is Ulysses it decides itself, the greatest
// common divisor of KV heads and N, with a zigzag ring for the rest.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

#include <numeric>

namespace spp::frameworks::ms_swift {
namespace {

constexpr std::array<std::string_view, 1> aliases{"swift"};
constexpr std::string_view parameters =
    "https://swift.readthedocs.io/en/latest/Instruction/Command-line-parameters.html";
constexpr std::array stages{0, 1, 2, 3};
constexpr std::array<Way, 3> ways{{{.name = "sequence_parallel_size",
                                    .strategy = "ulysses",
                                    .source = parameters,
                                    .unit = 1,
                                    .no_sinks = true},
                                   {.name = "sequence_parallel_size",
                                    .strategy = "zigzag-ring",
                                    .source = parameters,
                                    .unit = 2,
                                    .no_sinks = true},
                                   {.name = "sequence_parallel_size",
                                    .strategy = "usp",
                                    .source = parameters,
                                    .layouts = zigzag_only,
                                    .inner = Inner::ulysses,
                                    .unit = 2,
                                    .no_sinks = true}}};

Cannot also(const SequencePlan& plan, const Problem& problem) {
  const int ulysses = std::gcd(problem.kv_heads, plan.ranks());
  if (plan.ulysses == ulysses) {
    return {};
  }
  return {.rule = "degrees",
          .what = fmt::format("ms-swift chooses U itself: gcd({} KV heads, {}) = {}, not {}",
                              problem.kv_heads, plan.ranks(), ulysses, plan.ulysses),
          .source = std::string(parameters)};
}

Snippet emit(const Launch& launch, const Way&) {
  const bool offloads = moves_optimizer(launch.offload) && launch.zero >= 2;
  Snippet snippet{.says = {.seq = true,
                           .batch = true,
                           .micro_batches = true,
                           .dtype = true,
                           .layers = true,
                           .zero = true,
                           .recompute = true,
                           .offload_optimizer = offloads,
                           .nodes = true}};
  Command command("swift sft");
  command.add("--model", "\"$MODEL\"").add("--dataset", "\"$DATASET\"");
  command.add("--tuner_type", "full");  // else lora
  command.add("--max_length", launch.problem.seq);
  command.add("--per_device_train_batch_size", launch.problem.batch);
  command.add("--gradient_accumulation_steps", launch.micro_batches);
  command.add("--sequence_parallel_size", launch.context());
  command.add("--attn_impl", "flash_attn");
  if (launch.attention.ring > 1) {
    command.add("--padding_free", "true");
  }
  command.add("--torch_dtype", long_name(launch.problem.dtype));
  command.add("--gradient_checkpointing", launch.recompute.kind == Recompute::full);
  command.add("--deepspeed", fmt::format("zero{}{}", launch.zero, offloads ? "_offload" : ""));
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.environment.push_back({.name = "NPROC_PER_NODE",
                                 .value = fmt::format("{}", processes_per_node(launch)),
                                 .why = "processes that swift starts on this node"});
  if (launch.nodes > 1) {
    snippet.environment.push_back(
        {.name = "NNODES", .value = fmt::format("{}", launch.nodes), .why = "nodes of the job"});
  }
  snippet.environment.push_back(expandable_segments());
  snippet.notes.push_back(fmt::format("ms-swift makes of it Ulysses {} x ring {}.",
                                      launch.attention.ulysses, launch.attention.ring));
  if (offloads && launch.zero == 3) {
    snippet.notes.emplace_back("zero3_offload moves the parameters to the host's memory, too.");
  }
  snippet.notes.emplace_back(
      "MODEL and DATASET are yours. Before ms-swift 4 --tuner_type is --train_type.");
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "ms-swift",
    .title = "ms-swift (SWIFT)",
    .aliases = aliases,
    .checked =
        "ms-swift 4.6: "
        "https://swift.readthedocs.io/en/latest/Instruction/Command-line-parameters.html",
    .stack = "",
    .ways = ways,
    .heads = {.values = strict_heads, .source = parameters},
    .zero = {.values = stages, .source = parameters},
    .recompute = {.values = none_or_full, .source = parameters},
    .models = ModelKind::llm,
    .half_attention = flash_attention,
    .loads_models = true,
    .also = also,
    .emit = emit,
};

}  // namespace spp::frameworks::ms_swift
