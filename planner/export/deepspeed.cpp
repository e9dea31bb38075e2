// DeepSpeed: ZeRO and Ulysses sequence parallelism of Hugging Face models (ALST). ZeRO shards over
// all ranks. KV heads that are too few are copied: H_kv % U == 0 or U % H_kv == 0.
#include "base/json.hpp"
#include "planner/export/context_parallel.hpp"
#include "planner/export/deepspeed_config.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::deepspeed {
namespace {

constexpr std::array<std::string_view, 3> aliases{"deepspeed-ulysses", "alst", "ulysses"};
constexpr std::string_view tutorial =
    "https://www.deepspeed.ai/tutorials/ulysses-alst-sequence-parallelism/";
constexpr std::array<Way, 1> ways{{{.name = "Ulysses",
                                    .strategy = "ulysses",
                                    .source = tutorial,
                                    .unit = 1,
                                    .no_sinks = true,
                                    .one_width = true}}};

std::string program(const Launch& launch) {
  return fmt::format(
      "import os\n\n"
      "import deepspeed\n"
      "import deepspeed.comm as dist\n"
      "from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF\n"
      "from transformers import AutoModelForCausalLM\n\n"
      "MODEL = os.environ[\"MODEL\"]\n\n"
      "dist.init_distributed(dist_backend=\"nccl\", dist_init_required=True)\n"
      "mpu = UlyssesSPAttentionHF.register_with_transformers(\n"
      "    model_name_or_path=MODEL,\n"
      "    core_attn_implementation=\"flash_attention_2\",\n"
      "    sequence_parallel_size={},\n"
      "    seq_length={},\n"
      "    seq_length_is_variable=True,\n"
      "    micro_batch_size={},\n"
      ")\n"
      // UlyssesSPAttentionHF takes the place of the attention of this name alone.
      "model = AutoModelForCausalLM.from_pretrained(\n"
      "    MODEL, attn_implementation=\"flash_attention_2\"\n"
      ")\n"
      "{}"
      "engine, optimizer, _, _ = deepspeed.initialize(\n"
      "    config=\"ds_config.json\",\n"
      "    model=model,\n"
      "    model_parameters=model.parameters(),\n"
      "    mpu=mpu,\n"
      ")\n",
      launch.attention.ulysses, launch.problem.seq, launch.problem.batch,
      launch.recompute.kind == Recompute::full ? "model.gradient_checkpointing_enable()\n" : "");
}

Snippet emit(const Launch& launch, const Way&) {
  Json config = deepspeed_config(launch);
  config["sequence_parallel_size"] = launch.attention.ulysses;
  Snippet snippet{.says = {.seq = true,
                           .batch = true,
                           .micro_batches = true,
                           .dtype = true,
                           .layers = true,
                           .zero = true,
                           .recompute = true,
                           .offload_optimizer = true,
                           .nodes = true}};
  snippet.blocks.push_back(
      {.language = "bash", .file = "", .text = Command(torchrun(launch, "train.py")).text()});
  snippet.blocks.push_back(
      {.language = "json", .file = "ds_config.json", .text = config.dump(2) + "\n"});
  snippet.blocks.push_back({.language = "python", .file = "train.py", .text = program(launch)});
  snippet.environment.push_back(expandable_segments());
  snippet.notes.emplace_back(
      "MODEL names the model; the optimizer and UlyssesSPDataLoaderAdapter around your data loader "
      "are as in DeepSpeed's ALST tutorial.");
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "deepspeed",
    .title = "DeepSpeed: ZeRO and Ulysses (ALST)",
    .aliases = aliases,
    .checked =
        "DeepSpeed 0.19.6: "
        "https://www.deepspeed.ai/tutorials/ulysses-alst-sequence-parallelism/",
    .stack = "deepspeed",
    .ways = ways,
    .heads = {.values = divided_or_copied, .source = tutorial},
    .zero = {.values = stages_under_ulysses, .source = accelerate_sequence_parallelism},
    .recompute = {.values = none_or_full, .source = tutorial},
    .models = ModelKind::llm,
    .half_attention = flash_attention,
    .loads_models = true,
    .emit = emit,
};

}  // namespace spp::frameworks::deepspeed
