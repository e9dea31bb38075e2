// Layers of linear attention: operations, weights, FLOPs, kept bytes and caches added up by hand.
#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/transformer/tiny_model.hpp"
#include "transformer/activations.hpp"
#include "transformer/layer_kernels.hpp"
#include "transformer/model_flops.hpp"

#include <string>

using namespace spp;
using spp::test::tiny_model;

namespace {

constexpr LocalTokens two_of_three{.tokens = 3, .batch = 2};

/// Keys 2 x 3 wide, values 4 x 2: channels of the convolution 6 + 6 + 8 = 20.
Model tiny_linear(StateRule rule) {
  Model model = tiny_model();
  model.linear = LinearLayers{.scan = {.rule = rule,
                                       .key_heads = 2,
                                       .key_dim = 3,
                                       .value_heads = 4,
                                       .value_dim = 2,
                                       .chunk = rule == StateRule::mamba2 ? 8 : 64},
                              .conv_bias = rule == StateRule::mamba2};
  model.blocks = {{.mixer = Mixer::linear, .feed = Feed::none}, {}};
  return model;
}

TensorOps linear_ops(StateRule rule) { return layer_runs(tiny_linear(rule)).front().ops; }

std::string names_of(const std::vector<LayerOp>& ops) {
  std::string names;
  for (const LayerOp& op : ops) {
    names += (names.empty() ? "" : ", ") + to_string(op);
  }
  return names;
}

const ScanKernel& scan_in(const std::vector<LayerOp>& ops) {
  for (const LayerOp& op : ops) {
    if (const auto* scan = std::get_if<ScanKernel>(&op.work)) {
      return *scan;
    }
  }
  throw InternalError("no scan");
}

}  // namespace

TEST_CASE("a gated DeltaNet layer is its projection, convolution, gates, scan and gated norm") {
  const TensorOps ops = linear_ops(StateRule::gated_delta);
  // norm 8, in 8 * (2*6 + 2*8 + 2*4), convolution 20 * 4, A_log and dt_bias 2*4, norm 2, out 8*8.
  CHECK(weights_of(ops) == 8 + 8 * 36 + 80 + 8 + 2 + 64);
  const std::vector<LayerOp> forward = forward_ops(ops, two_of_three);
  CHECK(
      names_of(forward) ==
      "norm 1, linear in, short convolution, linear gates, l2 norm, gated delta rule, gated norm, "
      "linear out, residual 1");
  // GEMMs 2 * 6 * 8 * (36 + 8); 6 tokens of 4 heads: 2 * 64 (3*3 + 2*2) + 6 * 3 * 2.
  CHECK(flops_of(forward) == FlopCount(2 * 6 * 8 * 44 + 6 * 4 * (128 * 13 + 36)));
  const std::vector<LayerOp> backward = backward_ops(ops, two_of_three);
  CHECK(flops_of(backward) == 2 * flops_of(forward));
  CHECK(scan_in(backward).phase == Phase::backward);
}

TEST_CASE("a gated DeltaNet layer keeps what its kernels read") {
  // A row: x 16 and its 1/rms 4, normed 16, before the convolution 40, a and b 16, normed q and k
  // 24 with two heads' 1/norm each 16, v 16, decay 16, beta 8, triangles 4 * 64 * 2, output 16 and
  // gate 16 with 4 heads' 1/rms 16, gated 16.
  constexpr std::int64_t row =
      16 + 4 + 16 + 40 + 16 + 24 + 16 + 16 + 16 + 8 + 512 + 16 + 16 + 16 + 16;
  const TensorOps ops = linear_ops(StateRule::gated_delta);
  CHECK(kept_bytes(ops, two_of_three, {}) == Bytes(6 * row));
  CHECK(kept_bytes(ops, two_of_three, {.kind = Recompute::full}) == Bytes(6 * 16));
}

TEST_CASE("what linear attention caches does not grow with the sequence") {
  const TensorOps ops = linear_ops(StateRule::gated_delta);
  // Of each sequence 4 states of 3 x 2 in fp32, 3 tokens of 20 channels in 16 bits.
  CHECK(cached_bytes(ops, two_of_three) == Bytes(2 * (4 * 24 + 2 * 60)));
  LocalTokens longer = two_of_three;
  longer.tokens = 300;
  CHECK(cached_bytes(ops, longer) == cached_bytes(ops, two_of_three));
}

