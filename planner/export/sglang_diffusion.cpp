// SGLang's diffusion models: Ulysses x ring behind flags. Heads of a tensor-parallel rank are
// split, (H / T) % U == 0.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::sglang_diffusion {
namespace {

constexpr std::string_view guide = "https://docs.sglang.io/docs/sglang-diffusion/parallelism";
/// By default; newer versions take --nnodes.
constexpr std::string_view launcher =
    "https://github.com/sgl-project/sglang/blob/main/python/sglang/multimodal_gen/runtime/"
    "launch_server.py";
constexpr std::array ways = diffusion_ways(guide);

Snippet emit(const Launch& launch, const Way&) {
  Snippet snippet{.says = {.full_mask = true, .layers = true}};
  Command command("sglang generate");
  command.add("--model-path", "\"$MODEL\"").add("--prompt", "\"$PROMPT\"");
  command.add("--num-gpus", launch.world()).add("--tp-size", launch.tp);
  command.add("--sp-degree", launch.context());
  command.add("--ulysses-degree", launch.attention.ulysses);
  command.add("--ring-degree", launch.attention.ring);
  if (launch.cfg > 1) {
    command.add("--enable-cfg-parallel");
  }
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.notes.emplace_back("MODEL and PROMPT are variables of yours.");
  if (launch.attention.ring > 1) {
    snippet.notes.emplace_back(
        "Compare an image with that of one GPU: ring degrees above 1 were reported wrong "
        "(sgl-project/sglang#33353).");
  }
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "sglang-diffusion",
    .title = "SGLang (diffusion)",
    .checked =
        "SGLang, by its documentation of 2026: "
        "https://docs.sglang.io/docs/sglang-diffusion/parallelism",
    .stack = "",
    .ways = ways,
    .trains = false,
    .infers = true,
    .masks = {.values = full_mask_only, .source = guide},
    .heads = {.values = strict_heads, .source = guide},
    .axes = {.tensor = true, .data = false, .guidance = true},
    .models = ModelKind::dit,
    .one_node = launcher,
    .emit = emit,
};

}  // namespace spp::frameworks::sglang_diffusion
