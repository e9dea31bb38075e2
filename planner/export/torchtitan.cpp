// torchtitan: context parallelism of PyTorch. FSDP shards over dp_shard x cp, always: ZeRO 3, or 2
// where parameters stay gathered after the forward; dp_replicate groups of data ranks have copies.
// Experts are split over ranks that dense weights have for context and shards (ParallelDims), and
// without expert parallelism over the tensor ranks.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"
#include "step/stages.hpp"

namespace spp::frameworks::torchtitan {
namespace {

constexpr std::string_view configs =
    "https://github.com/pytorch/torchtitan/blob/main/torchtitan/config/configs.py";
/// seq_len_divisor, whatever the degrees.
constexpr std::string_view parallel_dims =
    "https://github.com/pytorch/torchtitan/blob/main/torchtitan/distributed/parallel_dims.py";
/// maybe_enable_amp(): else mixed precision is off.
constexpr std::string_view precision =
    "https://github.com/pytorch/torchtitan/blob/main/torchtitan/distributed/utils.py";
constexpr std::array stages{2, 3};
constexpr std::array orders{"1f1b"sv, "interleaved"sv, "gpipe"sv};
constexpr std::array<Way, 4> ways{{torch_ways[0],
                                   torch_ways[1],
                                   {.name = "alltoall",
                                    .strategy = "ring",
                                    .source = configs,
                                    .unit = 1,
                                    .no_sinks = true,
                                    .no_windows = true},
                                   {.name = "allgather",
                                    .strategy = "all-gather",
                                    .source = configs,
                                    .layouts = contiguous_only,
                                    .both = false,
                                    .unit = 1,
                                    .no_sinks = true,
                                    .no_windows = true}}};

/// Layers are dealt out as planned. torchtitan counts embedding and head as a layer each, and makes
/// one virtual stage a rank, or two where they are interleaved, unless told.
void add_layers(Command& command, const Launch& launch) {
  const std::int64_t all = std::int64_t{launch.pp} * launch.virtual_stages;
  const CountedEnds ends = spp::counted_ends(launch.model->layers, all);
  command.add("--parallelism.pipeline-parallel-layers-per-stage",
              (launch.model->layers + ends.layers()) / all);
  command.add("--parallelism.pipeline-parallel-first-stage-less-layers", ends.embedding ? 1 : 0);
  command.add("--parallelism.pipeline-parallel-last-stage-less-layers", ends.loss ? 1 : 0);
}

Snippet emit(const Launch& launch, const Way& way) {
  // Stages with layers that predict further tokens are laid out by time.
  const bool deals = launch.model != nullptr && launch.model->predict_layers == 0;
  Snippet snippet{.says = {.seq = true,
                           .batch = true,
                           .micro_batches = true,
                           .dtype = launch.problem.dtype != DType::fp16,
                           .layers = true,
                           .zero = true,
                           .recompute = true,
                           .sequence_parallel = true,
                           .virtual_stages = deals,
                           .nodes = true}};
  Command command(torchrun(launch, "-m torchtitan.train"));
  command.add("--job.config-file", "\"$CONFIG\"");
  command.add("--training.seq-len", launch.problem.seq);
  command.add("--training.local-batch-size",
              launch.pp > 1 ? launch.problem.batch * launch.micro_batches : launch.problem.batch);
  if (launch.problem.dtype != DType::fp16) {
    command.add("--training.mixed-precision-param", long_name(launch.problem.dtype));
  }
  if (launch.micro_batches > 1 && launch.pp == 1) {
    command.add("--training.global-batch-size", launch.global_batch());
  }
  command.add("--parallelism.data-parallel-replicate-degree", launch.shard_copies);
  command.add("--parallelism.data-parallel-shard-degree", launch.shard_data());
  command.add("--parallelism.tensor-parallel-degree", launch.tp);
  command.add("--parallelism.pipeline-parallel-degree", launch.pp);
  if (launch.pp > 1) {
    command.add("--parallelism.pipeline-parallel-microbatch-size", launch.problem.batch);
    command.add("--parallelism.pipeline-parallel-schedule", launch.order == "interleaved"
                                                                ? "Interleaved1F1B"
                                                            : launch.order == "gpipe" ? "GPipe"
                                                                                      : "1F1B");
    if (deals) {
      add_layers(command, launch);
    }
  }
  command.add("--parallelism.context-parallel-degree", launch.context());
  if (launch.context() > 1) {
    command.add("--parallelism.context-parallel-rotate-method", way.name);
    command.add("--parallelism.context-parallel-load-balancer",
                launch.attention.layout == Layout::zigzag ? "headtail" : "None");
  }
  if (launch.ep > 1) {
    command.add("--parallelism.expert-parallel-degree", launch.ep);
    command.add("--parallelism.expert-tensor-parallel-degree", launch.etp);
  }
  // In a pipeline parameters stay gathered, as plans have them, by default.
  command.add("--parallelism.fsdp-reshard-after-forward", launch.zero == 2 ? "never"
                                                          : launch.pp > 1  ? "default"
                                                                           : "always");
  command.add("--activation-checkpoint.mode", to_string(launch.recompute.kind));
  if (launch.recompute.kind == Recompute::selective) {
    command.add("--activation-checkpoint.selective-ac-option", "op");
  }
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.environment.push_back(expandable_segments());
  snippet.notes.emplace_back(
      "CONFIG is your model's file, of torchtitan/models/*/train_configs/ (of Llama 3.1 8B "
      "llama3/train_configs/llama3_8b.toml).");
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "torchtitan",
    .title = "torchtitan",
    .checked =
        "torchtitan 0.2.2: "
        "https://github.com/pytorch/torchtitan/blob/main/torchtitan/config/configs.py",
    .stack = "torchtitan",
    .ways = ways,
    .zero = {.values = stages, .source = configs},
    .recompute = {.values = any_recompute, .source = configs},
    .modules = {RecomputeModule::every_second_gemm},
    .axes = {.tensor = true,
             .pipeline = true,
             .expert = true,
             .orders = orders,
             .expert_ranks = ExpertRanks::whole_groups,
             .expert_source = parallel_dims,
             .dispatchers = all_to_all_only,
             .shard_copies = true,
             .cut_weights = precision},
    .models = ModelKind::llm,
    .unit = {.tokens = 2, .source = parallel_dims},
    .emit = emit,
};

}  // namespace spp::frameworks::torchtitan
