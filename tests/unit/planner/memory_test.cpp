#include "planner/memory.hpp"

#include "tests/support/catch.hpp"
#include "tests/unit/transformer/tiny_model.hpp"

using namespace spp;
using spp::test::tiny_model;

namespace {

constexpr std::int64_t rows = 6;
constexpr std::int64_t weights = 1352;
constexpr std::int64_t mine = 338;  // a quarter of them
constexpr std::int64_t layer = 592;
constexpr std::int64_t words = 10;

/// 6 rows on each of 4 ranks.
MemoryRequest request() { return {.tokens = 3, .batch = 2, .ranks = 4}; }

MemoryBytes with_zero(int stage) {
  MemoryRequest r = request();
  r.zero = stage;
  return memory_of(memory_model(tiny_model(), DType::bf16), r);
}

Bytes activations(Recompute recompute) {
  MemoryRequest r = request();
  r.recompute = recompute;
  return memory_of(memory_model(tiny_model(), DType::bf16), r).activations;
}

}  // namespace

TEST_CASE("activations are those of all layers, one working set, and the final norm's") {
  CHECK(activations(Recompute::none) == Bytes(rows * (2 * 232 + 112 + 32)));
  CHECK(activations(Recompute::selective) == Bytes(rows * (2 * 168 + 176 + 32)));
  CHECK(activations(Recompute::full) == Bytes(rows * (2 * 16 + 328 + 32)));
}

TEST_CASE("ZeRO cuts optimizer, gradients and parameters one after the other") {
  // 1352 weights, 338 on each of 4 ranks.
  const MemoryBytes none = with_zero(0);
  CHECK(none.parameters == Bytes(weights * 2));
  CHECK(none.gradients == Bytes(weights * 4));
  CHECK(none.optimizer == Bytes(weights * 12));
  CHECK(none.communication == Bytes(0));
  const MemoryBytes one = with_zero(1);
  CHECK(one.parameters == none.parameters);
  CHECK(one.gradients == none.gradients);
  CHECK(one.optimizer == Bytes(mine * 12));
  CHECK(one.communication == Bytes(0));
  // A layer's 592 gradients in fp32 are whole until they are reduced.
  const MemoryBytes two = with_zero(2);
  CHECK(two.parameters == none.parameters);
  CHECK(two.gradients == Bytes(mine * 4));
  CHECK(two.communication == Bytes(layer * 4));
  // Two gathered layers besides.
  const MemoryBytes three = with_zero(3);
  CHECK(three.parameters == Bytes(mine * 2));
  CHECK(three.communication == Bytes(layer * 4 + 2 * layer * 2));
}

TEST_CASE("cross-attention's weights are gathered with their layer") {
  // 592 + 192 weights a layer; gathered two of them in bf16, gradients of one in fp32.
  Model model = tiny_model();
  model.kind = ModelKind::dit;
  model.vocab = 0;
  model.cross_tokens = 5;
  MemoryRequest r = request();
  r.zero = 3;
  CHECK(memory_of(memory_model(model, DType::bf16), r).communication ==
        Bytes(2 * 784 * 2 + 784 * 4));
}

TEST_CASE("the text's K and V are kept by every layer, or by the one that runs again") {
  // 5 tokens of 2 sequences, K and V 4 wide each: 10 * 16 B.
  Model model = tiny_model();
  MemoryRequest r = request();
  const auto text = [&] {
    model.cross_tokens = 5;
    const Bytes with = memory_of(memory_model(model, DType::bf16), r).activations;
    ModelMemory without = memory_model(model, DType::bf16);
    without.text_tokens = 0;
    return with - memory_of(without, r).activations;
  };
  CHECK(text() == Bytes(2 * 160));
  r.recompute = Recompute::full;
  CHECK(text() == Bytes(160));
  r.step = StepKind::prefill;
  CHECK(text() == Bytes(160));
}

TEST_CASE("a single rank has nobody to share weights with") {
  MemoryRequest alone = request();
  alone.ranks = 1;
  alone.zero = 3;
  const MemoryBytes bytes = memory_of(memory_model(tiny_model(), DType::bf16), alone);
  CHECK(bytes.parameters == Bytes(weights * 2));
  CHECK(bytes.communication == Bytes(0));
}

TEST_CASE("the logits are there in bf16 and in fp32") {
  CHECK(with_zero(0).logits == Bytes(rows * words * (2 + 4)));
}

TEST_CASE("a prefill has no gradients, a KV cache, and the logits of one token") {
  MemoryRequest prefill = request();
  prefill.step = StepKind::prefill;
  const MemoryBytes bytes = memory_of(memory_model(tiny_model(), DType::bf16), prefill);
  CHECK(bytes.gradients == Bytes(0));
  CHECK(bytes.optimizer == Bytes(0));
  // Working set: the stream 8 and gate, up, product 48: 112 B. Cache: 2 layers of K and V, 32 B.
  CHECK(bytes.activations == Bytes(rows * (112 + 32)));
  CHECK(bytes.logits == Bytes(2 * words * 6));
}

TEST_CASE("the caller's buffers are in the total, which is the sum of the classes") {
  MemoryRequest r = request();
  r.attention_buffers = Bytes(1000);
  r.communication = Bytes(70);
  const MemoryBytes bytes = memory_of(memory_model(tiny_model(), DType::bf16), r);
  CHECK(bytes.attention_buffers == Bytes(1000));
  CHECK(bytes.communication == Bytes(70));
  // 1352 * 18 = 24336, activations 3648, logits 360.
  CHECK(bytes.total() == Bytes(24336 + 3648 + 360 + 1070));
}

TEST_CASE("full recomputation of 60 layers at 256K keeps the 165 GB that users reported") {
  // 60 layers, 5376 wide, 256,000 tokens in bf16 on one GPU.
  Model model = tiny_model();
  model.hidden = 5376;
  const TensorOps layer = layer_of(model);
  CHECK(60 * kept_bytes(layer, {.tokens = 256'000}, {.kind = Recompute::full}) ==
        Bytes(165'150'720'000));
}

TEST_CASE("an absurd request is large, not negative") {
  MemoryRequest absurd = request();
  absurd.tokens = std::int64_t{1} << 40;
  absurd.batch = std::int64_t{1} << 20;
  const MemoryBytes bytes = memory_of(memory_model(tiny_model(), DType::bf16), absurd);
  CHECK(bytes.activations == Bytes(1'000'000'000'000'000'000));
  CHECK(bytes.total() > bytes.activations);
}

TEST_CASE("the longest sequence is the largest multiple of the unit that fits") {
  const auto bytes = [](std::int64_t seq) { return Bytes(100 + 3 * seq); };
  const auto longest = [&](std::int64_t usable, std::int64_t unit, std::int64_t limit) {
    return longest_seq(bytes, {.usable = Bytes(usable), .unit = unit, .limit = limit});
  };
  CHECK(longest(1000, 1, 1 << 20) == 300);  // 100 + 3 * 300 = 1000
  CHECK(longest(999, 1, 1 << 20) == 299);
  CHECK(longest(1000, 7, 1 << 20) == 294);
  CHECK(longest(120, 7, 1 << 20) == 0);
  CHECK(longest(1000, 7, 200) == 196);
  CHECK(longest(1000, 7, 6) == 0);
}

TEST_CASE("the longest sequence is found in about 31 questions") {
  int asked = 0;
  const auto bytes = [&](std::int64_t seq) {
    ++asked;
    return Bytes(seq);
  };
  CHECK(longest_seq(bytes, {.usable = Bytes(1'000'000'007)}) == 1'000'000'007);
  CHECK(asked <= 32);
}
