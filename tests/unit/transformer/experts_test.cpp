// Mirrors one header, hence one file.
#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/transformer/tiny_model.hpp"
#include "transformer/activations.hpp"
#include "transformer/layer_kernels.hpp"
#include "transformer/model_flops.hpp"

#include <string>

using namespace spp;
using spp::test::message_of;
using spp::test::tiny_model;

namespace {

/// 6 rows, each through 2 of 4 experts: 12 routed rows.
constexpr LocalTokens six_rows{.tokens = 3, .batch = 2};

LocalTokens on(LayerSplit split, double excess = 1) {
  LocalTokens at = six_rows;
  at.split = split;
  at.routed_excess = excess;
  return at;
}

Model tiny_experts() {
  Model model = tiny_model();
  model.experts = {.count = 4, .per_token = 2, .ffn = 6, .shared = 1, .shared_ffn = 6};
  return model;
}

/// Heads 2 + 1 wide, values 2, from latents of 6 and 5.
Model tiny_latent() {
  Model model = tiny_model();
  model.latent = {.q_rank = 6, .kv_rank = 5, .nope_dim = 2, .rope_dim = 1, .value_dim = 2};
  model.head_dim = 3;
  model.kv_heads = 4;
  return model;
}

/// Ops from the one called `first` on.
std::vector<std::string> lines_from(std::string_view first, const std::vector<LayerOp>& ops) {
  std::vector<std::string> lines;
  for (const LayerOp& op : ops) {
    std::string line = to_string(op);
    if (const auto* gemm = std::get_if<GemmShape>(&op.work)) {
      line += fmt::format(" {}x{}x{}", gemm->m, gemm->n, gemm->k);
    } else if (const auto* grouped = std::get_if<GroupedGemm>(&op.work)) {
      line +=
          fmt::format(" {}x{}x{} of {}", grouped->rows, grouped->n, grouped->k, grouped->groups);
    } else if (const auto* stream = std::get_if<MemoryBound>(&op.work)) {
      line += fmt::format(" {} B", stream->touched.value());
    } else if (const auto* transfer = std::get_if<LayerTransfer>(&op.work)) {
      line += fmt::format(" {} {} B{}", to_string(transfer->axis), transfer->bytes.value(),
                          op.beside ? " beside" : "");
    }
    if (!lines.empty() || op.name == first) {
      lines.push_back(line);
    }
  }
  return lines;
}

std::vector<std::string> transfers_of(const std::vector<LayerOp>& ops) {
  std::vector<LayerOp> only;
  std::copy_if(ops.begin(), ops.end(), std::back_inserter(only),
               [](const LayerOp& op) { return std::holds_alternative<LayerTransfer>(op.work); });
  return only.empty() ? std::vector<std::string>{} : lines_from(only.front().name, only);
}

std::int64_t kept_token(const TensorOps& ops, const Recomputation& how) {
  return kept_bytes(ops, {.tokens = 1}, how).value();
}

Recomputation of_module(RecomputeModule module) {
  return {.kind = Recompute::selective, .modules = {module}};
}

Model published(std::string_view name) {
  return ModelLibrary(test::source_path("models")).load(name, "--model");
}

}  // namespace

TEST_CASE("tokens are routed, sent to experts, multiplied by groups, sent back and added") {
  // Routed [12,8] in bf16 is 192 B, 12 weights in fp32 48 B; 2 of 4 experts on each rank.
  const TensorOps layer = layer_of(tiny_experts());
  CHECK(lines_from("norm 2", forward_ops(layer, on({.expert = 2}))) ==
        std::vector<std::string>{"norm 2 192 B", "shared gate 6x6x8", "shared up 6x6x8",
                                 "shared activation 216 B", "shared down 6x8x6", "router 6x4x8",
                                 "top k 144 B", "permute 384 B", "dispatch all_to_all expert 192 B",
                                 "dispatch all_to_all expert 48 B", "experts up 12x12x8 of 2",
                                 "experts activation 480 B", "experts down 12x8x6 of 2",
                                 "combine all_to_all expert 192 B", "unpermute 288 B",
                                 "shared sum 288 B", "residual 2 288 B"});
}

