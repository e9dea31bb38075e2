// vLLM's server of language models. Prefill context parallelism splits the tokens of a prompt over
// more ranks (tensor x pipeline x context of them); experts are split over tensor x context x data,
// whole ones, or each of them. Decode context parallelism, which splits the cache over tensor ranks
// that would hold copies of it, is no part of a prefill's plan and is only noted.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::vllm {
namespace {

constexpr std::string_view config =
    "https://github.com/vllm-project/vllm/blob/main/vllm/config/parallel.py";
/// Tokens of a pass on the smallest GPUs by default (EngineArgs, get_batch_defaults); on larger
/// ones 8192 or more.
constexpr std::int64_t least_budget = 2048;
/// That a server decodes at once by default, at most.
constexpr std::int64_t usual_sequences = 1024;
constexpr std::array<Way, 1> ways{
    {{.name = "pcp", .strategy = "all-gather", .source = config, .both = false, .no_data = true}}};

/// Ranks of tensor parallelism that hold the same keys and values.
int copies_of_cache(const Launch& launch) {
  const std::int64_t kv_heads = launch.problem.kv_heads;
  return kv_heads > 0 && launch.tp > kv_heads && launch.tp % kv_heads == 0
             ? static_cast<int>(launch.tp / kv_heads)
             : 1;
}

std::int64_t at_once(const Launch& launch) { return launch.problem.seq * launch.problem.batch; }

Snippet emit(const Launch& launch, const Way&) {
  Snippet snippet{.says = {.seq = true,
                           .cached = true,
                           .micro_batches = true,  // of as many tokens as it takes at once
                           .dtype = true,
                           .layers = true,
                           .format = launch.format == GemmFormat::fp8,
                           .no_sequence_parallel = true,
                           .nodes = true}};
  Command command("vllm serve \"$MODEL\"");
  command.add("--tensor-parallel-size", launch.tp);
  if (launch.pp > 1) {
    command.add("--pipeline-parallel-size", launch.pp);
  }
  if (launch.context() > 1) {
    command.add("--prefill-context-parallel-size", launch.context());
    snippet.notes.emplace_back(
        "Which ranks hold which tokens of a prompt vLLM decides; it says at the start whether its "
        "attention back end takes --prefill-context-parallel-size.");
  }
  if (launch.dp > 1) {
    command.add("--data-parallel-size", launch.dp);
  }
  if (launch.ep > 1) {
    command.add("--enable-expert-parallel");
    if (launch.dp * launch.context() > 1) {  // tensor ranks have copies of the same tokens
      command.add("--all2all-backend", "allgather_reducescatter");
    }
  }
  command.add("--dtype", long_name(launch.problem.dtype));
  if (launch.format == GemmFormat::fp8) {
    command.add("--quantization", "fp8");
  }
  // A prompt and one token of its answer, at least, which it refuses without.
  command.add("--max-model-len",
              context_length(snippet, launch, 1, "vLLM", "VLLM_ALLOW_LONG_MAX_MODEL_LEN"));
  // A longer prompt than the budget of a pass is cut into several of them.
  if (launch.problem.cached > 0 || at_once(launch) > least_budget) {
    command.add("--enable-chunked-prefill");
    command.add("--max-num-batched-tokens", at_once(launch));
    if (at_once(launch) < usual_sequences) {  // each of them has a token in a pass
      command.add("--max-num-seqs", at_once(launch));
    }
  }
  if (launch.nodes > 1) {
    command.add("--nnodes", launch.nodes).add("--node-rank", "\"$NODE_RANK\"");
    command.add("--master-addr", "\"$MASTER_ADDR\"");
    command.add("$( ((NODE_RANK)) && echo --headless )");
  }
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.notes.emplace_back("MODEL is a variable of yours.");
  if (const int copies = copies_of_cache(launch); copies > 1) {
    snippet.notes.push_back(
        fmt::format("For decoding, --decode-context-parallel-size {} splits the cache that {} "
                    "tensor ranks would hold copies of; it takes no further GPU.",
                    copies, copies));
  }
  note_prompts(snippet, launch, "vLLM");
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "vllm",
    .title = "vLLM (language models)",
    .checked =
        "vLLM, its main branch of 2026: "
        "https://github.com/vllm-project/vllm/blob/main/vllm/config/parallel.py",
    .stack = "vllm",
    .ways = ways,
    .trains = false,
    .infers = true,
    .masks = {.values = causal_mask_only, .source = config},
    .axes = {.tensor = true,
             .pipeline = true,
             .expert = true,
             .kv_copies = true,
             .expert_ranks = ExpertRanks::stage,
             .dispatchers = all_gather_only},
    .models = ModelKind::llm,
    .even_nodes = config,
    .loads_models = true,
    .emit = emit,
};

}  // namespace spp::frameworks::vllm
