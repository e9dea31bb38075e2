// xDiT: inference of diffusion transformers with yunchang's Ulysses x ring.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::xdit {
namespace {

constexpr std::array<std::string_view, 1> aliases{"xfuser"};
constexpr std::string_view guide =
    "https://github.com/xdit-project/xDiT/blob/main/docs/methods/usp.md";
constexpr std::array ways = diffusion_ways(guide);

Snippet emit(const Launch& launch, const Way&) {
  Snippet snippet{.says = {.full_mask = true, .layers = true, .nodes = true}};
  Command command("xdit");
  command.add("--model", "\"$MODEL\"").add("--prompt", "\"$PROMPT\"");
  command.add("--ulysses_degree", launch.attention.ulysses);
  command.add("--ring_degree", launch.attention.ring);
  command.add("--tensor_parallel_degree", launch.tp);
  command.add("--pipefusion_parallel_degree", launch.pp);
  if (launch.dp > 1) {
    command.add("--data_parallel_degree", launch.dp);
  }
  if (launch.cfg > 1) {
    command.add("--use_cfg_parallel");
  }
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.notes.emplace_back("MODEL is a name such as FLUX.1-dev.");
  if (launch.nodes > 1) {
    snippet.notes.emplace_back(
        "On several nodes start it with torchrun's node options, as xDiT's launching guide says.");
  }
  note_padding(snippet, launch, "xDiT");
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "xdit",
    .title = "xDiT",
    .aliases = aliases,
    .checked =
        "xDiT 0.4.5 and main of 2026: "
        "https://github.com/xdit-project/xDiT/blob/main/docs/runner/launching.md",
    .stack = "xdit",
    .ways = ways,
    .trains = false,
    .infers = true,
    .masks = {.values = full_mask_only, .source = guide},
    .heads = {.values = strict_heads, .source = guide},
    .axes = {.tensor = true, .guidance = true},
    .emit = emit,
};

}  // namespace spp::frameworks::xdit
