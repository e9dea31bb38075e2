// cache-dit: context parallelism for diffusers' pipelines, with a ring of its own:
// ring_rotate_method "p2p" passes keys and values round, "allgather" gathers them.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::cache_dit {
namespace {

constexpr std::string_view guide = "https://github.com/vipshop/cache-dit";
constexpr std::array heads{HeadPolicy::divide, HeadPolicy::pad};
constexpr std::array<Way, 4> ways{{{.name = "ulysses", .strategy = "ulysses", .source = guide},
                                   {.name = "p2p", .strategy = "ring", .source = guide},
                                   {.name = "p2p",
                                    .strategy = "usp",
                                    .source = guide,
                                    .layouts = contiguous_only,
                                    .inner = Inner::ulysses},
                                   {.name = "allgather",
                                    .strategy = "all-gather",
                                    .source = guide,
                                    .layouts = contiguous_only,
                                    .inner = Inner::ulysses}}};

Cannot also(const SequencePlan& plan, const Problem&) {
  if (plan.heads == HeadPolicy::divide || plan.ring == 1) {
    return {};
  }
  return {.rule = "heads",
          .what = "cache-dit takes heads that do not divide (ulysses_anything) without a ring only",
          .source = std::string(guide)};
}

Snippet emit(const Launch& launch, const Way& way) {
  const SequencePlan& plan = launch.attention;
  std::vector<std::string> arguments;
  if (plan.ulysses > 1 || plan.ring == 1) {
    arguments.push_back(fmt::format("ulysses_size={}", plan.ulysses));
  }
  if (plan.ring > 1) {
    arguments.push_back(fmt::format("ring_size={}", plan.ring));
    arguments.push_back(fmt::format("ring_rotate_method=\"{}\"", way.name));
  } else if (plan.heads != HeadPolicy::divide || launch.problem.seq % launch.context() != 0) {
    arguments.emplace_back("ulysses_anything=True");
  }
  std::string list;
  for (const std::string& a : arguments) {
    list += fmt::format("        {},\n", a);
  }
  Snippet snippet{.says = {.dtype = true, .full_mask = true, .layers = true, .nodes = true}};
  snippet.blocks.push_back(
      {.language = "bash", .file = "", .text = Command(torchrun(launch, "generate.py")).text()});
  snippet.blocks.push_back(
      {.language = "python",
       .file = "generate.py",
       .text = fmt::format("import os\n\n"
                           "import cache_dit\n"
                           "import torch\n"
                           "from cache_dit import ParallelismConfig\n"
                           "from diffusers import DiffusionPipeline\n\n"
                           "torch.distributed.init_process_group(\"nccl\")\n"
                           "device = torch.device(\"cuda\", int(os.environ[\"LOCAL_RANK\"]))\n"
                           "torch.cuda.set_device(device)\n"
                           "pipe = DiffusionPipeline.from_pretrained(\n"
                           "    os.environ[\"MODEL\"], torch_dtype=torch.{}\n"
                           ").to(device)\n"
                           "cache_dit.enable_cache(\n"
                           "    pipe,\n"
                           "    parallelism_config=ParallelismConfig(\n"
                           "{}"
                           "    ),\n"
                           ")\n"
                           "result = pipe(os.environ[\"PROMPT\"])\n",
                           long_name(launch.problem.dtype), list)});
  snippet.notes.emplace_back(
      "MODEL and PROMPT are variables of yours; add a cache_config to cache as well.");
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "cache-dit",
    .title = "cache-dit",
    .checked = "cache-dit, by its README and code of 2026: https://github.com/vipshop/cache-dit",
    .stack = "diffusers",
    .ways = ways,
    .trains = false,
    .infers = true,
    .masks = {.values = full_mask_only, .source = guide},
    .heads = {.values = heads, .source = guide},
    .axes = {.data = false},
    .models = ModelKind::dit,
    .also = also,
    .emit = emit,
};

}  // namespace spp::frameworks::cache_dit
