// SGLang's server of language models. Prefill context parallelism deals the tokens of a prompt out
// over attention's context ranks, which gather keys and values; they are part of --tp-size, so
// attention is split --tp-size / --attn-cp-size ways by heads. Experts are split over all of them,
// --ep-size ways whole, the rest each of them.
#include "planner/export/context_parallel.hpp"
#include "planner/export/text.hpp"
#include "planner/framework_step.hpp"

namespace spp::frameworks::sglang {
namespace {

constexpr std::string_view prefill = "https://docs.sglang.io/docs/advanced_features/prefill_cp";
constexpr std::string_view server =
    "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/server_args.py";
/// _deepseek_family_overrides().
constexpr std::string_view latents =
    "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/arg_groups/model_overrides/"
    "deepseek_v2.py";
/// divide(), which asserts that nothing is left.
constexpr std::string_view linear =
    "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/layers/linear.py";
/// By default, on the smallest GPUs (server_args.py); on those of 80 GB 8192.
constexpr std::int64_t least_chunk = 2048;
/// Tokens of all prompts of one batch, by default (server_args.py, max_prefill_tokens).
constexpr std::int64_t tokens_of_batch = 16384;
constexpr std::array gather_first{Dispatcher::all_gather, Dispatcher::all_to_all};
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

/// Prompts of a model with latent attention are split by rules of their own.
bool splits_latents(const Model& model, int sequence) {
  return model.latent.kv_rank > 0 && sequence > 1;
}

/// Whatever is asked, SGLang then makes every rank a context rank, and sends tokens to experts, on
/// all of them, by DeepEP, of one prompt at a time. DeepEP is for nothing else here: it is a
/// package of its own.
Cannot also_step(const Request& request, const StepPlan& plan) {
  const Model& model = *request.model;
  const bool by_all_to_all = plan.to_experts == Dispatcher::all_to_all;
  if (!splits_latents(model, plan.sequence())) {
    return plan.sends_to_experts() && by_all_to_all
               ? because("dispatcher", "sglang has no all-to-all dispatcher of its own", server)
               : Cannot{};
  }
  if (plan.tensor > 1) {
    return because(
        "tensor",
        fmt::format("sglang splits prompts of latent attention over all ranks, with none "
                    "of {} for tensor parallelism",
                    plan.tensor),
        latents);
  }
  if (plan.data > 1) {
    return because(
        "data",
        fmt::format("sglang splits prompts of latent attention over all ranks: replicas, "
                    "here {}, would be parts of these",
                    plan.data),
        latents);
  }
  if (plan.micro_batch > 1) {
    return because("batch",
                   fmt::format("sglang splits one prompt of latent attention at a time, not {}",
                               plan.micro_batch),
                   latents);
  }
  if (model.experts.count > 0 && (plan.expert != plan.sequence() || !by_all_to_all)) {
    return because(
        "expert",
        fmt::format("sglang, which splits prompts of latent attention over {} ranks, has "
                    "whole experts on each and sends to them by DeepEP: --ep {} "
                    "--dispatcher all-to-all",
                    plan.sequence(), plan.sequence()),
        latents);
  }
  return {};
}

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
    command.add("--moe-a2a-backend",
                launch.to_experts == Dispatcher::all_to_all ? "deepep" : "none");
  }
  if (launch.context() > 1) {
    command.add("--enable-prefill-cp").add("--cp-strategy", way.name);
    command.add("--attn-cp-size", launch.context());
    if (launch.model != nullptr && splits_latents(*launch.model, launch.context())) {
      command.add("--moe-dense-tp-size", 1);
      snippet.notes.emplace_back("Experts want DeepEP, a package of its own.");
    } else {
      snippet.notes.push_back(fmt::format(
          "Of the {} ranks of --tp-size, attention's heads are split over {}; the rest of "
          "a layer over all, where the plan splits it over {} and its tokens over {}.",
          launch.tp * launch.context(), launch.tp, launch.tp, launch.context()));
    }
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
  command.add("--context-length", context_length(snippet, launch, kept_back, "SGLang",
                                                 "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"));
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
             .dispatchers = gather_first},
    .models = ModelKind::llm,
    .even_nodes = server,
    .mlp_over_all = linear,
    .loads_models = true,
    .also_step = also_step,
    .emit = emit,
};

}  // namespace spp::frameworks::sglang
