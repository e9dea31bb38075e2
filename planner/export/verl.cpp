// verl: Ulysses under FSDP, its own implementation. KV heads that are too few are copied. FSDP
// shards over all ranks, or over fsdp_size in a row, of which the others have copies.
#include "planner/export/context_parallel.hpp"
#include "planner/export/deepspeed_config.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::verl {
namespace {

constexpr std::string_view guide = "https://verl.readthedocs.io/en/latest/examples/config.html";
constexpr std::array stages{2, 3};
constexpr std::array<Way, 1> ways{{{.name = "ulysses_sequence_parallel_size",
                                    .strategy = "ulysses",
                                    .source = guide,
                                    .no_sinks = true}}};

Snippet emit(const Launch& launch, const Way&) {
  Snippet snippet{.says = {.seq = true,
                           .batch = true,
                           .micro_batches = true,
                           .layers = true,
                           .zero = true,
                           .recompute = true,
                           .offload_activations = true,
                           .nodes = true}};
  Command command("python3 -m verl.trainer.main_ppo");
  const auto set = [&](std::string_view key, const auto& value) {
    command.add(fmt::format("{}={}", key, value));
  };
  set("trainer.nnodes", launch.nodes);
  set("trainer.n_gpus_per_node", processes_per_node(launch));
  set("actor_rollout_ref.model.path", "\"$MODEL\"");
  set("actor_rollout_ref.model.use_remove_padding", python(true));
  set("actor_rollout_ref.model.enable_gradient_checkpointing",
      python(launch.recompute.kind == Recompute::full));
  if (moves_activations(launch.offload)) {
    set("actor_rollout_ref.model.enable_activation_offload", python(true));
  }
  set("actor_rollout_ref.actor.strategy", "fsdp2");
  set("actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size", launch.context());
  set("actor_rollout_ref.actor.fsdp_config.reshard_after_forward", python(launch.zero == 3));
  if (launch.shard_copies > 1) {
    set("actor_rollout_ref.actor.fsdp_config.fsdp_size", launch.shard_data() * launch.context());
  }
  set("actor_rollout_ref.actor.ppo_mini_batch_size", launch.global_batch());
  set("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", launch.problem.batch);
  command.add("\"${VERL_ARGS[@]}\"");
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.notes.emplace_back(
      "VERL_ARGS is yours: data, rollout, algorithm. Before verl 0.8 the key is "
      "actor_rollout_ref.actor.ulysses_sequence_parallel_size.");
  snippet.notes.push_back(
      fmt::format("Prompt and response together have {} tokens (data.max_prompt_length, "
                  "data.max_response_length).",
                  launch.problem.seq));
  snippet.notes.emplace_back(
      "ppo_mini_batch_size, a step's sequences, counts prompts: divide it by rollout.n responses "
      "to "
      "each.");
  if (launch.nodes > 1) {
    snippet.notes.emplace_back("The nodes form one Ray cluster; start it on the first.");
  }
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "verl",
    .title = "verl (FSDP)",
    .checked = "verl 0.8: https://verl.readthedocs.io/en/latest/examples/config.html",
    .stack = "",
    .ways = ways,
    .heads = {.values = divided_or_copied, .source = guide},
    .zero = {.values = stages, .source = guide},
    .recompute = {.values = none_or_full, .source = guide},
    .axes = {.shard_copies = true},
    .models = ModelKind::llm,
    .even_nodes = guide,
    .half_attention = flash_attention,
    .loads_models = true,
    .emit = emit,
};

}  // namespace spp::frameworks::verl
