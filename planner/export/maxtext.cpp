// MaxText: every axis of the mesh is two keys, ici_ within a slice, dcn_ over slices. A slice of
// GPUs is a node. Load balance deals tokens out in two chunks from either end ("dual chunk swap").
// Its Ulysses and USP run on TPUs alone.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"
#include "planner/framework_step.hpp"

#include <array>
#include <cmath>
#include <numeric>

namespace spp::frameworks::maxtext {
namespace {

constexpr std::string_view base =
    "https://github.com/AI-Hypercomputer/maxtext/blob/main/src/maxtext/configs/base.yml";
constexpr std::array stages{0, 1, 3};
constexpr std::array<Way, 4> ways{
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
     {.name = "ring", .strategy = "ring", .source = base, .unit = 1}}};

/// Its axis of experts is one of data ranks, which cuts all other weights, too; inside an expert
/// the axis of tensor ranks cuts (logical_axis_rules: 'exp', 'embed', 'mlp_moe').
Cannot also_step(const Request& request, const StepPlan& plan) {
  if (request.model->experts.count == 0) {
    return {};
  }
  if (plan.expert_tensor != plan.tensor) {
    return because("expert",
                   fmt::format("maxtext cuts each expert over the {} tensor ranks, not over {}",
                               plan.tensor, plan.expert_tensor),
                   base);
  }
  if (plan.expert > 1 && (plan.sequence() > 1 || plan.data % plan.expert != 0 || plan.zero != 3)) {
    return because(
        "expert",
        fmt::format("maxtext deals experts out over data ranks, here {}, that all weights are cut "
                    "over (ZeRO 3), and plans over ranks of a sequence first: not EP {} over {} "
                    "sequence ranks with ZeRO {}",
                    plan.data, plan.expert, plan.sequence(), plan.zero),
        base);
  }
  return {};
}

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

/// The mesh: innermost axes fill a node first; what is left of an axis goes over nodes.
void add_mesh(Command& command, const Launch& launch) {
  struct MeshAxis {
    std::string_view name;
    int ranks = 1;
  };
  const bool shards_weights = launch.zero == 3;
  const std::array axes{
      // The axis tensor_sequence cuts tokens between GEMMs, too, as Megatron's sequence
      // parallelism.
      MeshAxis{launch.tensor_sequence ? "tensor_sequence" : "tensor", launch.tp},
      MeshAxis{"context", launch.context()},
      MeshAxis{"expert", launch.ep},
      MeshAxis{"fsdp", shards_weights ? launch.dp / launch.ep : 1},
      MeshAxis{"data", shards_weights ? 1 : launch.dp},
      MeshAxis{"pipeline", launch.pp}};
  int left = launch.world() / launch.nodes;
  for (const MeshAxis& axis : axes) {
    const int inside = std::gcd(axis.ranks, left);
    left /= inside;
    command.add(fmt::format("ici_{}_parallelism={}", axis.name, inside));
    if (launch.nodes > 1) {
      command.add(fmt::format("dcn_{}_parallelism={}", axis.name, axis.ranks / inside));
    }
  }
}

void add_step(Command& command, const Launch& launch) {
  command.add(fmt::format("per_device_batch_size={}", per_device_batch(launch)));
  add_mesh(command, launch);
  if (launch.zero == 1) {
    command.add("shard_optimizer_over_data=true");
  }
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
                           .virtual_stages = launch.model != nullptr,
                           .nodes = true}};
  Command command("python3 -m maxtext.trainers.pre_train.train \"$CONFIG\"");
  command.add("hardware=gpu").add("attention=cudnn_flash_te");
  command.add(fmt::format("max_target_length={}", launch.problem.seq));
  if (!half) {
    command.add(fmt::format("dtype={}", long_name(launch.problem.dtype)));
  }
  if (moves_optimizer(launch.offload)) {
    command.add("optimizer_memory_host_offload=true");
  }
  if (launch.context() > 1) {
    command.add(fmt::format("context_parallel_strategy={}", way.name));
    command.add(fmt::format("context_parallel_load_balance={}",
                            yaml(launch.attention.layout == Layout::zigzag)));
    command.add("packing=false");
  }
  add_step(command, launch);
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.notes.emplace_back(
      "CONFIG is a file like src/maxtext/configs/base.yml; add model_name=, run_name=, "
      "base_output_directory= and the data.");
  if (launch.context() > 1) {
    snippet.notes.push_back(fmt::format(
        "By MaxText's own rules for axes (base.yml, 'embed') weights are cut over the context "
        "ranks, too{}.",
        launch.zero == 3 ? "" : ", which is ZeRO 3 over them: less memory, and gathers"));
  }
  if (launch.nodes > 1) {
    snippet.notes.push_back(
        fmt::format("Start it once on each of the {} nodes, which it finds by what "
                    "initialize_jax_for_gpu reads "
                    "(JAX_COORDINATOR_IP, JAX_COORDINATOR_PORT, NNODES, NODE_RANK).",
                    launch.nodes));
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
             .expert = true,
             .orders = plain_and_interleaved,
             .layers = DealtLayers::even_stages,
             .expert_ranks = ExpertRanks::whole_groups,
             .expert_source = base,
             .dispatchers = all_to_all_only},
    .models = ModelKind::llm,
    .even_nodes = base,  // slices are alike
    .also_step = also_step,
    .emit = emit,
};

}  // namespace spp::frameworks::maxtext
