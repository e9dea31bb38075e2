// Mirrors one header, hence one file.
#include "step/memory.hpp"

#include "tests/support/catch.hpp"
#include "tests/unit/step/one_gpu.hpp"
#include "transformer/activations.hpp"

using namespace spp;
using spp::test::TinyStep;

namespace {

constexpr std::int64_t weights = 1352;
constexpr std::int64_t mine = 338;  // a quarter of them
constexpr std::int64_t layer = 592;
constexpr std::int64_t words = 10;
constexpr std::int64_t rows = 6;

/// 2 sequences of 12 tokens over a ring of 4: 6 rows on each rank.
StepPlan ring_of_4(int zero) { return {.attention = {.ring = 4}, .micro_batch = 2, .zero = zero}; }

MemoryBytes with_zero(int stage) { return TinyStep().memory(ring_of_4(stage)).at(0); }

}  // namespace

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
  for (const MemoryBytes& memory : {one, two, three}) {
    CHECK(memory.activations == none.activations);
  }
}

TEST_CASE(
    "data-parallel ranks share states like those of a sequence, and groups bound who shares") {
  StepPlan plan{.data = 4, .micro_batch = 2, .zero = 1};
  CHECK(TinyStep().memory(plan).at(0).optimizer == Bytes(mine * 12));
  plan.zero_group = 2;
  CHECK(TinyStep().memory(plan).at(0).optimizer == Bytes(2 * mine * 12));
}

TEST_CASE("less is kept the more is computed again") {
  StepPlan plan = ring_of_4(0);
  const Bytes none = TinyStep().memory(plan).at(0).activations;
  plan.recompute.kind = Recompute::selective;
  const Bytes selective = TinyStep().memory(plan).at(0).activations;
  plan.recompute.kind = Recompute::full;
  const Bytes full = TinyStep().memory(plan).at(0).activations;
  CHECK(selective < none);
  CHECK(full < selective);
}

TEST_CASE("stages hold their layers, and the first one the micro-batches on their way") {
  // A layer each; the first has the embedding's 80 weights, the last the head's 88.
  StepPlan plan{.pipeline = 2, .micro_batch = 1, .micro_batches = 4};
  const std::vector<MemoryBytes> stages = TinyStep().memory(plan);
  REQUIRE(stages.size() == 2);
  CHECK(stages[0].parameters == Bytes((layer + 80) * 2));
  CHECK(stages[1].parameters == Bytes((layer + 88) * 2));
  CHECK(stages[0].logits == Bytes(0));
  CHECK(stages[1].logits == Bytes(12 * words * 6));
  plan.micro_batches = 1;
  const std::vector<MemoryBytes> alone = TinyStep().memory(plan);
  // 1F1B: two micro-batches on their way in the first stage, one in the last.
  const TinyStep tiny;
  const TensorOps ops = layer_of(tiny.model);
  CHECK(stages[0].activations - alone[0].activations >=
        kept_bytes(ops, {.tokens = 12}, plan.recompute));
  CHECK(stages[1].activations == alone[1].activations);
  CHECK(fullest(stages).total() == std::max(stages[0].total(), stages[1].total()));
}

// What an allocator holds beside tensors fills up the device: totals tie where the device is full.
TEST_CASE("the fullest stage is the one whose tensors need most") {
  const std::vector<MemoryBytes> stages{{.parameters = Bytes(80), .process = Bytes(20)},
                                        {.parameters = Bytes(95), .process = Bytes(5)}};
  CHECK(fullest(stages).tensors() == Bytes(95));
}

TEST_CASE("what predicts a further token has tables of its own where its stage has none") {
  TinyStep tiny;
  tiny.model.predict_layers = 1;
  constexpr std::int64_t predict = 744;
  CHECK(tiny.memory({.micro_batch = 1}).at(0).parameters == Bytes((weights + predict) * 2));
  // And a loss, whose logits wait for the backward beside those of the other one's peak.
  const Bytes two_losses = tiny.memory({.micro_batch = 1}).at(0).logits;
  tiny.model.predict_layers = 0;
  CHECK(two_losses == tiny.memory({.micro_batch = 1}).at(0).logits * (6 + 4) / 6);
  tiny.model.predict_layers = 1;
  // Both layers on the first stage: the last one has head and prediction, and a copy of the table.
  const StepPlan plan{.pipeline = 2, .micro_batch = 1, .micro_batches = 4};
  const std::vector<MemoryBytes> stages = tiny.memory(plan);
  CHECK((stages[0].parameters + stages[1].parameters) == Bytes((weights + predict + 80) * 2));
}

