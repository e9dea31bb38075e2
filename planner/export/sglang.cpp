// SGLang's server of language models. Prefill context parallelism deals the tokens of a prompt out
// over attention's context ranks, which gather keys and values; they are part of --tp-size, so
// attention is split --tp-size / --attn-cp-size ways by heads. Experts are split over all of them,
// --ep-size ways whole, the rest each of them.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"

namespace spp::frameworks::sglang {
namespace {

constexpr std::string_view prefill = "https://docs.sglang.io/docs/advanced_features/prefill_cp";
constexpr std::string_view server =
    "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/server_args.py";
/// divide(), which asserts that nothing is left.
constexpr std::string_view linear =
    "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/layers/linear.py";
/// By default, on the smallest GPUs (server_args.py); on those of 80 GB 8192.
constexpr std::int64_t least_chunk = 2048;
/// Tokens of all prompts of one batch, by default (server_args.py, max_prefill_tokens).
constexpr std::int64_t tokens_of_batch = 16384;
constexpr std::array striped_only{Layout::striped};
constexpr std::array<Way, 2> ways{{{.name = "zigzag",
                                    .strategy = "all-gather",
                                    .source = prefill,
                                    .layouts = zigzag_only,
                                    .both = false},
                                   {.name = "interleave",
                                    .strategy = "all-gather",
                                    .source = prefill,
                                    .layouts = striped_only,
                                    .both = false}}};

Snippet emit(const Launch& launch, const Way& way) {
  Snippet snippet{.says = {.seq = true,
                           .cached = true,
                           .micro_batches = true,  // of as many tokens as it takes at once
                           .dtype = true,
                           .layers = true,
                           .format = launch.format == GemmFormat::fp8,
                           .no_sequence_parallel = true,
                           .nodes = true}};
  Command command("python3 -m sglang.launch_server");
  command.add("--model-path", "\"$MODEL\"");
  command.add("--tp-size", launch.tp * launch.context());
  if (launch.pp > 1) {
    command.add("--pp-size", launch.pp);
  }
  if (launch.dp > 1) {
    command.add("--dp-size", launch.dp);
  }
  if (launch.ep > 1) {
    command.add("--ep-size", launch.ep);
    command.add("--moe-a2a-backend", "none");
  }
  if (launch.context() > 1) {
    command.add("--enable-prefill-cp").add("--cp-strategy", way.name);
    command.add("--attn-cp-size", launch.context());
    snippet.notes.push_back(fmt::format(
        "Of the {} ranks of --tp-size, attention's heads are split over {}; the rest of "
        "a layer over all, where the plan splits it over {} and its tokens over {}.",
        launch.tp * launch.context(), launch.tp, launch.tp, launch.context()));
    snippet.notes.emplace_back(
        "Which models take --enable-prefill-cp, and which of the two strategies, SGLang says when "
        "it starts.");
  }
  command.add("--dtype", long_name(launch.problem.dtype));
  if (launch.format == GemmFormat::fp8) {
    command.add("--quantization", "fp8");
  }
  constexpr std::int64_t kept_back =
      6;  // tokens of a context that no prompt gets (max_req_input_len)
  command.add("--context-length", launch.problem.end() + kept_back);
  // A longer prompt than a chunk is cut into several of them.
  if (const std::int64_t tokens = launch.problem.seq * launch.problem.batch;
      launch.problem.cached > 0 || tokens > least_chunk) {
    command.add("--chunked-prefill-size", tokens);
    if (launch.problem.batch > 1 && tokens > tokens_of_batch) {
      command.add("--max-prefill-tokens", tokens);
    }
  }
  if (launch.nodes > 1) {
    command.add("--nnodes", launch.nodes).add("--node-rank", "\"$NODE_RANK\"");
    command.add("--dist-init-addr", "\"$MASTER_ADDR:29500\"");
    if (launch.dp > 1) {
      snippet.notes.emplace_back(
          "Replicas over several nodes SGLang has with --enable-dp-attention alone, which splits "
          "other parts of a layer than the plan: run one server a node instead.");
    }
  }
  snippet.blocks.push_back({.language = "bash", .file = "", .text = command.text()});
  snippet.notes.emplace_back("MODEL is a variable of yours.");
  note_prompts(snippet, launch, "SGLang");
  note_nodes(snippet, launch);
  return snippet;
}

}  // namespace

extern const Framework entry{
    .name = "sglang",
    .title = "SGLang (language models)",
    .checked =
        "SGLang, by its documentation of 2026: "
        "https://docs.sglang.io/docs/advanced_features/prefill_cp",
    .stack = "sglang",
    .ways = ways,
    .trains = false,
    .infers = true,
    .masks = {.values = causal_mask_only, .source = prefill},
    .axes = {.tensor = true,
             .pipeline = true,
             .expert = true,
             .kv_copies = true,
             .expert_ranks = ExpertRanks::replica,
             .dispatchers = all_gather_only},
    .models = ModelKind::llm,
    .even_nodes = server,
    .mlp_over_all = linear,
    .loads_models = true,
    .emit = emit,
};

}  // namespace spp::frameworks::sglang