TEST_CASE("the backward sends gradients the same ways back") {
  const TensorOps layer = layer_of(tiny_experts());
  const auto lines = lines_from("unpermute", backward_ops(layer, on({.expert = 2})));
  const std::vector<std::string> expected{"d unpermute 288 B",
                                          "d combine all_to_all expert 192 B",
                                          "d experts down input 12x6x8 of 2",
                                          "d experts down weight 12x8x6 of 2",
                                          "d experts activation 816 B",
                                          "d experts up input 12x8x12 of 2",
                                          "d experts up weight 12x12x8 of 2",
                                          "d dispatch all_to_all expert 192 B",
                                          "d dispatch all_to_all expert 48 B",
                                          "d permute 384 B",
                                          "d top k 240 B",
                                          "d router input 6x8x4",
                                          "d router weight 8x4x6",
                                          "d norm 2 sum 288 B",
                                          "d shared down input 6x6x8",
                                          "d shared down weight 6x8x6",
                                          "d shared activation 360 B"};
  REQUIRE(lines.size() > expected.size());
  CHECK(std::vector<std::string>(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(
                                                                    expected.size())) == expected);
}

TEST_CASE("a rank that has all experts sends nothing") {
  const TensorOps layer = layer_of(tiny_experts());
  CHECK(transfers_of(forward_ops(layer, six_rows)).empty());
  CHECK(transfers_of(backward_ops(layer, six_rows)).empty());
  CHECK(lines_from("experts up", forward_ops(layer, six_rows)).front() ==
        "experts up 12x12x8 of 4");
}

TEST_CASE("ranks that share experts have all of their rows and a part of their width") {
  const TensorOps layer = layer_of(tiny_experts());
  const LocalTokens at = on({.expert = 2, .expert_tensor = 2});
  CHECK(lines_from("dispatch", forward_ops(layer, at)) ==
        std::vector<std::string>{
            "dispatch all_to_all expert 192 B", "dispatch all_gather expert_tensor 384 B",
            "dispatch all_to_all expert 48 B", "dispatch all_gather expert_tensor 96 B",
            "experts up 24x6x8 of 2", "experts activation 528 B", "experts down 24x8x3 of 2",
            "combine reduce_scatter expert_tensor 384 B", "combine all_to_all expert 192 B",
            "unpermute 288 B", "shared sum 288 B", "residual 2 288 B"});
}

TEST_CASE("tensor ranks that have copies of tokens send no row twice") {
  const TensorOps layer = layer_of(tiny_experts());
  // All experts are beside: each rank takes what is its experts', and all add up [6,8].
  const auto beside = lines_from(
      "permute", forward_ops(layer, on({.tensor = 2, .sequence_parallel = false, .expert = 2})));
  CHECK(beside == std::vector<std::string>{"permute 264 B", "experts up 6x12x8 of 2",
                                           "experts activation 240 B", "experts down 6x8x6 of 2",
                                           "combine all_reduce tensor 96 B", "unpermute 192 B",
                                           "shared sum 288 B", "residual 2 288 B"});
  // They are elsewhere, too: a rank sends what is routed of half of them.
  const auto elsewhere = lines_from(
      "dispatch", forward_ops(layer, on({.tensor = 2, .sequence_parallel = false, .expert = 4})));
  CHECK(elsewhere ==
        std::vector<std::string>{"dispatch all_to_all expert 96 B",
                                 "dispatch all_to_all expert 24 B", "experts up 6x12x8 of 1",
                                 "experts activation 240 B", "experts down 6x8x6 of 1",
                                 "combine all_to_all expert 96 B", "combine all_gather tensor 96 B",
                                 "unpermute 192 B", "shared sum 288 B", "residual 2 288 B"});
}

