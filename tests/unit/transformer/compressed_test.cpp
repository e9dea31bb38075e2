// Layers on several residual streams whose attention meets a window and compressed entries:
// operations, weights, FLOPs, kept and cached bytes by hand, and what is published of DeepSeek-V4.
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/transformer/tiny_model.hpp"
#include "transformer/activations.hpp"
#include "transformer/layer_kernels.hpp"
#include "transformer/met_pairs.hpp"
#include "transformer/model_flops.hpp"

#include <algorithm>
#include <string>
#include <vector>

using namespace spp;
using Catch::Approx;
using test::compressed_model;

namespace {

enum Kind : std::size_t { window, picked, all };

TensorOps compressed_layer(Kind kind, const Model& model = compressed_model()) {
  return layer_runs(model).at(kind).ops;
}

GemmShape gemm_of(const std::vector<LayerOp>& ops, std::string_view name) {
  const auto at = std::ranges::find(ops, name, [](const LayerOp& op) { return to_string(op); });
  REQUIRE(at != ops.end());
  return std::get<GemmShape>(at->work);
}

double prefill_flops(const Model& model) {
  const ModelWork work{.seq = 8, .mask = {}, .step = StepKind::prefill};
  return model_flops(model, work).causal_halved.value();
}

}  // namespace

TEST_CASE("layers of compressed attention weigh their compressors, indexer, groups and streams") {
  const Model model = compressed_model();
  // Streams 2 * (16*8 + 8 + 3), norms 16, attention 8*6 + 6 + 6*16 + 8*4 + 4 + sinks 4 +
  // 16/2*6 + 6*8, MLP 3*8*16.
  constexpr std::int64_t sees_window = 278 + 16 + 286 + 384;
  // Compressor 2*8*8 + 2*8 + 4, the indexer's as much, its queries 6*8 and weights 8*2.
  constexpr std::int64_t picks = sees_window + 2 * 148 + 48 + 16;
  constexpr std::int64_t sees_all = sees_window + 2 * 8 * 4 + 4 * 4 + 4;
  const std::vector<LayerWeights> kinds = layer_weights(model);
  CHECK(kinds.at(window).parameters == sees_window);
  CHECK(kinds.at(picked).parameters == picks);
  CHECK(kinds.at(all).parameters == sees_all);
  // Tables 2 * 80, final norm 8, streams joined 16*2 + 2 + 1.
  CHECK(model.parameters() == sees_window + picks + sees_all + 160 + 8 + 35);
  CHECK_FALSE(layer_runs(model).front().attends);
}

TEST_CASE("pairs that meet are those that are counted one by one") {
  for (const MetKeys& keys : {MetKeys{.window = 3}, MetKeys{.window = 2, .entry = 4, .picked = 2},
                              MetKeys{.window = 5, .entry = 7}, MetKeys{.entry = 1, .picked = 6}}) {
    MetPairs counted;
    const TokenSet queries({.begin = 3, .count = 9}, {.begin = 20, .count = 13});
    for (std::int64_t q = 0; q < 40; ++q) {
      if (!queries.contains(q)) {
        continue;
      }
      const std::int64_t seen = keys.entry > 0 ? (q + 1) / keys.entry : 0;
      counted.window += std::min(keys.window, q + 1);
      counted.entries += keys.picked > 0 ? std::min(keys.picked, seen) : seen;
      counted.seen += keys.picked > 0 ? seen : 0;
    }
    const MetPairs pairs = met_pairs(keys, queries);
    CHECK(pairs.window == counted.window);
    CHECK(pairs.entries == counted.entries);
    CHECK(pairs.seen == counted.seen);
  }
}

TEST_CASE("FLOPs count scores of entries, those picked or all, and windows") {
  const Model model = compressed_model();
  const double before = prefill_flops(model);
  const auto fewer = [&](const auto& change) {
    Model changed = model;
    change(changed);
    return before - prefill_flops(changed);
  };
  constexpr double of_pair = 4 * 2 * (4 + 4);
  // Of 8 queries: 15 pairs in a window of 2, 8 in one of 1.
  CHECK(fewer([](Model& m) { m.blocks[window].keys.window = 1; }) == Approx(7 * of_pair));
  // They see 0, 1, 1, 2, 2, 3, 3, 4 entries of 2.
  CHECK(fewer([](Model& m) { m.blocks[picked].keys.picked = 1; }) == Approx((15 - 7) * of_pair));
  // Half of 8 * 8 over 2 pairs of 4 numbers; half of index q, and of the weights of heads.
  CHECK(fewer([](Model& m) { m.indexer->heads = 1; }) == Approx(2 * 4 * 16 + 2 * 8 * (6 * 4 + 8)));
  // Half of 8 * 8 over 4; a compressor 2*4 wide.
  CHECK(fewer([](Model& m) { m.blocks[all].keys.entry = 0; }) ==
        Approx(8 * of_pair + 2 * 8 * 8 * 8));
}

TEST_CASE("what lies between layers is as wide as all streams") {
  const TensorOps ops = compressed_layer(all);
  const LocalTokens local{.tokens = 6};
  CHECK(kept_bytes(ops, local, {.kind = Recompute::full}) == Bytes(6 * 16 * 2));
  CHECK(ops.at(ops.results[0]).width == 16);
  const Model model = compressed_model();
  const TensorOps first = first_of(model);
  const TensorOps last = last_of(model, StepKind::train);
  CHECK(first.at(first.results[0]).width == 16);
  CHECK(last.tensors.front().width == 16);
}