TEST_CASE("a Mamba2 layer has groups of keys and queries, and one gate a head") {
  const TensorOps ops = linear_ops(StateRule::mamba2);
  // norm 8, in 8 * (2*6 + 2*8 + 4), convolution 20 * (4 + 1), A_log, D, dt_bias 3*4, norm 8, out.
  CHECK(weights_of(ops) == 8 + 8 * 32 + 100 + 12 + 8 + 64);
  const std::vector<LayerOp> forward = forward_ops(ops, two_of_three);
  CHECK(
      names_of(forward) ==
      "norm 1, linear in, short convolution, state-space scan, gated norm, linear out, residual 1");
  // Kept of a token: norm 8 and a number in fp32, in 8, convolution 20, scan 4 + 8, gated norm 8
  // and a number of each group, out 8; of what the convolution gives nothing.
  CHECK(kept_bytes(ops, {.tokens = 1}, {}) == Bytes(2 * (8 + 8 + 20 + 4 + 8 + 8 + 8) + 4 * 3));
  // 6 tokens: 4 heads of 4 * 2 * 3 + 8 * 2, 2 groups of 8 * 3.
  CHECK(scan_in(forward).flops() == FlopCount(6 * (4 * (24 + 16) + 2 * 24)));
}

TEST_CASE("tensor ranks share linear attention by heads") {
  LocalTokens local = two_of_three;
  local.split.tensor = 2;
  const TensorOps ops = linear_ops(StateRule::gated_delta);
  const std::vector<LayerOp> forward = forward_ops(ops, local);
  CHECK(names_of(forward) ==
        "norm 1, linear in all_gather, linear in, short convolution, linear gates, l2 norm, gated "
        "delta rule, gated norm, linear out, linear out reduce_scatter, residual 1");
  CHECK(scan_in(forward).scan.value_heads == 2);
  CHECK(scan_in(forward).scan.key_heads == 1);
  CHECK(scan_in(forward).flops() == FlopCount(6 * 2 * (128 * 13 + 36)));
  // norms, A_log and dt_bias are whole on each rank.
  CHECK(weights_of(ops, local.split) == 8 + 8 * 18 + 40 + 8 + 2 + 32);
}

TEST_CASE("a hybrid model's layers take turns, and only attention counts pairs of tokens") {
  const Model model = tiny_linear(StateRule::gated_delta);
  const std::vector<LayerRun> runs = layer_runs(model);
  REQUIRE(runs.size() == 2);
  CHECK_FALSE(runs[0].attends);
  CHECK(runs[1].attends);
  CHECK(layer_weights(model)[0].kind == "linear attention");
  CHECK(layer_weights(model)[0].mlp == "none");
  CHECK(layer_weights(model)[1].mlp == "dense");
  // Twice the tokens: twice the linear layer's FLOPs, four times the pairs of the other one.
  const auto at = [&](std::int64_t seq) {
    const ModelFlops flops = model_flops(model, {.seq = seq});
    return flops.full.value();
  };
  const double pairs = 3 * 4.0 * 2 * 4;  // forward and backward, 4 D a pair, 4 heads
  CHECK(at(16) - 2 * at(8) == Catch::Approx(pairs * (256 - 2 * 64)));
}

TEST_CASE(
    "attention may have a gate on its output, experts work on latents and gate the shared one") {
  Model model = tiny_model();
  const std::int64_t plain = model.layer_parameters();
  model.attention_gate = true;
  CHECK(model.layer_parameters() == plain + 8 * 8);
  model.attention_gate = false;
  model.experts = {.count = 4, .per_token = 2, .ffn = 6, .shared = 1, .shared_ffn = 6};
  const std::int64_t wide = model.layer_parameters();
  model.experts.shared_gate = true;
  CHECK(model.layer_parameters() == wide + 8);
  model.experts.shared_gate = false;
  model.experts.latent = 5;
  // Experts of 3 * 5 * 6 instead of 3 * 8 * 6; down and up 2 * 8 * 5.
  CHECK(model.layer_parameters() == wide - 4 * 3 * 3 * 6 + 80);
}