TEST_CASE("an all-gather brings every rank all tokens, and their sums are scattered") {
  // [6,8] of each of two ranks in bf16, and 2 weights a token in fp32; each has half of the slots.
  const TensorOps layer = layer_of(tiny_experts(), Dispatcher::all_gather);
  CHECK(lines_from("dispatch", forward_ops(layer, on({.expert = 2}))) ==
        std::vector<std::string>{
            "dispatch all_gather expert 192 B", "dispatch all_gather expert 96 B", "permute 528 B",
            "experts up 12x12x8 of 2", "experts activation 480 B", "experts down 12x8x6 of 2",
            "unpermute 384 B", "combine reduce_scatter expert 192 B", "shared sum 288 B",
            "residual 2 288 B"});
  const auto back = lines_from("combine", backward_ops(layer, on({.expert = 2})));
  CHECK(back.at(0) == "d combine all_gather expert 192 B");
  CHECK(lines_from("dispatch", backward_ops(layer, on({.expert = 2}))).at(0) ==
        "d dispatch reduce_scatter expert 192 B");
  // Of ranks that share experts all have all rows.
  CHECK(transfers_of(forward_ops(layer, on({.expert = 2, .expert_tensor = 2}))) ==
        std::vector<std::string>{
            "dispatch all_gather expert_tensor 192 B", "dispatch all_gather expert 384 B",
            "dispatch all_gather expert_tensor 96 B", "dispatch all_gather expert 192 B",
            "combine reduce_scatter expert 384 B", "combine reduce_scatter expert_tensor 192 B"});
  // Weights, GEMMs and what a rank does alone are those of the other way.
  const TensorOps sent = layer_of(tiny_experts());
  CHECK(weights_of(layer) == weights_of(sent));
  CHECK(flops_of(forward_ops(layer, six_rows)) == flops_of(forward_ops(sent, six_rows)));
  CHECK(transfers_of(forward_ops(layer, six_rows)).empty());
}

TEST_CASE("the fullest rank's experts receive more and send more back") {
  const TensorOps layer = layer_of(tiny_experts());
  const auto lines = lines_from("dispatch", forward_ops(layer, on({.expert = 2}, 1.5)));
  CHECK(lines.at(0) == "dispatch all_to_all expert 192 B");
  CHECK(lines.at(2) == "experts up 18x12x8 of 2");
  CHECK(lines.at(5) == "combine all_to_all expert 288 B");
  // Alone it has them all: there is no other rank to be fuller than.
  CHECK(lines_from("experts up", forward_ops(layer, on({}, 1.5))).front() ==
        "experts up 12x12x8 of 4");
}

TEST_CASE("under sequence parallelism each rank routes its own tokens") {
  const TensorOps layer = layer_of(tiny_experts());
  const LocalTokens at = on({.tensor = 2, .expert = 2});
  CHECK(lines_from("shared gate", forward_ops(layer, at)) ==
        std::vector<std::string>{"shared gate all_gather tensor 96 B", "shared gate 6x3x8",
                                 "shared up 6x3x8", "shared activation 108 B", "shared down 6x8x3",
                                 "shared down reduce_scatter tensor 96 B", "router 3x4x8",
                                 "top k 72 B", "permute 192 B", "dispatch all_to_all expert 96 B",
                                 "dispatch all_to_all expert 24 B", "experts up 6x12x8 of 2",
                                 "experts activation 240 B", "experts down 6x8x6 of 2",
                                 "combine all_to_all expert 96 B", "unpermute 144 B",
                                 "shared sum 144 B", "residual 2 144 B"});
}

