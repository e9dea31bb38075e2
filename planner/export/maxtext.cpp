// MaxText: every axis of the mesh is a key. On GPUs there is one slice, so the ici_ axes multiply
// to all devices. Load balance deals tokens out in two chunks from either end ("dual chunk swap").
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

#include <cmath>

namespace spp::frameworks::maxtext {
namespace {

constexpr std::string_view base =
    "https://github.com/AI-Hypercomputer/maxtext/blob/main/src/maxtext/configs/base.yml";
constexpr std::array stages{0, 1, 3};
constexpr std::array balanced_or_not{Layout::zigzag, Layout::contiguous};
constexpr std::array<Way, 6> ways{
    {{.name = "all_gather",
      .strategy = "all-gather",
      .source = base,
      .layouts = zigzag_only,
      .both = false,
      .unit = 2},
     {.name = "all_gather",
      .strategy = "all-gather",
      .source = base,
      .layouts = contiguous_only,
      .both = false,
      .unit = 1},
     {.name = "ring", .strategy = "zigzag-ring", .source = base, .layouts = zigzag_only, .unit = 2},
     {.name = "ring", .strategy = "ring", .source = base, .unit = 1},
     {.name = "ulysses", .strategy = "ulysses", .source = base, .unit = 1},
     {.name = "usp",
      .strategy = "usp",
      .source = base,
      .layouts = balanced_or_not,
      .inner = Inner::ulysses,
      .unit = 2}}};

std::string_view yaml(bool value) { return value ? "true" : "false"; }

/// Each device's part of the sequences that are worked on at once, with a pipeline of the whole
/// step's; below one where devices share a sequence. MaxText rounds its product with the devices
/// down (calculate_global_batch_sizes): it is no less than the sequences.
std::string per_device_batch(const Launch& launch) {
  const std::int64_t at_once =
      launch.pp > 1 ? launch.global_batch() : launch.problem.batch * launch.dp;
  const auto sequences = static_cast<double>(at_once);
  double part = sequences / launch.world();
  while (part * launch.world() < sequences) {
    part = std::nextafter(part, sequences);
  }
  return fmt::format("{}", part);
}

void add_step(Command& command, const Launch& launch) {
  const bool shards_weights = launch.zero == 3;
  command.add(fmt::format("per_device_batch_size={}", per_device_batch(launch)));
  command.add(fmt::format("ici_fsdp_parallelism={}", shards_weights ? launch.dp : 1));
  command.add(fmt::format("ici_data_parallelism={}", shards_weights ? 1 : launch.dp));
  if (launch.zero == 1) {
    command.add("shard_optimizer_over_data=true");
  }
  // The axis tensor_sequence cuts tokens between GEMMs, too, as Megatron's sequence parallelism.
  command.add(fmt::format(
      "{}={}",
      launch.tensor_sequence ? "ici_tensor_sequence_parallelism" : "ici_tensor_parallelism",
      launch.tp));
  command.add(fmt::format("ici_pipeline_parallelism={}", launch.pp));
  if (launch.pp > 1) {
    command.add(fmt::format("num_pipeline_microbatches={}", launch.micro_batches));
    command.add(
        fmt::format("num_layers_per_pipeline_stage={}",
                    launch.model != nullptr
                        ? launch.model->layers / (std::int64_t{launch.pp} * launch.virtual_stages)
                        : 1));
  } else if (launch.micro_batches > 1) {
    command.add(fmt::format("gradient_accumulation_steps={}", launch.micro_batches));
  }
  command.add(fmt::format("remat_policy={}", launch.recompute.kind == Recompute::full
                                                 ? "full"
                                                 : "minimal_with_context"));
}

Snippet emit(const Launch& launch, const Way& way) {
  const bool half = launch.problem.dtype == DType::fp16;
  Snippet snippet{.says = {.seq = true,
                           .batch = true,
                           .micro_batches = true,
                           .dtype = !half,
                           .layers = true,
                           .zero = true,
                           .recompute = true,
                           .offload_optimizer = true,
                           .sequence_parallel = true,
                           .no_sequence_parallel = true,
                           .virtual_stages = launch.model != nullptr}};
  Command command("python3 -m maxtext.trainers.pre_train.train \"$CONFIG\"");
  command.add(fmt::format("max_target_length={}", launch.problem.seq));
  if (!half) {
    command.add(fmt::format("dtype={}", long_name(launch.problem.dtype)));
  }
  if (moves_optimizer(launch.offload)) {
    command.add("optimizer_memory_host_offload=true");
  }
  if (launch.context() > 1) {
    const bool both = way.strategy == "usp";
    command.add(fmt::format("context_parallel_strategy={}", way.name));
    command.add(
        fmt::format("ici_context_parallelism={}", both ? launch.attention.ring : launch.context()));
    if (both) {
      command.add(fmt::format("ici_context_usp_ulysses_parallelism={}", launch.attention.ulysses));
    }
    command.add(fmt::format("context_parallel_load_balance={}",
                            yaml(launch.attention.layout == Layout::zigzag)));
    command.add("packing=false");
  }
  add_step(command, launch);
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.notes.emplace_back(
      "CONFIG is a file like src/maxtext/configs/base.yml; add model_name=, run_name=, "
      "base_output_directory= and the data.");
  if (launch.zero == 3 && launch.context() > 1) {
    snippet.notes.emplace_back(
        "Weights are cut over ici_fsdp_parallelism, and by MaxText's own rules for axes over the "
        "context ranks, too.");
  }
  if (launch.recompute.kind == Recompute::none) {
    snippet.notes.emplace_back(
        "remat_policy=minimal_with_context keeps the most that a policy of MaxText keeps; small "
        "tensors are still computed again.");
  }
  if (launch.pp > 1) {
    snippet.notes.emplace_back(
        "MaxText pipelines micro-batches in a loop of its own, neither 1F1B nor interleaved: the "
        "bubble is (stages - 1) / (repeats x micro-batches + stages - 1).");
  }
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "maxtext",
    .title = "MaxText (JAX)",
    .checked =
        "MaxText, its main branch of 2026: "
        "https://github.com/AI-Hypercomputer/maxtext/blob/main/src/maxtext/configs/base.yml",
    .stack = "maxtext",
    .ways = ways,
    .masks = {.values = causal_mask_only, .source = base},
    .heads = {.values = strict_heads, .source = base},
    .zero = {.values = stages, .source = base},
    .recompute = {.values = none_or_full, .source = base},
    .axes = {.tensor = true,
             .pipeline = true,
             .orders = plain_and_interleaved,
             .layers = DealtLayers::even_stages},
    .models = ModelKind::llm,
    .emit = emit,
};

}  // namespace spp::frameworks::maxtext
