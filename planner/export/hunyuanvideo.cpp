// HunyuanVideo's own program: xDiT's Ulysses x ring. Which degrees divide a video's size stands in
// its README; a plan knows tokens only.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::hunyuanvideo {
namespace {

constexpr std::string_view readme = "https://github.com/Tencent-Hunyuan/HunyuanVideo";
constexpr std::array ways = diffusion_ways(readme);
constexpr std::array<FrameworkFamily, 1> families{{{.name = "HunyuanVideo"}}};

Snippet emit(const Launch& launch, const Way&) {
  Snippet snippet{.says = {.full_mask = true, .layers = true, .nodes = true}};
  Command command(torchrun(launch, "sample_video.py"));
  command.add("--ulysses-degree", launch.attention.ulysses);
  command.add("--ring-degree", launch.attention.ring);
  command.add("--prompt", "\"$PROMPT\"").add("\"${VIDEO_ARGS[@]}\"");
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.notes.emplace_back(
      "VIDEO_ARGS is yours: size, length, steps. The README lists the degrees that divide a size.");
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "hunyuanvideo",
    .title = "HunyuanVideo (sample_video.py)",
    .checked = "HunyuanVideo, by its README: https://github.com/Tencent-Hunyuan/HunyuanVideo",
    .stack = "xdit",
    .ways = ways,
    .trains = false,
    .infers = true,
    .masks = {.values = full_mask_only, .source = readme},
    .heads = {.values = strict_heads, .source = readme},
    .axes = {.data = false},
    .models = ModelKind::dit,
    .families = families,
    .emit = emit,
};

}  // namespace spp::frameworks::hunyuanvideo