TEST_CASE("experts are cut by number and by width, the router is whole") {
  // Attention 192, shared 144, router 32, 4 experts of 144, norms 16.
  const TensorOps layer = layer_of(tiny_experts());
  CHECK(weights_of(layer) == 960);
  CHECK(weights_of(layer, {.expert = 2}) == 960 - 288);
  CHECK(weights_of(layer, {.expert = 2, .expert_tensor = 2}) == 960 - 576 + 144);
  CHECK(weights_of(layer, {.tensor = 2}) == 960 - 96 - 72);
  Model biased = tiny_experts();
  biased.experts.router_bias = biased.experts.bias = true;
  CHECK(weights_of(layer_of(biased)) == 960 + 4 + 4 * (12 + 8));
}

TEST_CASE("experts keep what they receive, their inner tensors, weights and scores") {
  // Bytes a token: attention and the norm of experts 112, 1/rms and LSE 24; shared 36, scores 16,
  // received 32, inner 48, weights 8, product 24.
  const TensorOps layer = layer_of(tiny_experts());
  CHECK(kept_token(layer, {}) == 300);
  CHECK(kept_token(layer, of_module(RecomputeModule::moe)) == 136);
  CHECK(kept_token(layer, of_module(RecomputeModule::shared_experts)) == 300 - 36);
  CHECK(kept_token(layer, of_module(RecomputeModule::activation)) == 300 - 24 - 12);
  CHECK(kept_bytes(layer, {.tokens = 8, .split = {.tensor = 2, .expert = 2}}, {}) ==
        Bytes(8 * 300 / 2));
  // Received rows multiply: 32 + 48 + 8 + 24 bytes of each token.
  CHECK(kept_bytes(layer, {.tokens = 8, .split = {.expert = 2}, .routed_excess = 2}, {}) ==
        Bytes(8 * (300 + 112)));
}

TEST_CASE("recomputed experts exchange their rows again") {
  const TensorOps layer = layer_of(tiny_experts());
  CHECK(transfers_of(recomputed_ops(layer, on({.expert = 2}), of_module(RecomputeModule::moe))) ==
        std::vector<std::string>{"dispatch all_to_all expert 192 B",
                                 "dispatch all_to_all expert 48 B",
                                 "combine all_to_all expert 192 B"});
  // What exchanges gave is kept where every second GEMM runs again.
  CHECK(transfers_of(
            recomputed_ops(layer, on({.expert = 2}), of_module(RecomputeModule::every_second_gemm)))
            .empty());
}

TEST_CASE("latent attention goes down to latents, up to heads, and places them") {
  CHECK(lines_from("norm 1", forward_ops(layer_of(tiny_latent()), six_rows)) ==
        std::vector<std::string>{"norm 1 192 B", "q down 6x6x8", "q norm 144 B", "q up 6x12x6",
                                 "kv down 6x6x8", "kv norm 120 B", "kv up 6x16x5", "rope 540 B",
                                 "attention", "out 6x8x8", "residual 1 288 B", "norm 2 192 B",
                                 "gate 6x16x8", "up 6x16x8", "activation 576 B", "down 6x8x16",
                                 "residual 2 288 B"});
  const auto ops = forward_ops(layer_of(tiny_latent()), six_rows);
  const auto& call = std::get<SelfAttention>(ops.at(8).work).call;
  CHECK(call.head_dim == 3);
  CHECK(call.v_dim() == 2);
}

TEST_CASE("a prefill caches the latent and the part of K in position, on every rank") {
  CHECK(cached_bytes(layer_of(tiny_latent()), {.tokens = 1}) == Bytes(2 * (5 + 1)));
  CHECK(cached_bytes(layer_of(tiny_latent()), {.tokens = 2, .split = {.tensor = 2}}) ==
        Bytes(2 * 2 * (5 + 1)));
  CHECK(cached_bytes(layer_of(tiny_model()), {.tokens = 2, .split = {.tensor = 2}}) ==
        Bytes(2 * 2 * 8 / 2));
}

