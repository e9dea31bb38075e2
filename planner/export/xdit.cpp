// xDiT: inference of diffusion transformers with yunchang's Ulysses x ring: by its runner, which
// has FSDP over all ranks, too (ZeRO 3), or by a script of its examples. No model of the runner has
// tensor parallelism (ModelCapabilities); PipeFusion, which keeps activations of the step before,
// is none of our pipelines.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"
#include "transformer/diffusion_family.hpp"

namespace spp::frameworks::xdit {
namespace {

constexpr std::array<std::string_view, 1> aliases{"xfuser"};
constexpr std::string_view guide =
    "https://github.com/xdit-project/xDiT/blob/main/docs/methods/usp.md";
constexpr std::string_view capabilities =
    "https://github.com/xdit-project/xDiT/blob/main/xfuser/model_executor/models/runner_models/"
    "base_model.py";
constexpr std::array stages{0, 3};
constexpr std::array ways = diffusion_ways(guide);
/// Models of its runner, and which of them have use_cfg_parallel; then those of the scripts.
constexpr std::array<FrameworkFamily, 14> families{{{.name = "FLUX.1"},
                                                    {.name = "FLUX.2"},
                                                    {.name = "HunyuanVideo"},
                                                    {.name = "Wan"},
                                                    {.name = "Stable Diffusion 3"},
                                                    {.name = "Z-Image"},
                                                    {.name = "Qwen-Image", .guidance = false},
                                                    {.name = "LTX-Video"},
                                                    {.name = "FLUX.1-schnell", .shards = false},
                                                    {.name = "CogVideoX", .shards = false},
                                                    {.name = "HunyuanDiT", .shards = false},
                                                    {.name = "Latte", .shards = false},
                                                    {.name = "PixArt-alpha", .shards = false},
                                                    {.name = "PixArt-Sigma", .shards = false}}};
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> scripts{
    {{"FLUX.1-schnell", "flux"},
     {"CogVideoX", "cogvideox"},
     {"HunyuanDiT", "hunyuandit"},
     {"Latte", "latte"},
     {"PixArt-alpha", "pixartalpha"},
     {"PixArt-Sigma", "pixartsigma"}}};

/// "xdit", or torchrun of the model's script, which takes the same options.
std::string program(const Launch& launch) {
  const DiffusionFamily* const family =
      launch.model != nullptr ? launch.model->diffusion.family : nullptr;
  for (const auto& [name, script] : scripts) {
    if (family != nullptr && family->name == name) {
      return torchrun(launch, fmt::format("examples/{}_example.py", script));
    }
  }
  return "xdit";
}

Snippet emit(const Launch& launch, const Way&) {
  Snippet snippet{.says = {.full_mask = true, .layers = true, .zero = true, .nodes = true}};
  const std::string start = program(launch);
  Command command(start);
  command.add("--model", "\"$MODEL\"").add("--prompt", "\"$PROMPT\"");
  command.add("--ulysses_degree", launch.attention.ulysses);
  command.add("--ring_degree", launch.attention.ring);
  if (launch.dp > 1) {
    command.add("--data_parallel_degree", launch.dp);
  }
  if (launch.cfg > 1) {
    command.add("--use_cfg_parallel");
  }
  if (launch.zero == 3) {
    command.add("--fully_shard_degree", launch.world());
  }
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  if (start == "xdit") {
    snippet.notes.emplace_back("MODEL is a name such as FLUX.1-dev.");
    if (launch.nodes > 1) {
      snippet.notes.emplace_back(
          "On several nodes start it with torchrun's node options, as xDiT's launching guide "
          "says.");
    }
  } else {
    snippet.notes.emplace_back("MODEL is a folder or a name on Hugging Face.");
    note_nodes(snippet, launch);
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
    .zero = {.values = stages, .source = capabilities},
    .axes = {.guidance = true},
    .models = ModelKind::dit,
    .families = families,
    .emit = emit,
};

}  // namespace spp::frameworks::xdit
