// InternEvo (LoongTrain): Ulysses x double ring, sequence_2D. Mode isp has no tensor parallelism:
// its tensor size is the sequence's. Weights are cut over ranks in a row (ZeRO 3), or whole with
// the optimizer cut so (ZeRO 1).
#include "parallel/attention/double_ring_core.hpp"
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::internevo {
namespace {

constexpr std::array<std::string_view, 2> aliases{"loongtrain", "intern-evo"};
constexpr std::string_view guide =
    "https://github.com/InternLM/InternEvo/blob/develop/doc/code-docs/source/parallel.rst";
constexpr std::string_view paper = "https://arxiv.org/abs/2406.18485";
constexpr std::array heads{HeadPolicy::divide, HeadPolicy::replicate};
constexpr std::array stages{1, 3};
constexpr std::array<Way, 4> ways{
    {{.name = "isp", .strategy = "ulysses", .source = guide, .unit = 1},
     {.name = "sequence_2D", .strategy = "zigzag-ring", .source = guide, .unit = 2},
     {.name = "sequence_2D", .strategy = "usp", .source = guide, .layouts = zigzag_only, .unit = 2},
     {.name = "sequence_2D",
      .strategy = "double-ring",
      .source = paper,
      .layouts = zigzag_only,
      .unit = 2}}};

/// As weights are, over all ranks that have the same: left out, experts would be dealt out over
/// replicas, and their weights be whole (init_parallel_groups).
std::string experts_of(const Launch& launch) {
  return launch.model == nullptr || launch.model->experts.count == 0
             ? ""
             : fmt::format(
                   "    expert=dict(size=1, no_tp=True),\n"
                   "    expert_weight=dict(size={}, overlap=True, memory_pool=True),\n"
                   "    expert_zero1=dict(size=-1),\n",
                   launch.zero == 3 ? launch.context() * launch.dp : 1);
}

Snippet emit(const Launch& launch, const Way& way) {
  const SequencePlan& plan = launch.attention;
  const bool ulysses_first =
      plan.ulysses == 1 || plan.ring == 1 || axes_of(plan).front() == Axis::ulysses;
  const int shards = launch.context() * launch.shard_data();
  const int optimizer_shards = launch.shard_copies == 1 ? -1 : launch.zero == 3 ? 1 : shards;
  Snippet snippet{.says = {.seq = true,
                           .batch = true,
                           .micro_batches = true,
                           .dtype = true,
                           .layers = true,
                           .zero = true,
                           .recompute = true,
                           .virtual_stages = true,
                           .nodes = true}};
  snippet.blocks.push_back({.language = "bash",
                            .file = "",
                            .text = Command(torchrun(launch, "train.py"))
                                        .add("--config", "\"$CONFIG\"")
                                        .add("--launcher", "torch")
                                        .text()});
  snippet.blocks.push_back(
      {.language = "python",
       .file = "",
       .text = fmt::format(
           "# in $CONFIG\n"
           "data.update(seq_len={}, micro_num={}, micro_bsz={})\n"
           "model.update(checkpoint={}, dtype=\"torch.{}\", num_chunks={})\n"
           "parallel = dict(\n"
           "    zero1=dict(size={}),\n"
           "    tensor=dict(size={}, mode=\"isp\"),\n"
           "    pipeline=dict(size={}, interleaved_overlap=True),\n"
           "    weight=dict(size={}, overlap=True, memory_pool=True),\n"
           "    sequence_2D=dict(\n"
           "        enable={},\n"
           "        head_size={},\n"
           "        context_size={},\n"
           "        window_size={},\n"
           "        device_placement_strategy=dict(head_first={}, interleaved=False),\n"
           "    ),\n"
           "{}"
           ")\n",
           launch.problem.seq, launch.micro_batches, launch.problem.batch,
           python(launch.recompute.kind == Recompute::full), long_name(launch.problem.dtype),
           launch.virtual_stages, optimizer_shards, launch.context(), launch.pp,
           launch.zero == 3 ? shards : 1, python(way.strategy != "ulysses"), plan.ulysses,
           plan.ring, plan.own[parameters::window], python(ulysses_first), experts_of(launch))});
  snippet.notes.emplace_back(
      "CONFIG is your configuration, with data and model as in configs/7B_isp_sft.py.");
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "internevo",
    .title = "InternEvo (LoongTrain)",
    .aliases = aliases,
    .checked =
        "InternEvo at c628a8c: "
        "https://github.com/InternLM/InternEvo/blob/develop/doc/code-docs/source/"
        "parallel.rst",
    .stack = "internevo",
    .ways = ways,
    .heads = {.values = heads, .source = paper},
    .zero = {.values = stages, .source = guide},
    .recompute = {.values = none_or_full, .source = guide},
    .axes = {.pipeline = true,
             .orders = plain_and_interleaved,
             .layers = DealtLayers::even_chunks,
             .shard_copies = true},
    .models = ModelKind::llm,
    .emit = emit,
};

}  // namespace spp::frameworks::internevo
