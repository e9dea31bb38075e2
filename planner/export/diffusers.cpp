// diffusers: ContextParallelConfig on a transformer. Its "ring" gathers keys and values
// (rotate_method "allgather" is the only one that is implemented); the mesh is ("ring",
// "ulysses"), so Ulysses groups are adjacent ranks. ulysses_anything takes heads and lengths that
// do not divide, with ring_degree 1 only.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::diffusers {
namespace {

constexpr std::string_view api = "https://huggingface.co/docs/diffusers/api/parallel";
constexpr std::array heads{HeadPolicy::divide, HeadPolicy::pad};
constexpr std::array<Way, 2> ways{{{.name = "ulysses_degree", .strategy = "ulysses", .source = api},
                                   {.name = "ring_degree",
                                    .strategy = "all-gather",
                                    .source = api,
                                    .layouts = contiguous_only,
                                    .inner = Inner::ulysses,
                                    .unit = 1}}};

Cannot also(const SequencePlan& plan, const Problem&) {
  if (plan.heads == HeadPolicy::divide || plan.ring == 1) {
    return {};
  }
  return {.rule = "heads",
          .what =
              "diffusers takes heads that do not divide (ulysses_anything) with ring_degree 1 "
              "only",
          .source = std::string(api)};
}

/// Whether Ulysses divides nothing evenly.
bool anything(const Launch& launch) {
  return launch.attention.heads != HeadPolicy::divide || launch.problem.seq % launch.context() != 0;
}

Snippet emit(const Launch& launch, const Way& way) {
  std::string degrees = fmt::format("ulysses_degree={}", launch.attention.ulysses);
  if (way.strategy == "all-gather") {
    degrees += fmt::format(", ring_degree={}", launch.attention.ring);
  } else if (anything(launch)) {
    degrees += ", ulysses_anything=True";
  }
  // Parts are merged by their LSE, which the default backend does not return
  // (attention_dispatch.py, _native_attention_forward_op).
  const std::string_view with_lse =
      launch.attention.ring > 1 ? "pipe.transformer.set_attention_backend(\"_native_cudnn\")\n"
                                : "";
  // On one GPU ContextParallelConfig refuses to be made.
  const bool split = launch.context() > 1;
  Snippet snippet{.says = {.dtype = true, .full_mask = true, .layers = true, .nodes = true}};
  snippet.blocks.push_back(
      {.language = "bash", .file = "", .text = Command(torchrun(launch, "generate.py")).text()});
  snippet.blocks.push_back(
      {.language = "python",
       .file = "generate.py",
       .text = fmt::format("import os\n\n"
                           "import torch\n"
                           "from diffusers import {}DiffusionPipeline\n\n"
                           "torch.distributed.init_process_group(\"nccl\")\n"
                           "device = torch.device(\"cuda\", int(os.environ[\"LOCAL_RANK\"]))\n"
                           "torch.cuda.set_device(device)\n"
                           "pipe = DiffusionPipeline.from_pretrained(\n"
                           "    os.environ[\"MODEL\"], torch_dtype=torch.{}\n"
                           ").to(device)\n"
                           "{}"
                           "result = pipe(os.environ[\"PROMPT\"])\n",
                           split ? "ContextParallelConfig, " : "", long_name(launch.problem.dtype),
                           split ? fmt::format("{}pipe.transformer.enable_parallelism(\n"
                                               "    config=ContextParallelConfig({})\n"
                                               ")\n",
                                               with_lse, degrees)
                                 : "")});
  snippet.notes.emplace_back("MODEL and PROMPT are variables of yours.");
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "diffusers",
    .title = "diffusers",
    .checked = "diffusers 0.40: https://huggingface.co/docs/diffusers/v0.40.0/api/parallel",
    .stack = "diffusers",
    .ways = ways,
    .trains = false,
    .infers = true,
    .masks = {.values = full_mask_only, .source = api},
    .heads = {.values = heads, .source = api},
    .axes = {.data = false},
    .models = ModelKind::dit,
    .also = also,
    .emit = emit,
};

}  // namespace spp::frameworks::diffusers
