// ring-flash-attention (zhuzilin): a function per layout, over the caller's process group. The
// llama3 variant gathers keys and values of heads_k_stride heads at a time.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

#include <fmt/ranges.h>

namespace spp::frameworks::ring_flash_attention {
namespace {

constexpr std::array<std::string_view, 2> aliases{"ring-flash-attn", "ring_flash_attn"};
constexpr std::string_view readme = "https://github.com/zhuzilin/ring-flash-attention";
constexpr std::array<Way, 4> ways{
    {{.name = "ring_flash_attn_func",
      .strategy = "ring",
      .source = readme,
      .layouts = contiguous_only,
      .packed = document_contiguous_only,  // ring_flash_attn_varlen_func
      .unit = 1,
      .no_windows = true},
     {.name = "zigzag_ring_flash_attn_func",
      .strategy = "zigzag-ring",
      .source = readme,
      .layouts = zigzag_only,
      .packed = document_zigzag_only,  // zigzag_ring_flash_attn_varlen_func
      .unit = 2,
      .no_windows = true},
     {.name = "stripe_flash_attn_func",
      .strategy = "striped-ring",
      .source = readme,
      .unit = 1,
      .no_windows = true,
      .no_documents = true},
     {.name = "llama3_flash_attn_varlen_func",
      .strategy = "all-gather",
      .source = readme,
      .layouts = contiguous_only,
      .both = false,
      .unit = 1}}};

std::string ring_text(const Launch& launch, const Way& way) {
  return fmt::format(
      "import torch.distributed as dist\n"
      "from ring_flash_attn import {0}\n\n"
      "{2}\n\n"
      "def attend(q, k, v):  # the rank's tokens, [batch, sequence, heads, head dimension]\n"
      "    return {0}(q, k, v, causal={1}, group=group)\n",
      way.name, python(launch.problem.mask.kind != MaskKind::full),
      sequence_group(launch, "group"));
}

/// Of packed documents, each cut: the function of their name.
std::string varlen_text(const Launch& launch, const Way& way) {
  const std::string_view kind = way.name.substr(0, way.name.rfind("_func"));
  return fmt::format(
      "import torch.distributed as dist\n"
      "from ring_flash_attn import {0}_varlen_func\n\n"
      "{2}\n\n"
      "def attend(q, k, v, cu_seqlens, max_seqlen):  # the rank's tokens, [tokens, heads, head "
      "dimension]\n"
      "    # Where the rank's pieces of each document end; the longest of them.\n"
      "    return {0}_varlen_func(\n"
      "        q, k, v, cu_seqlens, max_seqlen, causal={1}, group=group\n"
      "    )\n",
      kind, python(launch.problem.mask.kind != MaskKind::full), sequence_group(launch, "group"));
}

std::string gather_text(const Launch& launch) {
  const std::vector<std::int64_t>& documents = launch.problem.mask.document_ends;
  const std::vector<std::int64_t> ends =
      documents.empty() ? std::vector{launch.problem.seq} : documents;
  return fmt::format(
      "import torch\n"
      "import torch.distributed as dist\n"
      "from ring_flash_attn import (\n"
      "    llama3_flash_attn_prepare_cu_seqlens,\n"
      "    llama3_flash_attn_varlen_func,\n"
      ")\n\n"
      "causal = {}\n"
      "{}"
      "cu_seqlens = torch.tensor([0, {}], dtype=torch.int32, device=\"cuda\")\n"
      "lengths = llama3_flash_attn_prepare_cu_seqlens(\n"
      "    cu_seqlens,\n"
      "    causal=causal,\n"
      "    rank=dist.get_rank(group),\n"
      "    world_size=dist.get_world_size(group),\n"
      ")\n"
      "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, local_k_slice = lengths\n\n\n"
      "def attend(q, k, v):  # the rank's tokens, [tokens, heads, head dimension]\n"
      "    return llama3_flash_attn_varlen_func(\n"
      "        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,\n"
      "        heads_k_stride=1, local_k_slice=local_k_slice, causal=causal,\n"
      "        group=group,\n"
      "    )\n",
      python(launch.problem.mask.kind != MaskKind::full), sequence_group(launch, "group"),
      fmt::join(ends, ", "));
}

std::string text_of(const Launch& launch, const Way& way) {
  return deals_documents(launch.attention.layout) ? varlen_text(launch, way)
         : way.strategy == "all-gather"           ? gather_text(launch)
                                                  : ring_text(launch, way);
}

Snippet emit(const Launch& launch, const Way& way) {
  Snippet snippet{
      .says = {.seq = true, .full_mask = true, .documents = way.strategy == "all-gather"}};
  snippet.blocks.push_back({.language = "python", .file = "", .text = text_of(launch, way)});
  snippet.notes.push_back(fmt::format(
      "A rank holds its {} tokens: {} of {} ranks.", to_string(launch.attention.layout),
      padded(launch.problem, launch.attention).seq / launch.context(), launch.context()));
  if (snippet.says.documents && !launch.problem.mask.document_ends.empty()) {
    snippet.notes.emplace_back("Where documents end is another sequence's: lengths are made anew.");
  }
  if (launch.attention.rank_order == RankOrder::cyclic) {
    snippet.notes.emplace_back("Start ranks in turn over the nodes: srun --distribution=cyclic.");
  }
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "ring-flash-attention",
    .title = "ring-flash-attention",
    .aliases = aliases,
    .checked = "ring-flash-attention 0.1: https://github.com/zhuzilin/ring-flash-attention",
    .stack = "ring-flash-attn",
    .ways = ways,
    .infers = true,
    .half_attention = flash_attention,
    .places_ranks = true,
    .emit = emit,
};

}  // namespace spp::frameworks::ring_flash_attention
