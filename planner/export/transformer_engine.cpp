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

/// By ring position, then by Ulysses place.
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

std::string group_text(const SequencePlan& plan, const Way& way) {
  constexpr std::string_view of_ranks =
      "def group_of(groups):\n"
      "    made = [(ranks, dist.new_group(ranks)) for ranks in groups]  # collective: all of them\n"
      "    return next(group for ranks, group in made if dist.get_rank() in ranks)\n\n\n";
  if (way.strategy == "usp") {
    return fmt::format(
        "{}a2a_group = group_of({})\nring_group = group_of({})\n"
        "cp_group = [a2a_group, ring_group]\n",
        of_ranks, rank_lists(groups_of(plan, Axis::ulysses)),
        rank_lists(groups_of(plan, Axis::ring)));
  }
  return "cp_group = dist.group.WORLD\n";
}

/// Packed documents that are cut each are TransformerEngine's THD: their borders come with each
/// call.
bool is_thd(const Launch& launch) { return launch.attention.layout == Layout::document_zigzag; }

std::string mask_type(const Launch& launch) {
  const std::string_view kind = launch.problem.mask.kind == MaskKind::full ? "no_mask" : "causal";
  return !is_thd(launch) ? std::string(kind) : kind == "no_mask" ? "padding" : "padding_causal";
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
      "    cp_global_ranks=[{}],\n"
      "    cp_stream=torch.cuda.Stream(),\n"
      "    cp_comm_type=\"{}\",\n"
      ")\n",
      group_text(launch.attention, way), p.q_heads, channels, p.kv_heads, mask_type(launch),
      is_thd(launch) ? "    qkv_format=\"thd\",\n" : "",
      fmt::join(global_ranks(launch.attention), ", "), way.name);
  Snippet snippet;
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
    .places_ranks = true,
    .emit = emit,
};

}  // namespace spp::frameworks::transformer_engine
