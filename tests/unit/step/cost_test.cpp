// Mirrors one header, hence one file.
#include "step/cost.hpp"

#include "step/stages.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/step/one_gpu.hpp"

using namespace spp;
using Catch::Approx;
using spp::test::TinyStep;

namespace {

AttentionCost some_attention() {
  AttentionCost cost;
  cost.forward = {.kernels = Seconds(1e-3), .exposed = Seconds(2e-4)};
  cost.backward = {.kernels = Seconds(2e-3), .exposed = Seconds(3e-4)};
  return cost;
}

/// Forward and backward of a list on one rank, attention's as given.
double both(const TinyStep& tiny, const TensorOps& ops, const StepPlan& plan) {
  GroupTimes groups(tiny.cluster);
  const StepLinks links(groups, plan);
  const PassCosts costs{.kernels = &tiny.kernels, .practice = &tiny.practice, .links = &links};
  const LocalTokens local = local_tokens(tiny.request, plan, tiny.seq);
  const AttentionCost* attention = &tiny.attention[0];
  return pass_around(forward_ops(ops, local), costs).time_with(attention).total() +
         pass_around(backward_ops(ops, local), costs).time_with(attention).total();
}

}  // namespace

TEST_CASE("on one rank a step is the sum of its passes, and the optimizer") {
  TinyStep tiny;
  tiny.attention[0] = some_attention();
  const StepPlan plan{.micro_batch = 2, .micro_batches = 3};
  const StepCost cost = tiny.cost(plan);
  const double passes = 2 * both(tiny, layer_of(tiny.model), plan) +
                        both(tiny, first_of(tiny.model), plan) +
                        both(tiny, last_of(tiny.model, StepKind::train), plan);
  // fp32 norm 4 B a weight, Adam 30 B, zeroing 4 B, of 1352 weights.
  const double optimizer =
      tiny.kernels.memory_bound(Bytes(1352 * 38)).count() + 3 * tiny.kernels.launch().count();
  CHECK(cost.total() == Approx(3 * passes + optimizer).epsilon(1e-9));
  CHECK(cost.parts[StepPart::optimizer] == Approx(optimizer).epsilon(1e-9));
  CHECK(cost.parts[StepPart::attention] == Approx(3 * 2 * 3e-3));
  CHECK(cost.parts[StepPart::cp] == Approx(3 * 2 * 5e-4));
  for (const StepPart part :
       {StepPart::tp, StepPart::ep, StepPart::dp, StepPart::pp, StepPart::bubble}) {
    CHECK(cost.parts[part] == Approx(0).margin(1e-12));
  }
  for (const Bytes sent : tiny.sent(plan).by_kind()) {
    CHECK(sent == Bytes(0));
  }
}

TEST_CASE("a layer that predicts a further token is part of a training step") {
  TinyStep tiny;
  tiny.attention[0] = some_attention();
  const StepPlan plan{.micro_batch = 2, .micro_batches = 3};
  const StepCost without = tiny.cost(plan);
  tiny.model.predict_layers = 2;
  const StepCost with = tiny.cost(plan);
  // 744 weights each are updated.
  const double updates = tiny.kernels.memory_bound(Bytes((1352 + 2 * 744) * 38)).count() -
                         tiny.kernels.memory_bound(Bytes(1352 * 38)).count();
  CHECK(with.total() - without.total() ==
        Approx(3 * 2 * both(tiny, predict_of(tiny.model), plan) + updates).epsilon(1e-9));
  tiny.request.kind = StepKind::prefill;
  const double prefill = tiny.cost(plan).total();
  tiny.model.predict_layers = 0;
  CHECK(tiny.cost(plan).total() == prefill);
}

TEST_CASE("layers are dealt out to stages with their ends, or by hand") {
  Model model = TinyStep().model;
  model.layers = 61;
  for (const int stages : {1, 2, 3, 7, 9, 31, 61, 62, 63}) {
    CHECK(can_stage(model, stages, StepKind::train));
  }
  for (const int stages : {4, 16, 32, 64}) {
    CHECK_FALSE(can_stage(model, stages, StepKind::train));
  }
  CHECK(can_stage(model, 4, StepKind::prefill));
  CHECK_FALSE(can_stage(model, 62, StepKind::prefill));
  model.predict_layers = 1;  // DeepSeek-V3's 16 x 2 stages
  CHECK((can_stage(model, 16, StepKind::train) && can_stage(model, 32, StepKind::train) &&
         can_stage(model, 63, StepKind::train)));
  CHECK_FALSE(can_stage(model, 64, StepKind::train));
}

