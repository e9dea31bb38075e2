// yunchang (feifeibear/long-context-attention): Ulysses x ring as a library. use_ulysses_low says
// which axis has adjacent ranks. Where packed documents end its attention is not told.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::yunchang {
namespace {

constexpr std::array<std::string_view, 2> aliases{"long-context-attention", "usp"};
constexpr std::string_view readme = "https://github.com/feifeibear/long-context-attention";
constexpr std::array<Way, 5> ways{
    {{.name = "basic",
      .strategy = "ring",
      .source = readme,
      .unit = 1,
      .no_windows = true,
      .no_documents = true},
     {.name = "zigzag",
      .strategy = "zigzag-ring",
      .source = readme,
      .unit = 2,
      .no_windows = true,
      .no_documents = true},
     {.name = "strip",
      .strategy = "striped-ring",
      .source = readme,
      .unit = 1,
      .no_windows = true,
      .no_documents = true},
     {.name = "zigzag", .strategy = "ulysses", .source = readme, .unit = 2, .no_documents = true},
     {.name = "hybrid",
      .strategy = "usp",
      .source = readme,
      .unit = 2,
      .no_windows = true,
      .no_documents = true}}};

constexpr std::string_view extract =
    "https://github.com/feifeibear/long-context-attention/blob/main/yunchang/comm/"
    "extract_local.py";

/// Its functions that deal tokens out put Ulysses inside, whatever use_ulysses_low says: without a
/// mask that is as good.
Cannot also(const SequencePlan& plan, const Problem& problem) {
  const bool both = plan.ulysses > 1 && plan.ring > 1;
  if (!both || problem.mask.kind == MaskKind::full || axes_of(plan).front() == Axis::ulysses) {
    return {};
  }
  return {.rule = "order",
          .what = "yunchang deals tokens out with ulysses inside, not ring, where there is a mask",
          .source = std::string(extract)};
}

std::string_view ring_of(Layout layout) {
  switch (layout) {
    case Layout::contiguous:
    case Layout::document_contiguous:
      return "basic";
    case Layout::zigzag:
    case Layout::document_zigzag:
      return "zigzag";
    case Layout::striped:
      return "strip";
    case Layout::balanced:
    case Layout::whole_documents:
      break;  // of no ring
  }
  throw InternalError("unknown layout");
}

Snippet emit(const Launch& launch, const Way& way) {
  const SequencePlan& plan = launch.attention;
  const std::string_view ring = way.strategy == "ulysses" ? way.name : ring_of(plan.layout);
  const bool ulysses_low =
      plan.ring == 1 || plan.ulysses == 1 || axes_of(plan).front() == Axis::ulysses;
  // Of a sequence's ranks, where others work on others.
  const std::string rank =
      launch.dp == 1 ? "dist.get_rank()" : fmt::format("dist.get_rank() % {}", launch.context());
  const std::string ranks =
      launch.dp == 1 ? "dist.get_world_size()" : fmt::format("{}", launch.context());
  Snippet snippet{.says = {.full_mask = true}};
  snippet.blocks.push_back(
      {.language = "python",
       .file = "",
       .text = fmt::format(
           "import torch.distributed as dist\n"
           "from yunchang import EXTRACT_FUNC_DICT, LongContextAttention, set_seq_parallel_pg\n"
           "from yunchang.kernels import AttnType\n\n"
           "set_seq_parallel_pg(\n"
           "    sp_ulysses_degree={},\n"
           "    sp_ring_degree={},\n"
           "    rank=dist.get_rank(),\n"
           "    world_size=dist.get_world_size(),\n"
           "    use_ulysses_low={},\n"
           ")\n"
           "attention = LongContextAttention(ring_impl_type=\"{}\", attn_type=AttnType.FA)\n\n\n"
           "def local_part(tensor):  # of [batch, sequence, heads, head dimension]\n"
           "    return EXTRACT_FUNC_DICT[\"{}\"](\n"
           "        tensor, {}, world_size={}, rd={}, ud={}\n"
           "    ).detach().clone()\n\n\n"
           "def attend(q, k, v):\n"
           "    return attention(q, k, v, causal={})\n",
           plan.ulysses, plan.ring, python(ulysses_low), ring, ring, rank, ranks, plan.ring,
           plan.ulysses, python(launch.problem.mask.kind != MaskKind::full))});
  if (plan.rank_order == RankOrder::cyclic) {
    snippet.notes.emplace_back("Start ranks in turn over the nodes: srun --distribution=cyclic.");
  }
  note_padding(snippet, launch, "The caller");
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "yunchang",
    .title = "yunchang (USP, long-context-attention)",
    .aliases = aliases,
    .checked = "yunchang 0.6.4: https://github.com/feifeibear/long-context-attention",
    .stack = "yunchang",
    .ways = ways,
    .infers = true,
    .heads = {.values = strict_heads, .source = readme},
    .half_attention = flash_attention,
    .places_ranks = true,
    .also = also,
    .emit = emit,
};

}  // namespace spp::frameworks::yunchang