TEST_CASE("mixes of the streams run again with the norms, and are not kept then") {
  const TensorOps ops = compressed_layer(window);
  const LocalTokens local{.tokens = 6};
  const Recomputation norms{.kind = Recompute::selective, .modules = {RecomputeModule::norms}};
  // Streams between the branches, what each branch reads and normed, and the norms of q and kv; a
  // norm that runs again alone has its statistics still.
  constexpr std::int64_t numbers = 16 + 2 * (8 + 8) + 6;
  CHECK(kept_bytes(ops, local, {}) - kept_bytes(ops, local, norms) == Bytes(6 * numbers * 2));
}

TEST_CASE("a prefill leaves a window's keys, entries and the indexer's keys of them") {
  const auto cached = [](Kind kind) { return cached_bytes(compressed_layer(kind), {.tokens = 8}); };
  CHECK(cached(window) == Bytes(2 * 4 * 2));
  CHECK(cached(picked) == Bytes((2 + 4 + 4) * 4 * 2));
  CHECK(cached(all) == Bytes((2 + 2) * 4 * 2));
}

TEST_CASE("tensor ranks gather keys and entries, and bring groups of heads down apart") {
  const TensorOps ops = compressed_layer(picked);
  const LocalTokens local{.tokens = 8, .split = {.tensor = 2}};
  const auto forward = forward_ops(ops, local);
  std::vector<Bytes> gathered;
  for (const LayerOp& op : forward) {
    if (const auto* transfer = std::get_if<LayerTransfer>(&op.work);
        transfer != nullptr && op.name == "rope") {
      gathered.push_back(transfer->bytes);
    }
  }
  CHECK(gathered == std::vector{Bytes(8 * 4 * 2), Bytes(4 * 4 * 2)});
  CHECK(gemm_of(forward, "out down") == GemmShape{8, 3, 8});
  CHECK(gemm_of(forward_ops(ops, {.tokens = 8}), "out down") == GemmShape{2 * 8, 3, 8});
}

TEST_CASE("a layer that predicts joins each stream and the embedding by matrices of its own") {
  Model model = compressed_model();
  model.predict_layers = 1;
  model.predict_like = 0;
  const TensorOps ops = predict_of(model);
  // Norms 2 * 8, 8*8 for all streams, 8*8, the layer, streams joined, final norm.
  CHECK(weights_of(ops) == 16 + 64 + 64 + 964 + 35 + 8);
  const LocalTokens local{.tokens = 4};
  CHECK(gemm_of(forward_ops(ops, local), "predict") == GemmShape{2 * 4, 8, 8});
  CHECK(gemm_of(backward_ops(ops, local), "d predict weight") == GemmShape{8, 8, 2 * 4});
  CHECK(ModelLayers(model, StepKind::train).predict_kind == 0);
}

TEST_CASE("DeepSeek-V4-Flash has the weights and FLOPs that torchtitan counts") {
  // pytorch/torchtitan #4441: with the layer that predicts, 290,942,278,866 weights, among which
  // corrections of the gates' scores are none, and 92,762,352,876 FLOPs a token of 4,096 in
  // training: 512 picked entries and 128 keys of a window for every query, where the first ones
  // have fewer, and backward scores of all entries, not of those picked; 1.5 * 10^9 more.
  const Model model =
      ModelLibrary(test::source_path("models")).load("deepseek-v4-flash", "--model");
  CHECK(model.parameters() - 40 * 256 + weights_of(predict_of(model)) == 290'942'278'866);
  const ModelFlops flops = model_flops(model, {.seq = 4096, .mask = model.mask.over(4096)});
  // Of 21 layers 128 picks and 1,024 - 384 scores less, of 44 (128 * 127 / 2) / 4096 keys.
  constexpr double fewer = 21.0 * (6 * 64 * 1024 * 128 + 4 * 8192 * (1024 - 384)) +
                           44 * 6 * 64 * 1024 * (64.0 * 127 / 4096);
  CHECK(flops.full.value() / 4096 + fewer == Approx(92'762'352'876).epsilon(0.0005));
}

TEST_CASE("at a million tokens DeepSeek-V4-Flash computes and keeps a tenth of V3.2") {
  // arXiv:2606.19348: 10 % of the FLOPs of a token and 7 % of the cache, in numbers of 8 and 4
  // bits; here all are of 16, and an indexer's scores count whole.
  const ModelLibrary models(test::source_path("models"));
  const Model v4 = models.load("deepseek-v4-flash", "--model");
  const Model v32 = models.load("deepseek-v3.2", "--model");
  constexpr std::int64_t cached = 1'000'000;
  const auto flops = [&](const Model& model) {
    return model_flops(
               model,
               {.seq = 1, .mask = model.mask.over(1), .step = StepKind::prefill, .cached = cached})
        .causal_halved.value();
  };
  CHECK(flops(v4) / flops(v32) == Approx(0.12).epsilon(0.03));
  const auto bytes = [&](const Model& model) {
    double sum = 0;
    for (const LayerRun& run : layer_runs(model)) {
      sum +=
          static_cast<double>(run.layers) * cached_bytes(run.ops, {.tokens = cached}).as_double();
    }
    return sum;
  };
  CHECK(bytes(v4) / bytes(v32) == Approx(0.08).epsilon(0.03));
}