TEST_CASE("layers that predict further tokens stand before the loss head, where that is shorter") {
  Model model = TinyStep().model;
  model.layers = 16;
  model.vocab = 100;  // a head of more than a layer
  model.predict_layers = 1;
  const auto stages = [&](int count) { return stages_of(model, {.pipeline = count}, false, 1); };
  const auto layers_of = [](const std::vector<Stage>& all) {
    std::vector<std::int64_t> layers;
    for (const Stage& stage : all) {
      layers.push_back(stage.layers);
    }
    return layers;
  };
  const std::vector<Stage> alone = stages(1);
  CHECK((alone[0].layers == 16 && alone[0].predictions == 1 && alone[0].ends));
  const std::vector<Stage> few = stages(2);
  CHECK((few[1].predictions == 1 && few[1].ends && few[1].layers < few[0].layers));
  const std::vector<Stage> many = stages(8);
  CHECK((many[7].ends && many[7].layers == 0 && many[7].predictions == 0));
  CHECK((many[6].predictions == 1 && many[6].layers < many[0].layers));
  CHECK(std::ranges::max(layers_of(many)) == 3);
}

TEST_CASE("what a step has beside its layers takes what a calibration timed") {
  TinyStep tiny;
  tiny.attention[0] = some_attention();
  const StepPlan plan;  // 12 tokens, 10 words, 1352 weights
  auto& rows = tiny.machine.gpu.generation.layer.rows;
  const auto elementwise = [&](bool backward) {
    const TensorOps ops = last_of(tiny.model, StepKind::train);
    const LocalTokens local = local_tokens(tiny.request, plan, tiny.seq);
    GroupTimes groups(tiny.cluster);
    const StepLinks links(groups, plan);
    return pass_around(backward ? backward_ops(ops, local) : forward_ops(ops, local),
                       {.kernels = &tiny.kernels, .practice = &tiny.practice, .links = &links})
        .time.parts[StepPart::elementwise];
  };
  const auto launch = tiny.kernels.launch().count();
  const auto streamed = [&](std::int64_t bytes) {
    return tiny.kernels.memory_bound(Bytes(bytes)).count();
  };
  // Final norm; logits to fp32, their maximum, softmax; of gradients all but the maximum.
  const double norm = streamed(12 * 8 * 2 * 2) + launch;
  const double norm_gradient = streamed(12 * 8 * 2 * 3) + launch;
  CHECK(elementwise(false) ==
        Approx(norm + streamed(12 * 10 * (6 + 4 + 8)) + 3 * launch).epsilon(1e-9));
  CHECK(elementwise(true) ==
        Approx(norm_gradient + streamed(12 * 10 * (8 + 6)) + 2 * launch).epsilon(1e-9));

  const auto timed = [](double startup, double rate) {
    return StreamSpec{.startup = {.value = Seconds(startup), .spread = 0, .source = "test"},
                      .rate = {.value = Bandwidth(rate), .spread = 0, .source = "test"}};
  };
  rows[{.function = LayerFunction::word_sums}] = timed(1, 100);
  rows[{.function = LayerFunction::word_sums, .backward = true}] = timed(2, 200);
  rows[{.function = LayerFunction::adam}] = timed(3, 300);
  // One kernel reads the logits, one reads them and writes their gradient, all of 16 bits.
  CHECK(elementwise(false) == Approx(norm + 1 + 240 / 100.0).epsilon(1e-9));
  CHECK(elementwise(true) == Approx(norm_gradient + 2 + 480 / 200.0).epsilon(1e-9));
  // Norm and zeroing are streamed.
  CHECK(tiny.cost(plan).parts[StepPart::optimizer] ==
        Approx(3 + 1352 * 30 / 300.0 + streamed(1352 * 8) + 2 * launch).epsilon(1e-9));
}

TEST_CASE("two equal stages of 1F1B wait for one micro-batch of the other") {
  TinyStep tiny;
  tiny.attention[0].forward.kernels = Seconds(1);  // all else is small
  tiny.attention[0].backward.kernels = Seconds(2);
  const StepCost cost = tiny.cost({.pipeline = 2, .micro_batches = 4});
  CHECK(cost.total() == Approx((4 + 1) * 3).epsilon(1e-3));
  CHECK(cost.parts[StepPart::bubble] == Approx(3).epsilon(1e-3));
}