TEST_CASE("heads of tokens in front are cached, or made from latents again") {
  const LocalTokens behind{.tokens = 1, .cached = 10};
  CHECK(cached_bytes(layer_of(tiny_model()), behind, 40) == Bytes(2 * 8 * (1 + 10)));
  CHECK(projected_bytes(layer_of(tiny_model()), behind) == Bytes(0));
  // All latents, for some of the heads; 4 heads of K 3 wide, of V 2.
  CHECK(cached_bytes(layer_of(tiny_latent()), behind, 40) == Bytes(2 * (5 + 1) * (1 + 40)));
  CHECK(projected_bytes(layer_of(tiny_latent()), behind) == Bytes(2 * 10 * 4 * (3 + 2)));
  LocalTokens rows = six_rows;
  rows.cached = 10;
  const auto ops = lines_from("kv norm", forward_ops(layer_of(tiny_latent()), rows));
  CHECK(ops.at(1) == fmt::format("kv up {}x16x5", 6 + 10 * rows.batch));
}

TEST_CASE("latents are gathered in front of their projection up, as is the common part of K") {
  const TensorOps layer = layer_of(tiny_latent());
  const LocalTokens at = on({.tensor = 2});
  const auto forward = lines_from("norm 1", forward_ops(layer, at));
  CHECK(std::vector<std::string>(forward.begin(), forward.begin() + 14) ==
        std::vector<std::string>{"norm 1 96 B", "q down 3x6x8", "q norm 72 B",
                                 "q up all_gather tensor 72 B", "q up 6x6x6", "kv down 3x6x8",
                                 "kv norm 60 B", "kv up all_gather tensor 60 B", "kv up 6x8x5",
                                 "rope all_gather tensor 12 B", "rope 276 B", "attention",
                                 "out 6x8x4", "out reduce_scatter tensor 96 B"});
  auto backward = transfers_of(backward_ops(layer, at));
  backward.erase(backward.begin(), backward.begin() + 3);  // of the MLP
  CHECK(backward == std::vector<std::string>{"d out all_gather tensor 96 B",
                                             "d rope input reduce_scatter tensor 12 B",
                                             "d kv up weight all_gather tensor 60 B beside",
                                             "d kv up input reduce_scatter tensor 60 B beside",
                                             "d q up weight all_gather tensor 72 B beside",
                                             "d q up input reduce_scatter tensor 72 B beside"});
}

TEST_CASE("a layer of DeepSeek-V3 has the weights and keeps the bytes that were counted by hand") {
  const auto runs = layer_runs(published("deepseek-v3"));
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].layers == 3);
  CHECK(runs[1].layers == 58);
  // Attention: 4h + 4 * 1536 + 4 * 512 + K, Q 4n * 192 + V, O 4n * 128 + LSE 4n = 201,216, four
  // 1/rms 16. MLP 4h + 6 * 18432 = 139,264. Experts: 4h + received 2 * 8h + inner 4 * 8 * 2048 +
  // product 2 * 8 * 2048 + shared 6 * 2048 = 253,952, scores 4 * 256, weights 4 * 8.
  CHECK(kept_token(runs[0].ops, {}) == 201'216 + 16 + 139'264);
  CHECK(kept_token(runs[1].ops, {}) == 201'216 + 16 + 253'952 + 1'024 + 32);
  // Q, K, V: n * (2 * 192 + 128) elements.
  CHECK(kept_token(runs[1].ops, {}) - kept_token(runs[1].ops, of_module(RecomputeModule::mla_up)) ==
        131'072);
  // Attention's weights 187.1 * 10^6.
  std::int64_t attention = 0;
  for (const TensorOp& op : runs[0].ops.ops) {
    if (op.name == "norm 2") {
      break;
    }
    attention += weights_of(op, runs[0].ops);
  }
  CHECK(attention == 187'107'328 + 7'168);
}

TEST_CASE("layers of several kinds are found by their number") {
  const Model deepseek = published("deepseek-v3");
  CHECK(kinds_of_layers(deepseek).at(0) == 0);
  CHECK(kinds_of_layers(deepseek).at(2) == 0);
  CHECK(kinds_of_layers(deepseek).at(3) == 1);
  CHECK(kinds_of_layers(deepseek).at(60) == 1);
  CHECK(message_of<InputError>([&] { (void)layer_of(deepseek); }) ==
        "model 'deepseek-v3': has layers of 2 kinds, not of one");

  const Model gpt_oss = published("gpt-oss-20b");
  const auto runs = layer_runs(gpt_oss);
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].layers == 12);
  CHECK(runs[0].mask == LayerMask{.kind = MaskKind::window, .window = 128});
  CHECK(runs[1].mask.kind == MaskKind::causal);
  CHECK(kinds_of_layers(gpt_oss).at(22) == 0);
  CHECK(kinds_of_layers(gpt_oss).at(23) == 1);

  const auto scout = layer_runs(published("llama-4-scout-17b-16e"));
  REQUIRE(scout.size() == 2);
  CHECK(scout[0].layers == 36);
  CHECK(scout[0].mask == LayerMask{.chunk = 8192});
  CHECK(scout[1].mask == LayerMask{});
}

