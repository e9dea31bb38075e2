// vLLM-Omni: diffusion models with Ulysses x ring. ulysses_mode advanced_uaa takes heads that do
// not divide.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::vllm_omni {
namespace {

constexpr std::string_view guide =
    "https://docs.vllm.ai/projects/vllm-omni/en/stable/user_guide/diffusion/parallelism/"
    "sequence_parallel/";
constexpr std::string_view executors =
    "https://github.com/vllm-project/vllm-omni/blob/main/vllm_omni/diffusion/executor/abstract.py";
constexpr std::array heads{HeadPolicy::divide, HeadPolicy::pad};
constexpr std::array ways = diffusion_ways(guide);

Snippet emit(const Launch& launch, const Way&) {
  const bool pads = launch.attention.heads == HeadPolicy::pad;
  Snippet snippet{.says = {.full_mask = true, .layers = true}};
  snippet.blocks.push_back(
      {.language = "python",
       .file = "",
       .text =
           fmt::format("import os\n\n"
                       "from vllm_omni import Omni\n"
                       "from vllm_omni.diffusion.data import DiffusionParallelConfig\n\n"
                       "if __name__ == \"__main__\":  # it starts processes that read this file\n"
                       "    omni = Omni(\n"
                       "        model=os.environ[\"MODEL\"],\n"
                       "        parallel_config=DiffusionParallelConfig(\n"
                       "            ulysses_degree={},\n"
                       "            ring_degree={},\n"
                       "            data_parallel_size={},\n"
                       "            cfg_parallel_size={},\n"
                       "            ulysses_mode=\"{}\",\n"
                       "        ),\n"
                       "    )\n",
                       launch.attention.ulysses, launch.attention.ring, launch.dp, launch.cfg,
                       pads ? "advanced_uaa" : "strict")});
  snippet.notes.emplace_back("MODEL is a variable of yours.");
  if (pads) {
    snippet.notes.emplace_back("advanced_uaa is experimental.");
  }
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "vllm-omni",
    .title = "vLLM-Omni (diffusion)",
    .checked =
        "vLLM-Omni 0.11rc1: https://docs.vllm.ai/projects/vllm-omni/en/stable/user_guide/"
        "diffusion/parallelism/sequence_parallel/",
    .stack = "",
    .ways = ways,
    .trains = false,
    .infers = true,
    .masks = {.values = full_mask_only, .source = guide},
    .heads = {.values = heads, .source = guide},
    .axes = {.guidance = true},
    .models = ModelKind::dit,
    .one_node = executors,
    .emit = emit,
};

}  // namespace spp::frameworks::vllm_omni
