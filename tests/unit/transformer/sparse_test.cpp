// Layers whose attention meets picked keys: operations, weights, FLOPs and kept bytes by hand.
#include "tests/support/catch.hpp"
#include "tests/unit/transformer/tiny_model.hpp"
#include "transformer/activations.hpp"
#include "transformer/layer_kernels.hpp"
#include "transformer/model_flops.hpp"

#include <string>

using namespace spp;
using Catch::Approx;

namespace {

/// 4 heads of 3 + 2 and values of 3 over latents of 6 and 5; an indexer of 2 heads of 4.
Model sparse_model() {
  Model model = test::tiny_model();
  model.layers = 1;
  model.q_heads = model.kv_heads = 4;
  model.head_dim = 5;
  model.latent = {.q_rank = 6, .kv_rank = 5, .nope_dim = 3, .rope_dim = 2, .value_dim = 3};
  model.indexer = Indexer{.heads = 2, .dim = 4, .keys = 3};
  return model;
}

const LayerOp& named(const std::vector<LayerOp>& ops, std::string_view name) {
  const auto at = std::ranges::find(ops, name, [](const LayerOp& op) { return to_string(op); });
  REQUIRE(at != ops.end());
  return *at;
}

}  // namespace

TEST_CASE("a layer with an indexer weighs latent attention and the indexer") {
  const Model model = sparse_model();
  Model dense = model;
  dense.indexer.reset();
  const std::int64_t h = model.hidden;
  // index q 6 * 8, index k h * 4, its norm 2 * 4, weights of heads h * 2.
  CHECK(model.layer_parameters() == dense.layer_parameters() + 48 + 4 * h + 8 + 2 * h);
  CHECK_FALSE(layer_runs(model).front().attends);
  CHECK(layer_weights(model).front().kind == "sparse attention");
}

TEST_CASE("products head by head have the FLOPs of their own parts alone") {
  const TensorOps ops = layer_runs(sparse_model()).front().ops;
  const LocalTokens local{.tokens = 7};
  const auto forward = forward_ops(ops, local);
  CHECK(std::get<GemmShape>(named(forward, "q to latent").work) == GemmShape{7 * 4, 5, 3});
  CHECK(std::get<GemmShape>(named(forward, "latent to v").work) == GemmShape{7 * 4, 3, 5});
  const auto backward = backward_ops(ops, local);
  CHECK(std::get<GemmShape>(named(backward, "d q to latent input").work) == GemmShape{7 * 4, 3, 5});
  CHECK(std::get<GemmShape>(named(backward, "d q to latent weight").work) ==
        GemmShape{4 * 3, 5, 7});
}

TEST_CASE("tensor ranks share heads, and each has the whole indexer") {
  const TensorOps ops = layer_runs(sparse_model()).front().ops;
  const LayerSplit split{.tensor = 2};
  const auto op = [&](std::string_view name) {
    return *std::ranges::find(ops.ops, name, &TensorOp::name);
  };
  CHECK(weights_of(op("q to latent"), ops, split) == 2 * 3 * 5);
  CHECK(weights_of(op("index q"), ops, split) == 6 * 8);
  const auto forward = forward_ops(ops, {.tokens = 8, .split = split});
  CHECK(std::get<GemmShape>(named(forward, "q to latent").work) == GemmShape{8 * 2, 5, 3});
  CHECK(std::get<GemmShape>(named(forward, "index q").work) == GemmShape{8, 8, 6});
  // Its inputs are gathered once, and get no gradient.
  CHECK(std::get<LayerTransfer>(named(forward, "index k all_gather").work).kind ==
        CommKind::all_gather);
  for (const LayerOp& gradient : backward_ops(ops, {.tokens = 8, .split = split})) {
    INFO(to_string(gradient));
    const bool indexer = gradient.name.starts_with("index");
    CHECK_FALSE((indexer && gradient.role == KernelRole::input_gradient));
  }
}

TEST_CASE("a model's FLOPs count what is picked, and scores of all that is seen") {
  Model sparse = sparse_model();
  const ModelWork work{.seq = 8, .mask = {}, .step = StepKind::prefill};
  const double with = model_flops(sparse, work).causal_halved.value();
  sparse.indexer->keys = 1;
  const double fewer = model_flops(sparse, work).causal_halved.value();
  // Queries 1 and 2 see 1 and 2 keys, six see 3: 21 pairs instead of 8, of heads 7 and 5 wide.
  CHECK(with - fewer == Approx((21 - 8) * 4 * 2 * (7 + 5)));
  sparse.indexer->heads = 3;
  const double more = model_flops(sparse, work).causal_halved.value();
  // 8 * 8 / 2 pairs of 4 numbers, a fourth of index q and of the weights of heads.
  CHECK(more - fewer == Approx(2 * 4 * 32 + 2 * 8 * (6 * 4 + sparse.hidden)));
}

TEST_CASE("picks take 32 bits a key and token, and their numbers have no gradient") {
  const TensorOps ops = layer_runs(sparse_model()).front().ops;
  Model more = sparse_model();
  more.indexer->keys += 10;
  const TensorOps wider = layer_runs(more).front().ops;
  const LocalTokens local{.tokens = 6};
  CHECK(kept_bytes(wider, local, {}) - kept_bytes(ops, local, {}) == Bytes(10 * 4 * 6));
  CHECK(working_bytes(wider, local, {}) == working_bytes(ops, local, {}));
}