TEST_CASE("layers that see a window have heads of their own, and experts stand beside an MLP") {
  const auto runs = layer_runs(published("gemma-4-26b-a4b"));
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].heads == KvHeads{.count = 8, .dim = 256});
  CHECK(runs[1].heads == KvHeads{.count = 2, .dim = 512, .v_is_k = true});
  const auto op = [&](std::size_t run, std::string_view name) {
    const auto& ops = runs[run].ops.ops;
    const auto at = std::ranges::find(ops, name, &TensorOp::name);
    REQUIRE(at != ops.end());
    return *at;
  };
  for (std::size_t run = 0; run < 2; ++run) {
    const auto call = std::get<AttentionCall>(op(run, "attention").work);
    CHECK(call.q_heads == 16);
    CHECK(call.kv_heads == runs[run].heads.count);
    CHECK(call.head_dim == runs[run].heads.dim);
    CHECK(std::get<Linear>(op(run, "out").work).in == 16 * runs[run].heads.dim);
    CHECK(op(run, "shared sum").reads.size() == 2);
  }
  CHECK(std::get<Linear>(op(0, "qkv").work).out == (16 + 2 * 8) * 256);
  CHECK(std::get<Linear>(op(1, "qkv").work).out == (16 + 2) * 512);
  CHECK(op(1, "v norm").reads[0] == op(1, "qkv").writes[1]);
  // Router, routed and shared experts: each reads through a norm of its own.
  CHECK(op(0, "router").reads[0] == op(0, "router norm").writes[0]);
  CHECK(op(0, "permute").reads[0] == op(0, "experts norm").writes[0]);
  CHECK(op(0, "shared gate").reads[0] == op(0, "norm 2").writes[0]);
}

TEST_CASE("experts stand in each so many-th layer behind the dense ones") {
  Model model = tiny_experts();
  model.layers = 5;
  model.experts.every = 2;
  model.experts.dense_layers = 2;
  CHECK(layer_runs(model).at(0).layers == 4);
  CHECK(layer_runs(model).at(1).layers == 1);
  CHECK(kinds_of_layers(model).at(3) == 1);
  CHECK(kinds_of_layers(model).at(1) == 0);
}

TEST_CASE("of experts those count that a token is routed to") {
  // Matrices of a token and layer: attention 192, shared 144, router 32, 2 experts 288: 656.
  // Loss head 80. Pairs as the tiny model's: 1024 FLOPs in 2 layers, half of them causal.
  const ModelFlops flops =
      model_flops(tiny_experts(), {.seq = 4, .mask = {.kind = MaskKind::causal}});
  CHECK(flops.causal_halved.value() == 3 * (2 * 656 * 4 * 2 + 640 + 512));
  // 2 layers without 2 experts of 144 each.
  CHECK(tiny_experts().parameters() == 2 * 960 + 168);
  CHECK(tiny_experts().active_parameters() == 2 * (960 - 288) + 168);
  CHECK(flops.model_6n.value() == 6.0 * 4 * (2 * (960 - 288) + 168));
}