TEST_CASE("a tied table lies on the first stage and on the last") {
  TinyStep tiny;
  tiny.model.tied_embeddings = true;
  const StepPlan plan{.pipeline = 2, .micro_batch = 1, .micro_batches = 4};
  const std::vector<MemoryBytes> stages = tiny.memory(plan);
  CHECK(stages[0].parameters == Bytes((layer + 80) * 2));
  CHECK(stages[1].parameters == Bytes((layer + 88) * 2));
  CHECK(tiny.memory({.micro_batch = 1}).at(0).parameters == Bytes((2 * layer + 88) * 2));
}

TEST_CASE("tensor parallelism halves matrices, not norms") {
  StepPlan plan{.tensor = 2};
  // Of a layer 576 of matrices and 16 of norms; embedding and head 80 each, the final norm 8.
  CHECK(TinyStep().memory(plan).at(0).parameters == Bytes(2 * (2 * (288 + 16) + 40 + 40 + 8)));
}

TEST_CASE("a prefill has no gradients, and the logits of one token") {
  TinyStep tiny;
  tiny.request.kind = StepKind::prefill;
  const MemoryBytes bytes = tiny.memory(ring_of_4(0)).at(0);
  CHECK(bytes.gradients == Bytes(0));
  CHECK(bytes.optimizer == Bytes(0));
  CHECK(bytes.logits == Bytes(2 * words * 6));
}

TEST_CASE("a prefill in fewer bits has the weights of its GEMMs in as many, training does not") {
  constexpr std::int64_t matrices = 2 * 576;  // of two layers
  TinyStep tiny;
  tiny.request.kind = StepKind::prefill;
  StepPlan plan = ring_of_4(0);
  CHECK(tiny.memory(plan).at(0).parameters == Bytes(weights * 2));
  plan.format = GemmFormat::fp8;
  CHECK(tiny.memory(plan).at(0).parameters == Bytes((weights - matrices) * 2 + matrices));
  plan.format = GemmFormat::nvfp4;
  CHECK(tiny.memory(plan).at(0).parameters == Bytes((weights - matrices) * 2 + matrices * 9 / 16));
  tiny.request.kind = StepKind::train;
  CHECK(tiny.memory(plan).at(0).parameters == Bytes(weights * 2));
}

TEST_CASE("keys and values in front of a prefill are kept beside its own") {
  TinyStep tiny;
  tiny.request.kind = StepKind::prefill;
  const auto bytes = [&](std::int64_t seq, std::int64_t cached, int ring) {
    tiny.seq = seq;
    tiny.request.cached = cached;
    const StepPlan plan{.attention = {.strategy = "zigzag-ring", .ring = ring}};
    return tiny.memory(plan)[0].activations;
  };
  const Bytes a_token = bytes(12, 1, 1) - bytes(12, 0, 1);
  CHECK(a_token > Bytes(0));
  CHECK(bytes(12, 36, 1) == bytes(12, 0, 1) + 36 * a_token);
  CHECK(bytes(12, 36, 4) == bytes(12, 0, 4) + 9 * a_token);
}

TEST_CASE("the logits are there in bf16 and in fp32") {
  CHECK(with_zero(0).logits == Bytes(rows * words * (2 + 4)));
}

TEST_CASE(
    "logits wait for the backward of each micro-batch in flight, but not of a loss in pieces") {
  constexpr std::int64_t peak = rows * words * (2 + 4);
  constexpr std::int64_t softmax = rows * words * 4;
  TinyStep tiny;
  StepPlan plan = ring_of_4(0);
  plan.pipeline = 2;
  plan.micro_batches = 4;
  const auto logits = [&](std::string_view order) {
    plan.order = order;
    const std::vector<MemoryBytes> stages = tiny.memory(plan);
    CHECK(stages[0].logits == Bytes(0));
    return stages[1].logits;
  };
  CHECK(logits("1f1b") == Bytes(peak));
  CHECK(logits("zero-bubble") == Bytes(peak));
  CHECK(logits("gpipe") == Bytes(peak + 3 * softmax));
  tiny.practice.logit_part.value = 0.5;
  CHECK(logits("gpipe") == Bytes(peak / 2));
}

