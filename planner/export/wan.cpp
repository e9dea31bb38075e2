// Wan2.1's own program: xDiT's Ulysses x ring; it pads sequences to a multiple of the ranks. FSDP
// cuts weights over them (ZeRO 3).
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::wan {
namespace {

constexpr std::array<std::string_view, 1> aliases{"wan2.1"};
constexpr std::string_view readme = "https://github.com/Wan-Video/Wan2.1";
constexpr std::array stages{0, 3};
constexpr std::array<FrameworkFamily, 1> families{{{.name = "Wan"}}};
constexpr std::array ways = diffusion_ways(readme);

Snippet emit(const Launch& launch, const Way&) {
  Snippet snippet{.says = {.full_mask = true, .layers = true, .zero = true, .nodes = true}};
  Command command(torchrun(launch, "generate.py"));
  if (launch.zero == 3) {
    command.add("--dit_fsdp").add("--t5_fsdp");
  }
  command.add("--ulysses_size", launch.attention.ulysses);
  command.add("--ring_size", launch.attention.ring);
  command.add("--prompt", "\"$PROMPT\"").add("\"${WAN_ARGS[@]}\"");
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.notes.emplace_back("WAN_ARGS is yours: --task, --size, --ckpt_dir.");
  note_padding(snippet, launch, "Wan");
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "wan",
    .title = "Wan2.1 (generate.py)",
    .aliases = aliases,
    .checked = "Wan2.1 at aa843f59af: https://github.com/Wan-Video/Wan2.1",
    .stack = "wan",
    .ways = ways,
    .trains = false,
    .infers = true,
    .masks = {.values = full_mask_only, .source = readme},
    .heads = {.values = strict_heads, .source = readme},
    .zero = {.values = stages, .source = readme},
    .axes = {.data = false},
    .models = ModelKind::dit,
    .families = families,
    .emit = emit,
};

}  // namespace spp::frameworks::wan
