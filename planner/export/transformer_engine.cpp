// TransformerEngine's DotProductAttention: the caller makes the process groups, so that any axis
// may be the inner one. For a2a+p2p cp_group is [all-to-all group, ring group], and rank u of ring
// position r stands at cp_global_ranks[r * U + u].
#include "parallel/attention/attention_mesh.hpp"
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

#include <fmt/ranges.h>

namespace spp::frameworks::transformer_engine {
namespace {

constexpr std::array<std::string_view, 2> aliases{"te", "transformerengine"};
constexpr std::array ways = transformer_engine_ways(Inner::any);

/// By ring position, then by Ulysses place; of the first sequence's ranks.
std::vector<int> global_ranks(const SequencePlan& plan) {
  const AttentionMesh mesh(plan);
  std::vector<int> ranks;
  for (int r = 0; r < plan.ring; ++r) {
    for (int u = 0; u < plan.ulysses; ++u) {
      ranks.push_back(mesh.rank({.ulysses = u, .position = r}).value);
    }
  }
  return ranks;
}

/// The plan's groups, and those of the other sequences' ranks behind them.
std::vector<std::vector<int>> all_groups(const Launch& launch, Axis axis) {
  std::vector<std::vector<int>> groups;
  for (int d = 0; d < launch.dp; ++d) {
    for (std::vector<int>& group : groups_of(launch.attention, axis)) {
      for (int& rank : group) {
        rank += d * launch.context();
      }
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

std::string group_text(const Launch& launch, const Way& way) {
  constexpr std::string_view of_ranks =
      "def group_of(groups):\n"
      "    made = [(ranks, dist.new_group(ranks)) for ranks in groups]  # collective: all of them\n"
      "    return next(group for ranks, group in made if dist.get_rank() in ranks)\n\n\n";
  if (way.strategy == "usp") {
    return fmt::format(
        "{}a2a_group = group_of({})\nring_group = group_of({})\n"
        "cp_group = [a2a_group, ring_group]\n",
        of_ranks, rank_lists(all_groups(launch, Axis::ulysses)),
        rank_lists(all_groups(launch, Axis::ring)));
  }
  return sequence_group(launch, "cp_group");
}

std::string ranks_text(const Launch& launch) {
  const std::string ranks = fmt::format("[{}]", fmt::join(global_ranks(launch.attention), ", "));
  return launch.dp == 1 ? ranks
                        : fmt::format("[dist.get_rank() // {0} * {0} + rank for rank in {1}]",
                                      launch.context(), ranks);
}

/// Packed documents are TransformerEngine's THD: their borders come with each call.
bool is_thd(const Launch& launch) { return !launch.problem.mask.document_ends.empty(); }

std::string mask_type(const Launch& launch) {
  const std::string_view kind = launch.problem.mask.kind == MaskKind::full ? "no_mask" : "causal";
  return !is_thd(launch) ? std::string(kind) : kind == "no_mask" ? "padding" : "padding_causal";
}

/// What is unlike most attention: keys behind a query are one fewer than its window's.
std::string more_of(const Launch& launch) {
  std::string text = is_thd(launch) ? "    qkv_format=\"thd\",\n" : "";
  if (launch.problem.mask.kind == MaskKind::window) {
    text += fmt::format("    window_size=({}, 0),\n", launch.problem.mask.window - 1);
  }
  if (launch.traits.sinks) {
    text += "    softmax_type=\"learnable\",\n";
  }
  return text;
}

Snippet emit(const Launch& launch, const Way& way) {
  const Problem& p = launch.problem;
  // Of keys, and of values where they have others.
  const std::string channels = p.v_dim() == p.head_dim
                                   ? fmt::format("{}", p.head_dim)
                                   : fmt::format("({}, {})", p.head_dim, p.v_dim());
  const std::string text = fmt::format(
      "import torch\n"
      "import torch.distributed as dist\n"
      "from transformer_engine.pytorch import DotProductAttention\n\n\n"
      "{}"
      "attention = DotProductAttention(\n"
      "    num_attention_heads={},\n"
      "    kv_channels={},\n"
      "    num_gqa_groups={},\n"
      "    attn_mask_type=\"{}\",\n"
      "{}"
      "    cp_group=cp_group,\n"
      "    cp_global_ranks={},\n"
      "    cp_stream=torch.cuda.Stream(),\n"
      "    cp_comm_type=\"{}\",\n"
      ")\n",
      group_text(launch, way), p.q_heads, channels, p.kv_heads, mask_type(launch), more_of(launch),
      ranks_text(launch), way.name);
  Snippet snippet{.says = {.seq = !is_thd(launch),
                           .full_mask = true,
                           .window = true,
                           .documents = true,
                           .layers = !launch.traits.windows || p.mask.kind == MaskKind::window}};
  snippet.blocks.push_back({.language = "python", .file = "", .text = text});
  snippet.notes.push_back(
      is_thd(launch)
          ? "Each call gets where the documents end: cu_seqlens_q and cu_seqlens_kv, padded: "
            "cu_seqlens_q_padded and cu_seqlens_kv_padded."
          : fmt::format("Each rank passes its two chunks of {} tokens, one from either end of the "
                        "sequence.",
                        p.seq / (2 * std::int64_t{launch.context()})));
  if (launch.attention.rank_order == RankOrder::cyclic) {
    snippet.notes.emplace_back("Start ranks in turn over the nodes: srun --distribution=cyclic.");
  }
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "transformer-engine",
    .title = "TransformerEngine (PyTorch)",
    .aliases = aliases,
    .checked =
        "TransformerEngine 2.20: https://docs.nvidia.com/deeplearning/transformer-engine/"
        "user-guide/api/pytorch.html",
    .stack = "megatron-te",
    .ways = ways,
    .infers = true,
    .heads = {.values = strict_heads, .source = transformer_engine_source},
    .half_attention = transformer_engine_source,
    .places_ranks = true,
    .emit = emit,
};

}  // namespace spp::frameworks::transformer_engine