// Between the halves of a backward: what gradients of weights read, whatever was computed again.
TEST_CASE("recomputation spares nothing of what waits between the halves of a backward") {
  TinyStep tiny;
  StepPlan plan = ring_of_4(0);
  plan.pipeline = 2;
  plan.micro_batches = 4;
  const auto first_stage = [&](std::string_view order, Recompute recompute) {
    plan.order = order;
    plan.recompute.kind = recompute;
    return tiny.memory(plan)[0].activations;
  };
  using enum Recompute;
  const Bytes spared = first_stage("1f1b", none) - first_stage("1f1b", full);
  CHECK(spared > Bytes(0));
  CHECK(first_stage("zero-bubble", none) - first_stage("zero-bubble", full) < spared);
}

TEST_CASE("a loss in pieces holds a piece of the logits and of their gradients") {
  TinyStep tiny;
  tiny.model.vocab = 10000;
  const auto with_part = [&](double part) {
    tiny.practice.logit_part.value = part;
    return tiny.memory(ring_of_4(0)).at(0);
  };
  const MemoryBytes whole = with_part(1);
  const MemoryBytes half = with_part(0.5);
  CHECK(whole.logits - half.logits == Bytes(rows * 10000 * (2 + 4) / 2));
  CHECK(whole.activations - half.activations == Bytes(rows * 10000 * 2 / 2));
}

TEST_CASE("what lies in the host's memory is not on the GPU") {
  StepPlan plan = ring_of_4(0);
  const MemoryBytes here = TinyStep().memory(plan).at(0);
  plan.offload = Offload::optimizer;
  CHECK(TinyStep().memory(plan).at(0).optimizer == Bytes(0));
  CHECK(TinyStep().memory(plan).at(0).gradients == here.gradients);
  plan.zero = 2;  // each rank's part of the gradients lies with the optimizer
  CHECK(TinyStep().memory(plan).at(0).gradients == Bytes(0));
  plan.zero = 0;
  plan.offload = Offload::activations;
  CHECK(TinyStep().memory(plan).at(0).activations <= here.activations);
}

TEST_CASE("a stage that keeps less than two layers' activations takes no more where they move") {
  StepPlan plan{.pipeline = 2, .micro_batch = 1, .micro_batches = 1};  // a layer each
  const std::vector<MemoryBytes> here = TinyStep().memory(plan);
  plan.offload = Offload::activations;
  const std::vector<MemoryBytes> moved = TinyStep().memory(plan);
  for (std::size_t stage = 0; stage < here.size(); ++stage) {
    CHECK(moved[stage].activations <= here[stage].activations);
  }
}

TEST_CASE("gradients on their way are of layers and tables that the stage has") {
  StepPlan plan{.data = 2, .pipeline = 2, .micro_batch = 1, .micro_batches = 4, .zero = 2};
  TinyStep tiny;
  tiny.model.vocab = 1000;  // tables are larger than layers
  tiny.model.layers = 4;
  plan.pipeline = 4;
  const std::vector<MemoryBytes> stages = tiny.memory(plan);
  CHECK(stages[0].communication > stages[1].communication);
  CHECK(stages[3].communication > stages[2].communication);
}

TEST_CASE("attention's buffers are in the total, which is the sum of the classes") {
  TinyStep tiny;
  const MemoryBytes without = tiny.memory(ring_of_4(0)).at(0);
  tiny.attention[0].buffers = Bytes(1000);
  const MemoryBytes with = tiny.memory(ring_of_4(0)).at(0);
  CHECK(with.attention_buffers == Bytes(1000));
  CHECK(with.total() == without.total() + Bytes(1000));
}