TEST_CASE("chunks cut every document, and a sequence however long") {
  const LayerMask chunks{.chunk = 4};
  CHECK(chunks.over(4) == Mask{});
  CHECK(chunks.over(10).document_ends == std::vector<std::int64_t>{4, 8, 10});
  CHECK(chunks.over(10, {5, 7, 10}).document_ends == std::vector<std::int64_t>{4, 5, 7, 10});
  CHECK(LayerMask{.window = 3}.over(10, {5, 10}) == Mask{.window = 3, .document_ends = {5, 10}});
  CHECK(to_string(chunks) == "causal, chunks of 4");
}

TEST_CASE("a layer that sees chunks has the FLOPs of its pairs, beyond the model's positions too") {
  // 2 layers, the first sees 2 of 8 tokens: 4 * 3 pairs; the second half of 64. 32 FLOPs a pair.
  Model model = tiny_model();
  model.max_positions = 4;
  model.narrow_mask = {.chunk = 2};
  model.narrow_layers = {true, false};
  ModelWork work{.seq = 8, .mask = {.kind = MaskKind::causal}};
  const double all_causal = model_flops(tiny_model(), work).causal_halved.value();
  CHECK(all_causal - model_flops(model, work).causal_halved.value() == 3 * 32 * (32 - 12));
  // Documents of 3, 1 and 4 tokens: 6 + 1 + 10 pairs, in chunks 3 + 1, 1 and 3 + 3.
  work.mask.document_ends = {3, 4, 8};
  const double all_packed = model_flops(tiny_model(), work).causal_halved.value();
  CHECK(all_packed - model_flops(model, work).causal_halved.value() == 3 * 32 * (17 - 11));
}

TEST_CASE("a layer with a window has the FLOPs of its pairs") {
  // 2 layers, the first sees one token: 4 pairs of 16; the second half of 16. 8 heads-wide 32
  // FLOPs.
  Model model = tiny_model();
  model.narrow_mask = {.kind = MaskKind::window, .window = 1};
  model.narrow_layers = {true, false};
  const ModelWork work{.seq = 4, .mask = {.kind = MaskKind::causal}};
  const double all_causal = model_flops(tiny_model(), work).causal_halved.value();
  CHECK(all_causal - model_flops(model, work).causal_halved.value() == 3 * 32 * (8 - 4));
  CHECK(model_flops(model, work).full == model_flops(tiny_model(), work).full);
}

TEST_CASE("a layer that predicts a further token has what the main model has not") {
  // Three norms 24, [16,8] 128, a layer 592; table and head are the model's.
  CHECK(weights_of(predict_of(tiny_model())) == 24 + 128 + 592);
  const auto lines = lines_from("embedding", forward_ops(predict_of(tiny_model()), six_rows));
  CHECK(std::vector<std::string>(lines.begin(), lines.begin() + 6) ==
        std::vector<std::string>{"embedding 192 B", "predict norm 192 B",
                                 "predict embedding norm 192 B", "predict both 384 B",
                                 "predict 6x8x16", "norm 1 192 B"});
  CHECK(lines.back() == "softmax 480 B");
  // What comes behind the layer's own gradients, whose last is added to its input's.
  CHECK(lines_from("predict", backward_ops(predict_of(tiny_model()), six_rows)) ==
        std::vector<std::string>{"d predict sum 288 B", "d predict input 6x16x8",
                                 "d predict weight 16x8x6", "d predict both 384 B",
                                 "d predict embedding norm 288 B", "d predict norm 288 B",
                                 "d embedding 480 B"});
  // DeepSeek-V3's README_WEIGHTS.md: one, of 11.5 * 10^9 weights of its own.
  const Model deepseek = published("deepseek-v3");
  CHECK(deepseek.predict_layers == 1);
  CHECK(static_cast<double>(weights_of(predict_of(deepseek))) ==
        Catch::Approx(11.5e9).epsilon(0.01));
}