TEST_CASE(
    "kernels stand at each exchange of routed tokens, unless they are counted on the device") {
  TinyStep tiny;
  tiny.model.experts = {.count = 4, .per_token = 2, .ffn = 6};
  const StepPlan plan{.data = 2, .expert = 2, .micro_batches = 3};
  const double without = tiny.cost(plan).total();
  tiny.practice.host_counts.value = Seconds(1);
  // Rows and their weights go, and rows come back; the same backward; in 2 layers, 3 times.
  CHECK(tiny.cost(plan).parts[StepPart::launch] == Approx(2 * 3 * 6).epsilon(1e-3));
  StepPlan gathered = plan;  // grouped GEMMs have to be told as well
  gathered.to_experts = Dispatcher::all_gather;
  CHECK(tiny.cost(gathered).parts[StepPart::launch] == Approx(2 * 3 * 6).epsilon(1e-3));
  tiny.practice.device_counts.value = 16;
  CHECK(tiny.cost(plan).total() > without + 1);
  tiny.practice.device_counts.value = 8;  // the GPUs of a node
  CHECK(tiny.cost(plan).total() == Approx(without));
}

TEST_CASE("an inference engine's exchanges take the host its own time, and no kernel stands") {
  TinyStep tiny;
  tiny.model.experts = {.count = 4, .per_token = 2, .ffn = 6};
  tiny.request.kind = StepKind::prefill;
  const StepPlan plan{.data = 2, .expert = 2, .zero = 0};
  const double without = tiny.cost(plan).total();
  tiny.practice.host_counts.value = tiny.practice.host_exchange.value = Seconds(1);
  CHECK(tiny.cost(plan).total() == Approx(without));
  tiny.practice.served_exchange.value = Seconds(1);
  // Rows and their weights go, and rows come back; in 2 layers.
  CHECK(tiny.cost(plan).parts[StepPart::launch] == Approx(2 * 3).epsilon(1e-3));
}

TEST_CASE("the host stands at tensor ranks' transfers by the nodes of theirs and of the stages") {
  TinyStep tiny;
  tiny.model.hidden = 64;
  const auto launch = [&](const StepPlan& plan) { return tiny.cost(plan).parts[StepPart::launch]; };
  const StepPlan inside{.tensor = 2, .data = 4, .pipeline = 2};    // stages 8 GPUs apart
  const StepPlan together{.tensor = 2, .data = 1, .pipeline = 2};  // all in a node
  tiny.practice.host_tensor_rank.value = Seconds(1);
  const double transfers = launch(inside) / 2;  // of a stage's micro-batch, 1 s for each of 2 ranks
  CHECK(transfers == Approx(std::round(transfers)).margin(1e-2));
  CHECK(transfers > 3.5);
  CHECK(launch(together) == Approx(0).margin(1e-3));
  tiny.practice.host_tensor_node.value = Seconds(1);
  CHECK(launch(together) == Approx(0).margin(1e-3));
}

TEST_CASE("copied hidden states travel whole, or in parts that the next stage gathers") {
  TinyStep tiny;
  tiny.model.hidden = 1 << 16;
  // Two of a node and two of the next: a message crosses, what is gathered does not.
  StepPlan plan{.tensor = 8, .tensor_sequence = false, .pipeline = 2};
  const StepCost whole = tiny.cost(plan);
  SentBytes sent_whole = tiny.sent(plan);
  tiny.practice.messages_gathered.value = 1;
  const StepCost parts = tiny.cost(plan);
  SentBytes sent_in_parts = tiny.sent(plan);
  CHECK(sent_in_parts.at(StepAxis::stages, CommKind::send_recv).value() * 8 ==
        sent_whole.at(StepAxis::stages, CommKind::send_recv).value());
  CHECK(sent_whole.at(StepAxis::tensor, CommKind::all_gather) == Bytes(0));
  CHECK(sent_in_parts.at(StepAxis::tensor, CommKind::all_gather) > Bytes(0));
  CHECK(parts.total() < whole.total());
  plan.tensor_sequence = true;  // parts as they are
  tiny.practice.messages_gathered.value = 0;
  const double split = tiny.cost(plan).total();
  tiny.practice.messages_gathered.value = 1;
  CHECK(tiny.cost(plan).total() == split);
}