TEST_CASE("weights of attention wait in every layer, unless they are computed again") {
  TinyStep tiny;
  StepPlan plan = ring_of_4(0);
  tiny.attention[0].buffers = Bytes(1000);
  const auto more = [&](Recompute recompute) {
    plan.recompute.kind = recompute;
    tiny.attention[0].kept = Bytes(0);
    const Bytes without = tiny.memory(plan).at(0).total();
    tiny.attention[0].kept = Bytes(600);
    return tiny.memory(plan).at(0).total() - without;
  };
  CHECK(more(Recompute::none) == Bytes(600));  // of two layers, one of which buffers had
  CHECK(more(Recompute::full) == Bytes(0));
  tiny.model.predict_layers = 1;  // attends, too
  CHECK(more(Recompute::none) == Bytes(1200));
  CHECK(more(Recompute::full) == Bytes(0));
}

TEST_CASE("full recomputation of 60 layers at 256K keeps the 165 GB that users reported") {
  // 60 layers, 5376 wide, 256,000 tokens in bf16 on one GPU.
  Model model = spp::test::tiny_model();
  model.hidden = 5376;
  const TensorOps ops = layer_of(model);
  CHECK(60 * kept_bytes(ops, {.tokens = 256'000}, {.kind = Recompute::full}) ==
        Bytes(165'150'720'000));
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

TEST_CASE("the longest sequence is found in about 40 questions, none of them far beyond it") {
  int asked = 0;
  const auto bytes = [&](std::int64_t seq) {
    ++asked;
    return Bytes(seq);
  };
  CHECK(longest_seq(bytes, {.usable = Bytes(1'000'000'007)}) == 1'000'000'007);
  CHECK(asked <= 40);
  const auto rows = [](std::int64_t seq) {  // whole rows of weights, of many heads
    REQUIRE(seq <= 16 * 49'784);
    return Bytes(32 * seq * seq);
  };
  CHECK(longest_seq(rows, {.usable = Bytes(32LL * 49'784 * 49'784)}) == 49'784);
}

TEST_CASE("kernels that are not fused keep more, layers that run again only while they do") {
  TinyStep tiny;
  StepPlan plan = ring_of_4(0);
  const LocalTokens local = local_tokens(tiny.request, plan, tiny.seq);
  const TensorOps ops = layer_of(tiny.model);
  const auto bytes = [&](Recompute kind, double kept) {
    tiny.practice.kept.value = kept;
    return activation_bytes(ops, local, {.kind = kind}, tiny.practice);
  };
  CHECK(bytes(Recompute::none, 2).kept == 2 * bytes(Recompute::none, 1).kept);
  CHECK(bytes(Recompute::none, 2).working == bytes(Recompute::none, 1).working);
  CHECK(bytes(Recompute::full, 2).kept == bytes(Recompute::full, 1).kept);
  CHECK(bytes(Recompute::full, 2).working == 2 * bytes(Recompute::full, 1).working);
}

TEST_CASE("a tiled MLP has its wide tensors for a tile of rows only") {
  TinyStep tiny;
  tiny.model.ffn = 1600;
  const LocalTokens local{.tokens = 12, .batch = 1};
  const TensorOps ops = layer_of(tiny.model);
  const auto working = [&](double part) {
    tiny.practice.mlp_part.value = part;
    return activation_bytes(ops, local, {.kind = Recompute::full}, tiny.practice).working;
  };
  // gate, up and their product, in 2 bytes, and gradients of two of them
  CHECK(working(1) - working(0) >= 3 * 2 * 12 * 1600);
  CHECK(working(0.25) == 0.25 * working(1) + 0.75 * working(0));
}

TEST_CASE("of activations that are offloaded in part the rest is held") {
  TinyStep tiny;
  tiny.model.layers = 8;
  StepPlan plan;
  const auto held = [&] { return tiny.memory(plan).at(0).activations.as_double(); };
  const double all = held();
  plan.offload = Offload::activations;
  const double none = held();
  CHECK(none < all);
  plan.offloaded = 0.5;
  CHECK(held() == (all + none) / 2);
}

TEST_CASE("gradients in bf16 have a sum beside them, where a stack adds them up so") {
  TinyStep tiny;
  tiny.practice.state_gradient.value = 2;
  tiny.practice.bf16_gradient.value = 4;
  CHECK(tiny.memory(ring_of_4(0)).at(0).gradients == Bytes(weights * (2 + 4)));
  tiny.request.dtype = DType::fp16;
  CHECK(tiny.memory(ring_of_4(0)).at(0).gradients == Bytes(weights * 2));
}

TEST_CASE("an update that copies its part of the gradients has room for them") {
  TinyStep tiny;
  tiny.practice.state_update.value = 6;
  CHECK(tiny.memory(ring_of_4(1)).at(0).communication == Bytes(mine * 6));
  StepPlan offloaded = ring_of_4(1);
  offloaded.offload = Offload::optimizer;
  CHECK(tiny.memory(offloaded).at(0).communication == Bytes(0));
}

TEST_CASE("stages that keep what they gave have room for all that they receive") {
  // 12 tokens, 8 wide, in 2 bytes, of 4 micro-batches: hidden states leave the first stage and
  // their gradients come; hidden states come to the last, and 10 logits a token stay.
  TinyStep tiny;
  tiny.practice.kept_outputs.value = 1;
  const StepPlan plan{.pipeline = 2, .micro_batch = 1, .micro_batches = 4};
  const std::vector<MemoryBytes> stages = tiny.memory(plan);
  CHECK(stages[0].communication == Bytes(4 * 2 * (12 * 8 * 2)));
  CHECK(stages[1].communication == Bytes(4 * (12 * 8 * 2 + 12 * words * 2)));
  CHECK(tiny.memory({.micro_batch = 1}).at(0).communication == Bytes(0));
}

TEST_CASE("a gradient of each shape of weight stays, not of each layer") {
  TinyStep tiny;
  const Bytes without = tiny.memory({.micro_batch = 1}).at(0).gradients;
  tiny.practice.dummy_gradients.value = 1;
  const Bytes of_two = tiny.memory({.micro_batch = 1}).at(0).gradients - without;
  CHECK(of_two > Bytes(0));
  tiny.model.layers = 4;
  CHECK(tiny.memory({.micro_batch = 1}).at(0).gradients - Bytes(4 * (weights + 2 * layer)) ==
        of_two);
}

TEST_CASE("sums that wait for their transfers are the allocator's, and never crowd a plan out") {
  // Two a layer, of 12 rows, 8 wide, in 2 bytes, over two layers.
  TinyStep tiny;
  const StepPlan plan{.tensor = 2, .micro_batch = 1};
  const MemoryBytes before = tiny.memory(plan).at(0);
  tiny.practice.held_sums.value = 1;
  const MemoryBytes after = tiny.memory(plan).at(0);
  CHECK(after.allocator - before.allocator == Bytes(2 * 2 * 12 * 8 * 2 + 12 * 8 * 2));
  CHECK(after.process - before.process == after.allocator - before.allocator);
  CHECK(after.tensors() == before.tensors());
  // Stages wait for messages between forward and backward: all but the last.
  const StepPlan stages{.tensor = 2, .pipeline = 2, .micro_batch = 1, .micro_batches = 4};
  CHECK(tiny.memory(stages)[0].allocator == Bytes(0));
  CHECK(tiny.memory(stages)[1].allocator > Bytes(0));
}

TEST_CASE("RoPE in wide numbers shows in a prefill's peak") {
  TinyStep tiny;
  tiny.request.kind = StepKind::prefill;
  const Bytes fused = tiny.memory(ring_of_4(0)).at(0).activations;
  tiny.practice.position_working.value = 64;
  CHECK(tiny.memory(ring_of_4(0)).at(0).activations > fused);
}

TEST_CASE("planned memory has room for more micro-batches than are on their way") {
  TinyStep tiny;
  const StepPlan plan{.pipeline = 2, .micro_batch = 1, .micro_batches = 4};
  const std::vector<MemoryBytes> on_their_way = tiny.memory(plan);
  tiny.practice.stage_buffers.value = 2;
  const std::vector<MemoryBytes> planned = tiny.memory(plan);
  // Four instead of two of what the first stage keeps of one: a layer and the embedding.
  const double more = (planned[0].activations - on_their_way[0].activations).as_double();
  const TensorOps ops = layer_of(tiny.model);
  CHECK(more >= 2 * kept_bytes(ops, {.tokens = 12}, plan.recompute).as_double());
  CHECK(planned[1].activations == on_their_way[1].activations);
}