TEST_CASE("messages between stages under different leaves share the uplinks") {
  TinyStep tiny;
  const auto message = [&](double oversubscription, int pipeline) {
    MachineSpec machine = tiny.machine;
    machine.fabric.nodes_per_leaf->value = 1;
    machine.fabric.oversubscription.value = oversubscription;
    const sim::Cluster cluster(machine, 2, 16);
    GroupTimes groups(cluster);
    const StepLinks links(groups, {.data = 16 / pipeline, .pipeline = pipeline});
    const int last_of_node = pipeline / 2 - 1;
    return links.message(Bytes(1'000'000'000), last_of_node).count();
  };
  CHECK(message(4, 2) == Approx(4 * message(1, 2)).epsilon(0.02));
  CHECK(message(1, 16) == message(1, 2));
  CHECK(message(8, 16) == Approx(message(1, 2)).epsilon(0.02));  // one of a node's ranks sends
}

TEST_CASE("micro-batches add their gradients where an offloaded optimizer keeps them") {
  TinyStep tiny;
  tiny.practice.host_add.value = Seconds(1);
  const auto launch = [&](int zero, std::int64_t micro_batches, int stages = 1) {
    const StepPlan plan{.data = 4,
                        .pipeline = stages,
                        .micro_batches = micro_batches,
                        .zero = zero,
                        .offload = Offload::optimizer};
    return tiny.cost(plan).parts[StepPart::launch];
  };
  // 1352 weights, a quarter on each of 4 ranks, whose node's CPUs add all of them.
  CHECK(launch(3, 3) == Approx(3 * 1352).epsilon(1e-3));
  CHECK(launch(3, 1) == Approx(0).margin(1e-3));
  CHECK(launch(1, 3) == Approx(0).margin(1e-3));  // on the GPU until the step's end
  CHECK(launch(2, 3, 2) == Approx(0).margin(1e-3));
}

TEST_CASE("recomputation runs attention's forward again, unless its output is kept") {
  TinyStep tiny;
  tiny.attention[0] = some_attention();
  StepPlan plan;
  const double none = tiny.cost(plan).parts[StepPart::attention];
  plan.recompute.kind = Recompute::full;
  CHECK(tiny.cost(plan).parts[StepPart::attention] == Approx(none + 2 * 1e-3));
  plan.recompute.kind = Recompute::selective;
  CHECK(tiny.cost(plan).parts[StepPart::attention] == Approx(none));
}

TEST_CASE("replicas send their gradients, and under ZeRO 1 gather their parameters") {
  const TinyStep tiny;
  const auto sent = [&](int zero, CommKind kind) {
    return tiny.sent({.data = 4, .zero = zero}).by_kind().at(static_cast<std::size_t>(kind));
  };
  // 1352 weights: fp32 gradients, three quarters of them, twice in an all-reduce; 16-bit
  // parameters.
  CHECK(sent(0, CommKind::all_reduce) == Bytes(2 * 1352 * 4 * 3 / 4));
  CHECK(sent(0, CommKind::all_gather) == Bytes(0));
  CHECK(sent(1, CommKind::reduce_scatter) == Bytes(1352 * 4 * 3 / 4));
  CHECK(sent(1, CommKind::all_gather) == Bytes(1352 * 2 * 3 / 4));
  // Forward and backward, but for loss head and final norm, which are still there.
  CHECK(sent(3, CommKind::all_gather) == Bytes((2 * 1352 - 88) * 2 * 3 / 4));
  const SentBytes all = tiny.sent({.data = 4, .zero = 1});
  CHECK(all.along(StepAxis::weights) == all.by_kind());
}

TEST_CASE(
    "gradients of which there are no shards are summed up once a step, under ZeRO 2 and 3, too") {
  const TinyStep tiny;
  for (const int zero : {2, 3}) {
    const auto sent = [&](int group, int micro_batches) {
      const SentBytes all =
          tiny.sent({.data = 4, .micro_batches = micro_batches, .zero = zero, .zero_group = group});
      return all.along(StepAxis::replicas).at(static_cast<std::size_t>(CommKind::all_reduce));
    };
    CHECK(sent(1, 1) == Bytes(2 * 1352 * 4 * 3 / 4));
    CHECK(sent(1, 3) == sent(1, 1));
    CHECK(sent(2, 3) == 3 * sent(2, 1));
  }
  const auto exposed = [&](int zero) {
    return tiny.cost({.data = 4, .micro_batches = 3, .zero = zero, .zero_group = 1})
        .parts[StepPart::dp];
  };
  CHECK(exposed(2) == exposed(1));
}

TEST_CASE("stages of a pipeline clear whole gradients, whatever ZeRO cuts") {
  const TinyStep tiny;
  const auto optimizer = [&](int stages, int zero) {
    return tiny.cost({.data = 4, .pipeline = stages, .micro_batches = 2, .zero = zero})
        .parts[StepPart::optimizer];
  };
  CHECK(optimizer(1, 3) < optimizer(1, 1));
  CHECK(optimizer(2, 3) == optimizer(2, 1));
}

TEST_CASE("under a pipeline gradients are reduced once a step, whatever ZeRO cuts") {
  TinyStep tiny;
  tiny.practice.gradients_hidden.value = 0;
  const auto exposed = [&](int stages, int zero) {
    return tiny.cost({.data = 4, .pipeline = stages, .micro_batches = 8, .zero = zero})
        .parts[StepPart::dp];
  };
  CHECK(exposed(1, 2) > exposed(1, 1));
  CHECK(exposed(2, 2) == exposed(2, 1));
}

TEST_CASE("the first stage gets no hidden states, and the last one no gradients of them") {
  TinyStep tiny;
  tiny.model.layers = 8;
  const auto messages = [&](int rank, int chunks) {
    StepCommon common(tiny.request);
    const StepPlan plan{.pipeline = 4, .virtual_stages = chunks, .micro_batches = 4};
    return step_sent(common, plan, tiny.seq, tiny.attention, rank)
               .at(StepAxis::stages, CommKind::send_recv)
               .value() /
           (tiny.seq * tiny.model.hidden * 2);
  };
  for (const int chunks : {1, 2}) {
    CHECK(messages(0, chunks) == 4 * (2 * chunks - 1));
    CHECK(messages(1, chunks) == 4 * 2 * chunks);
    CHECK(messages(3, chunks) == 4 * (2 * chunks - 1));
  }
}

TEST_CASE("a table that two stages have is reduced, updated and gathered on both, and summed up") {
  TinyStep tiny;
  const StepPlan plan{.data = 4, .pipeline = 2, .micro_batches = 2, .zero = 1};
  const auto sent = [&](CommKind kind, StepAxis axis) {
    StepCommon common(tiny.request);
    return step_sent(common, plan, tiny.seq, tiny.attention, 1)
        .along(axis)
        .at(static_cast<std::size_t>(kind));
  };
  CHECK(sent(CommKind::all_reduce, StepAxis::stages) == Bytes(0));
  const double own = tiny.cost(plan).total();
  const Bytes reduced = sent(CommKind::reduce_scatter, StepAxis::weights);
  const Bytes gathered = sent(CommKind::all_gather, StepAxis::weights);
  tiny.model.tied_embeddings = true;
  // As many weights on both stages; 4 bytes of a gradient cross the stages' link.
  CHECK(sent(CommKind::reduce_scatter, StepAxis::weights) == reduced);
  CHECK(sent(CommKind::all_gather, StepAxis::weights) == gathered);
  CHECK(sent(CommKind::all_reduce, StepAxis::stages) ==
        Bytes(4 * tiny.model.vocab * tiny.model.hidden));
  CHECK(tiny.cost(plan).total() > own);
  tiny.practice.whole_tables.value = 0;  // each of 4 replicas its shard
  CHECK(sent(CommKind::all_reduce, StepAxis::stages) ==
        Bytes(tiny.model.vocab * tiny.model.hidden));
}

TEST_CASE("a prefill under ZeRO 3 gathers its weights once a micro-batch") {
  TinyStep tiny;
  tiny.request.kind = StepKind::prefill;
  const auto gathered = [&](const StepPlan& plan) {
    return tiny.sent(plan)
        .along(StepAxis::weights)
        .at(static_cast<std::size_t>(CommKind::all_gather));
  };
  CHECK(gathered({.data = 4}) == Bytes(0));
  CHECK(gathered({.data = 4, .micro_batches = 3, .zero = 3}) == Bytes(3 * 1352 * 2 * 3 / 4));
  // Kernels that take long hide all gathers but the first.
  tiny.attention[0].forward.kernels = Seconds(1);
  const StepCost cost = tiny.cost({.data = 4, .zero = 3});
  CHECK(cost.hidden > 0);
  CHECK(cost.parts[StepPart::dp] > 0);
  tiny.practice.slowdown.value = 0.5;
  CHECK(tiny.cost({.data = 4, .zero = 3}).total() ==
        Approx(cost.total() + 0.5 * cost.hidden).epsilon(1e-12));
}

TEST_CASE("a prefill is the forward alone") {
  TinyStep tiny;
  tiny.attention[0] = some_attention();
  tiny.request.kind = StepKind::prefill;
  const StepCost cost = tiny.cost({});
  CHECK(cost.parts[StepPart::attention] == Approx(2 * 1e-3));
  CHECK(cost.parts[StepPart::optimizer] == 0);
}

TEST_CASE("prompts come through a pipeline no faster than their messages pass") {
  TinyStep tiny;
  tiny.request.kind = StepKind::prefill;
  MachineSpec machine = tiny.machine;
  machine.inter->rate_per_nic.value = Bandwidth(1000);
  machine.inter->transport.most.reset();
  const sim::Cluster cluster(machine, 2, 16);
  tiny.request.cluster = &cluster;
  const auto cost = [&](std::int64_t prompts) {
    return tiny.cost({.data = 8, .pipeline = 2, .micro_batches = prompts});
  };
  const double message = cost(1).parts[StepPart::pp];
  CHECK(cost(5).total() - cost(1).total() == Approx(4 * message).epsilon(1e-9));
  tiny.attention[0].forward.kernels = Seconds(2 * message);  // hides them but for the first
  CHECK(cost(5).parts[StepPart::pp] == Approx(message));
}

TEST_CASE("a stage of a prefill sends its own bytes, and its hidden states on to the next") {
  TinyStep tiny;
  tiny.request.kind = StepKind::prefill;
  tiny.attention[0].forward.sent.at(StepAxis::ring, CommKind::all_gather) = Bytes(1000);
  tiny.attention[0].forward.kernels = Seconds(1);
  // Two layers, one on each stage, and 12 tokens of `hidden` in 16 bits for each micro-batch.
  SentBytes sent = tiny.sent({.pipeline = 2, .micro_batches = 3});
  CHECK(sent.at(StepAxis::ring, CommKind::all_gather) == Bytes(3 * 1000));
  const Bytes messages = sent.at(StepAxis::stages, CommKind::send_recv);
  CHECK(messages == Bytes(3 * 12 * tiny.model.hidden * 2));
}

TEST_CASE("all residual streams go on to the next stage") {
  TinyStep tiny;
  tiny.request.kind = StepKind::prefill;
  tiny.model = test::compressed_model();
  tiny.attention.resize(3);
  SentBytes sent = tiny.sent({.pipeline = 3, .micro_batches = 2});
  CHECK(sent.at(StepAxis::stages, CommKind::send_recv) == Bytes(2 * 12 * (2 * 8) * 2));
}

TEST_CASE("tokens for several experts of a node are sent once, where the stack does so") {
  TinyStep tiny;
  tiny.model.experts = {.count = 16, .per_token = 8, .ffn = 6};
  const StepPlan plan{.data = 16, .expert = 16};
  const auto sent = [&] {
    return tiny.sent(plan)
        .along(StepAxis::expert)
        .at(static_cast<std::size_t>(CommKind::all_to_all))
        .as_double();
  };
  const double copies = sent();
  tiny.practice.once_per_node.value = 1;
  // 8 experts on 2 nodes: a token has one on the other node in all but 1 of 256 draws, instead of
  // 4 copies that leave.
  CHECK(sent() / copies == Approx(2 * (1 - 1.0 / 256) / 8).epsilon(0.02));
}

TEST_CASE("an all-gather moves less than an all-to-all where tokens have more experts than ranks") {
  TinyStep tiny;
  tiny.model.experts = {.count = 16, .per_token = 8, .ffn = 6};
  StepPlan plan{.data = 4, .expert = 4};
  const auto sent = [&](CommKind kind) {
    return tiny.sent(plan).along(StepAxis::expert).at(static_cast<std::size_t>(kind)).as_double();
  };
  const double copies = sent(CommKind::all_to_all);
  CHECK(sent(CommKind::all_gather) == 0);
  plan.to_experts = Dispatcher::all_gather;
  CHECK(sent(CommKind::all_to_all) == 0);
  // Of each token 8 copies go to 4 ranks, or itself; and 8 weights to each, or 2 on average.
  const double rows = sent(CommKind::all_gather) + sent(CommKind::reduce_scatter);
  CHECK(rows > copies / 2);
  CHECK(rows < copies);
}

TEST_CASE("gradients in buckets cost latency for each") {
  TinyStep tiny;
  tiny.practice.gradients_hidden.value = 0;
  StepPlan plan{.data = 4};
  const double whole = tiny.cost(plan).parts[StepPart::dp];
  tiny.practice.gradient_bucket.value = Bytes(592);  // a layer has 592 gradients of 4 bytes
  CHECK(tiny.cost(plan).parts[StepPart::dp] > 1.5 * whole);
  // Under ZeRO 1 pieces are counted, not bytes.
  plan.zero = 1;
  const double bucketed = tiny.cost(plan).parts[StepPart::dp];
  tiny.practice.zero_pieces.value = 4;
  const double fourths = tiny.cost(plan).parts[StepPart::dp];
  CHECK(fourths > bucketed);
  tiny.practice.zero_by_rank.value = 1;  // four ranks, which are fewer than two layers' pieces
  CHECK(tiny.cost(plan).parts[StepPart::dp] == Approx(fourths));
}

TEST_CASE("what goes to the host takes the bus, and what is updated there its CPUs") {
  TinyStep tiny;
  tiny.practice.kept.value = 1e6;  // so much that kernels cannot hide it
  StepPlan plan{.offload = Offload::activations};
  const double all = tiny.cost(plan).parts[StepPart::launch];
  CHECK(all > 0);
  // The GPU and its CPU, ten times PCIe 5's rate; the little that passes hide is what it was.
  MachineSpec joined = tiny.machine;
  joined.gpu.host_link = Sourced<Bandwidth>{.value = Bandwidth(512e9)};
  const sim::Cluster superchips(joined, 2, 16);
  tiny.request.cluster = &superchips;
  CHECK(tiny.cost(plan).parts[StepPart::launch] == Approx(all / 10).epsilon(0.02));
  tiny.request.cluster = &tiny.cluster;
  plan.offloaded = 0.5;
  CHECK(tiny.cost(plan).parts[StepPart::launch] == Approx(all / 2).epsilon(0.01));
  plan.offloaded = 1;
  tiny.attention[0].kept = Bytes(1'000'000'000'000);  // goes, too
  const double with_weights = tiny.cost(plan).parts[StepPart::launch];
  CHECK(with_weights > 10 * all);
  tiny.model.predict_layers = 2;  // as many as there are layers
  CHECK(tiny.cost(plan).parts[StepPart::launch] == Approx(2 * with_weights).epsilon(0.05));
  tiny.model.predict_layers = 0;
  plan = {.data = 8, .zero = 1, .offload = Offload::optimizer};
  tiny.practice.host_update.value = Seconds(1);
  // 169 weights a rank, and 8 ranks share their node's CPUs.
  CHECK(tiny.cost(plan).parts[StepPart::optimizer] == Approx(8 * 169).epsilon(1e-6));
}

TEST_CASE("the host runs ahead of a whole pass: what attention's ops take counts once") {
  TinyStep tiny;
  tiny.attention[0].forward = {.kernels = Seconds(1e-3), .issue = Seconds(6e-3)};
  tiny.request.kind = StepKind::prefill;
  // Two layers: the host takes 6 ms each, the GPU 1 ms and a little.
  const double host_bound = tiny.cost({}).total();
  CHECK(host_bound == Approx(2 * 6e-3).epsilon(0.01));
  tiny.attention[0].forward.kernels = Seconds(1);
  CHECK(tiny.cost({}).parts[StepPart::launch] == 0);
  tiny.request.kind = StepKind::train;
  tiny.attention[0].backward = {.kernels = Seconds(1), .issue = Seconds(6e-3)};
  CHECK(tiny.cost({}).parts[StepPart::launch] == 0);
  tiny.attention[0].backward.kernels = Seconds(1e-3);
  CHECK(tiny.cost({}).parts[StepPart::launch] == Approx(2 * 5e-3).epsilon(0.02));
}
