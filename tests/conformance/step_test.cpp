// Whole steps: two layers with their attention of every strategy, words before and a loss behind
// them, and the update of every parameter: proven, stored, written and read again.
#include "base/error.hpp"
#include "schedule/arena.hpp"
#include "schedule/coverage.hpp"
#include "schedule/storage.hpp"
#include "schedule/text.hpp"
#include "tests/conformance/layer_cases.hpp"
#include "tests/conformance/wrong.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace spp {
namespace {

using test::changed;
using test::refuted;
using test::small_layer;
using test::StepCase;

template <class F>
void for_each_step(std::size_t most, F f) {
  for (const int tensor : {1, 2, 4}) {
    for (const int sequence : {1, 2, 3, 4, 8}) {
      for (const StepCase& c : test::step_cases(sequence, tensor, most)) {
        INFO(c.text());
        f(c);
      }
    }
  }
}

std::set<std::string> softmax_strategies() {
  std::set<std::string> names;
  for (const Strategy* strategy : strategies::all()) {
    if (strategy->backward && strategy->function == AttentionFunction::softmax) {
      names.insert(std::string(strategy->name));
    }
  }
  return names;
}

TEST_CASE("steps are proven") {
  int proven = 0;
  std::set<std::string> strategies;
  for_each_step(2, [&](const StepCase& c) {
    REQUIRE_THAT(prove(c.build()).counter_example, Catch::Matchers::Equals(""));
    strategies.insert(c.layer.attention.plan.strategy);
    ++proven;
  });
  CHECK(proven > 20);
  CHECK(strategies.size() > 8);  // of all, where cases are not thinned
  CHECK(std::ranges::includes(softmax_strategies(), strategies));
}

TEST_CASE("steps whose shards have copies are proven, and their text form is the step") {
  for (const StepCase& c : test::hybrid_cases()) {
    INFO(c.text());
    REQUIRE(why_not_step(c.graph(), c.layer.attention.problem, c.plan(), {}) == "");
    const Schedule schedule = c.build();
    REQUIRE_THAT(prove(schedule).counter_example, Catch::Matchers::Equals(""));
    REQUIRE(std::ssize(store(schedule)) == schedule.mesh.size());
    const std::string text = to_text(schedule);
    REQUIRE(to_text(parse_schedule(text, "step.txt")) == text);
    // Shards of one copy alone.
    CHECK(refuted(changed<Collective>(
              schedule,
              [](const Collective& o, const std::vector<Buffer>& buffers) {
                return o.kind == CollectiveKind::all_reduce &&
                       buffers[o.to.index()].tensor == Tensor::d_param;
              },
              [](Collective& o) { o.group.size = 1; })) != "");
  }
}

TEST_CASE("a step with biases is proven under every way of sharding") {
  for (const int zero : {0, 1, 3}) {
    StepCase step{.layer = small_layer(), .zero = zero, .replicas = 2};
    step.layer.attention.problem.seq = 16;
    step.layer.gated = false;
    REQUIRE(why_not_step(step.graph(), step.layer.attention.problem, step.plan(), {}) == "");
    CHECK_THAT(prove(step.build()).counter_example, Catch::Matchers::Equals(""));
  }
}

TEST_CASE(
    "a step with tied embeddings is proven under every way of sharding, and in any pipeline") {
  struct Order {
    std::string name;
    PipelineShape shape;
  };
  for (const Order& order :
       {Order{"1f1b", {.micro_batches = 2}}, Order{"1f1b", {.stages = 2, .micro_batches = 2}},
        Order{"zero-bubble", {.stages = 3, .micro_batches = 3}},
        Order{"interleaved", {.stages = 2, .chunks = 2, .micro_batches = 4}}}) {
    for (const int zero : {0, 1, 2, 3}) {
      StepCase step{.layer = small_layer(),
                    .zero = zero,
                    .replicas = 2,
                    .updates = zero != 2 || order.shape.stages != 3,
                    .pipeline = order.shape,
                    .order = order.name,
                    .tied = true};
      step.layer.attention.problem.seq = 16;
      INFO(step.text());
      REQUIRE(why_not_step(step.graph(), step.layer.attention.problem, step.plan(), {}) == "");
      CHECK_THAT(prove(step.build()).counter_example, Catch::Matchers::Equals(""));
    }
  }
}

TEST_CASE("a step with norms of heads is proven under every way of sharding, and in a pipeline") {
  for (const int zero : {0, 1, 2, 3}) {
    StepCase step{.layer = small_layer(),
                  .zero = zero,
                  .replicas = 2,
                  .pipeline = {.stages = 2, .micro_batches = 2},
                  .order = zero == 0 ? "zero-bubble" : "1f1b",
                  .recompute = {.kind = zero == 3 ? Recompute::full : Recompute::none}};
    step.layer.attention.problem.seq = 16;
    step.layer.head_norms = true;
    REQUIRE(why_not_step(step.graph(), step.layer.attention.problem, step.plan(), {}) == "");
    CHECK_THAT(prove(step.build()).counter_example, Catch::Matchers::Equals(""));
  }
}

TEST_CASE("steps can be stored, and their text form is the step") {
  test::OneIn some(2 * test::halving);
  for_each_step(1, [&](const StepCase& c) {
    if (!some.takes()) {
      return;
    }
    const Schedule schedule = c.build();
    REQUIRE(std::ssize(store(schedule)) == schedule.mesh.size());
    const std::string text = to_text(schedule);
    const Schedule again = parse_schedule(text, "step.txt");
    REQUIRE(to_text(again) == text);
    REQUIRE_THAT(prove(again).counter_example, Catch::Matchers::Equals(""));
  });
}

/// All ops of a program, as `change` leaves them.
template <class Change>
Schedule reordered(Schedule schedule, Change change) {
  schedule.program = [program = schedule.program, change](Rank rank) {
    Program result = program(rank);
    OpList all = ops_of(result);
    change(all, result.buffers);
    result.loops = {{.trips = 1, .body = [all](std::int64_t, OpList& ops) {
                       ops.insert(ops.end(), all.begin(), all.end());
                     }}};
    return result;
  };
  return schedule;
}

TEST_CASE("layers that see by a window and by everything, in turns, are proven and written") {
  using Catch::Matchers::Contains;
  StepCase step{.layer = small_layer()};
  Problem& problem = step.layer.attention.problem;
  problem.seq = 64;
  step.look_through(16);
  const Schedule schedule = step.build();
  REQUIRE_THAT(prove(schedule).counter_example, Catch::Matchers::Equals(""));
  const std::string text = to_text(schedule);
  CHECK(to_text(parse_schedule(text, "step.txt")) == text);
  CHECK_THAT(text, Contains("other_masks=window:16"));
  // Half the layers, of which a ring of two leaves out what no query sees.
  StepCase full = step;
  problem.other_masks.clear();
  full.layer.attention.problem.other_masks.clear();
  const auto pairs = [](const Schedule& s) { return prove(s).pair_blocks; };
  CHECK(pairs(schedule) < pairs(full.build()));

  CHECK_THAT(refuted(changed<AttentionForward>(
                 schedule, [](const auto& op, const auto&) { return op.mask == 1; },
                 [](auto& op) { op.mask = 0; })),
             Contains("sees by causal, but its attention by window:16"));
  for (const std::string_view line : {"define split_heads", ": attention_fwd"}) {
    const std::size_t at = text.find(" mask=1", text.rfind(line));
    REQUIRE(at < text.size());
    std::string wrong = text;
    wrong.replace(at, 7, " mask=2");
    CHECK_THROWS_WITH(parse_schedule(wrong, "step.txt"),
                      Contains("step.txt:") && (Contains("not those of its function") ||
                                                Contains("mask=2 is none of the problem's 2")));
  }
}

TEST_CASE("wrong steps are refused with a counter-example") {
  using Catch::Matchers::Contains;
  const StepCase step{.layer = small_layer(), .zero = 1, .replicas = 2};
  const Graph graph = step.graph().graph;
  const auto is = [&](LayerFunction function, bool backward = false) {
    return [&graph, function, backward](const RowKernel& o, const std::vector<Buffer>&) {
      return graph.definition(o.definition).function == function && o.backward == backward;
    };
  };
  const auto of = [](CollectiveKind kind, Tensor tensor) {
    return [=](const Collective& o, const std::vector<Buffer>& buffers) {
      return o.kind == kind && buffers[o.to.index()].tensor == tensor;
    };
  };
  // Gradients of one replica only.
  CHECK_THAT(
      refuted(changed<Collective>(step.build(), of(CollectiveKind::reduce_scatter, Tensor::d_param),
                                  [](Collective& o) { o.group.size /= 2; })),
      Contains("d_param") || Contains("group") || Contains("meets another"));
  // A shard that is updated twice, and one that is not shared.
  CHECK_THAT(refuted(reordered(step.build(),
                               [&](OpList& ops, const std::vector<Buffer>& buffers) {
                                 const auto at = std::ranges::find_if(ops, [&](const Op& op) {
                                   const auto* row = op_if<RowKernel>(op.body);
                                   return row != nullptr && is(LayerFunction::adam)(*row, buffers);
                                 });
                                 ops.insert(at, Op(*at));
                               })),
             Contains("a second time"));
  CHECK_THAT(refuted(reordered(step.build(),
                               [&](OpList& ops, const std::vector<Buffer>& buffers) {
                                 std::erase_if(ops, [&](const Op& op) {
                                   const auto* gather = op_if<Collective>(op.body);
                                   return gather != nullptr && of(CollectiveKind::all_gather,
                                                                  Tensor::param)(*gather, buffers);
                                 });
                               })),
             Contains("lacks the contribution of the update"));
  CHECK_THAT(refuted(changed<RowKernel>(step.build(), is(LayerFunction::adam),
                                        [](RowKernel& o) { o.slots = true; })),
             Contains("other operands or flags than an update"));
  // Words looked up in another rank's part of the table; the loss from a part of the logits.
  CHECK_THAT(refuted(changed<RowKernel>(step.build(), is(LayerFunction::embedding),
                                        [](RowKernel& o) { o.part = 1 - o.part; })),
             Contains("looks words up in part"));
  CHECK_THAT(refuted(changed<RowKernel>(step.build(), is(LayerFunction::word_sums, true),
                                        [](RowKernel& o) { o.part = 1 - o.part; })),
             Contains("works on part"));
  CHECK_THAT(refuted(changed<Collective>(
                 step.build(),
                 [&](const Collective& o, const std::vector<Buffer>& all) {
                   const Buffer& to = all[o.to.index()];
                   return to.tensor == Tensor::value && graph.value(to.label).name == "word_sums";
                 },
                 [](Collective& o) { o.kind = CollectiveKind::all_gather; })),
             Contains("word_sums"));
  // Attention of one layer with another's keys.
  CHECK_THAT(refuted(reordered(step.build(),
                               [](OpList& ops, const std::vector<Buffer>& buffers) {
                                 AttentionForward* first = nullptr;
                                 for (Op& op : ops) {
                                   auto* call = op_if<AttentionForward>(op.body);
                                   if (call == nullptr) {
                                     continue;
                                   }
                                   first = first == nullptr ? call : first;
                                   if (buffers[call->k.index()].label == 1) {
                                     call->k = first->k;
                                   }
                                 }
                               })),
             Contains("as k.1"));
}

/// Two stages, three micro-batches.
StepCase small_pipeline() {
  StepCase step{.layer = small_layer(), .pipeline = {.stages = 2, .micro_batches = 3}};
  step.layer.attention.problem.seq = 16;
  return step;
}

/// The first op of kind T for which `wanted` holds; or the end.
template <class T, class Wanted>
auto first_of(const OpList& ops, const std::vector<Buffer>& buffers, Wanted wanted) {
  return std::ranges::find_if(ops, [&](const Op& op) {
    const T* found = op_if<T>(op.body);
    return found != nullptr && wanted(*found, buffers);
  });
}

TEST_CASE("steps over every combination of axes are proven") {
  constexpr int most_ranks = 32;
  const std::array<std::string, 3> orders{"1f1b", "gpipe", "zero-bubble"};
  int number = 0;
  int proven = 0;
  constexpr int one_in = test::thinning > 2 ? static_cast<int>(test::thinning) : 1;
  test::OneIn some(one_in);
  for (const int tensor : {1, 2, 3, 4}) {
    for (const int sequence : {1, 2, 3, 4}) {
      for (const int data : {1, 2, 3, 4}) {
        for (const int stages : {1, 2, 3, 4}) {
          ++number;
          if (tensor * sequence * data * stages > most_ranks || !some.takes()) {
            continue;
          }
          StepCase step{.layer = small_layer(),
                        .zero = number % 4,
                        .replicas = data,
                        .pipeline = {.stages = stages, .micro_batches = 1 + number % 3},
                        .order = orders[static_cast<std::size_t>(number) % 3],
                        .messages_overlap = number % 2 == 0,
                        .recompute = {.kind = number % 5 == 0 ? Recompute::full : Recompute::none},
                        .replay = number % 10 == 0 ? Replay::needed : Replay::whole,
                        .gathered_kept = number % 4 == 1};
          step.layer.tensor = tensor;
          Problem& problem = step.layer.attention.problem;
          problem.seq = 288;
          problem.q_heads = problem.kv_heads = 144;
          problem.head_dim = 12;
          SequencePlan& plan = step.layer.attention.plan;
          plan = number % 2 == 0 || sequence == 1
                     ? SequencePlan{.strategy = "ulysses", .ulysses = sequence}
                     : SequencePlan{
                           .strategy = "zigzag-ring", .ring = sequence, .layout = Layout::zigzag};
          INFO(step.text());
          REQUIRE_THAT(why_not_step(step.graph(), problem, step.plan(), {}),
                       Catch::Matchers::Equals(""));
          REQUIRE_THAT(prove(step.build()).counter_example, Catch::Matchers::Equals(""));
          ++proven;
        }
      }
    }
  }
  CHECK(proven > 140 / one_in);
}

TEST_CASE("wrong pipelines are refused with a counter-example") {
  using Catch::Matchers::Contains;
  const StepCase step = small_pipeline();
  REQUIRE_THAT(prove(step.build()).counter_example, Catch::Matchers::Equals(""));
  const auto of = [](const BufferList& list, const std::vector<Buffer>& buffers, Tensor tensor) {
    return !list.empty() && buffers[list.begin()->index()].tensor == tensor;
  };
  const auto sends = [&](const Exchange& o, const std::vector<Buffer>& buffers) {
    return of(o.send, buffers, Tensor::value);
  };
  const auto receives_gradient = [&](const Exchange& o, const std::vector<Buffer>& buffers) {
    return of(o.receive, buffers, Tensor::d_value);
  };
  // The first stage waits for a gradient before it has sent what it is of.
  CHECK_THAT(refuted(reordered(step.build(),
                               [&](OpList& ops, const std::vector<Buffer>& buffers) {
                                 const auto to = first_of<Exchange>(ops, buffers, sends);
                                 const auto from =
                                     first_of<Exchange>(ops, buffers, receives_gradient);
                                 if (to != ops.end()) {
                                   std::rotate(ops.begin() + (to - ops.begin()),
                                               ops.begin() + (from - ops.begin()),
                                               ops.begin() + (from - ops.begin()) + 1);
                                 }
                               })),
             Contains("deadlock"));
  // Micro-batches that change places on the way.
  CHECK_THAT(refuted(reordered(step.build(),
                               [&](OpList& ops, const std::vector<Buffer>& buffers) {
                                 std::vector<Exchange*> come;
                                 for (Op& op : ops) {
                                   auto* exchange = op_if<Exchange>(op.body);
                                   if (exchange != nullptr &&
                                       of(exchange->receive, buffers, Tensor::value)) {
                                     come.push_back(exchange);
                                   }
                                 }
                                 if (come.size() > 1) {
                                   std::swap(come[0]->receive, come[1]->receive);
                                 }
                               })),
             Contains("nothing was written to") || Contains("tokens"));
  // A micro-batch that a parameter's gradient lacks, and one that it has twice.
  const auto adds = [](const Gemm& o, const std::vector<Buffer>&) {
    return o.kind == GemmKind::weight_gradient && !o.initial;
  };
  CHECK_THAT(refuted(reordered(step.build(),
                               [&](OpList& ops, const std::vector<Buffer>& buffers) {
                                 ops.erase(first_of<Gemm>(ops, buffers, adds));
                               })),
             Contains("updates by part of a gradient") && Contains("lacks tokens"));
  CHECK_THAT(refuted(reordered(step.build(),
                               [&](OpList& ops, const std::vector<Buffer>& buffers) {
                                 const auto at = first_of<Gemm>(ops, buffers, adds);
                                 ops.insert(at, Op(*at));
                               })),
             Contains("twice"));
}

TEST_CASE("a table that is the loss head, too, lacks what neither of its uses gives") {
  using Catch::Matchers::Contains;
  StepCase step{.layer = small_layer(), .tied = true};
  const auto of_table = [](const Buffer& buffer) {
    return buffer.tensor == Tensor::d_param && buffer.name.starts_with("d_w_embedding");
  };
  // What words give is not added to what logits give.
  CHECK_THAT(refuted(reordered(step.build(),
                               [&](OpList& ops, const std::vector<Buffer>& buffers) {
                                 ops.erase(first_of<Accumulate>(
                                     ops, buffers,
                                     [&](const Accumulate& o, const std::vector<Buffer>& all) {
                                       return of_table(all[o.sum.index()]);
                                     }));
                               })),
             Contains("updates by part of a gradient: embedding") &&
                 Contains("(embedding of value.embedding)"));
  // Each stage updates its table by what it gives alone.
  step = small_pipeline();
  step.tied = true;
  CHECK_THAT(
      refuted(reordered(step.build(),
                        [&](OpList& ops, const std::vector<Buffer>& buffers) {
                          const auto sum = first_of<Collective>(
                              ops, buffers,
                              [&](const Collective& o, const std::vector<Buffer>& all) {
                                return all[o.from.index()].name == "d_w_embedding_of_stage";
                              });
                          const auto [from, to] = std::pair(op_if<Collective>(sum->body)->from,
                                                            op_if<Collective>(sum->body)->to);
                          for (Op& op : ops) {
                            auto* row = op_if<RowKernel>(op.body);
                            if (row != nullptr && row->reads.ids()[0] == to) {
                              const auto reads = row->reads.ids();
                              row->reads = {from, reads[1], reads[2], reads[3]};
                            }
                          }
                        })),
      Contains("updates by part of a gradient: embedding") &&
          (Contains("(linear of value.logits)") || Contains("(embedding of value.embedding)")));
}

TEST_CASE("a step that computes its layers again holds less, and must compute all of them") {
  StepCase step = small_pipeline();
  step.layer.attention.problem.seq = 64;
  const auto held = [&] {
    std::int64_t most = 0;
    const Schedule schedule = step.build();
    for (int rank = 0; rank < schedule.mesh.size(); ++rank) {
      most = std::max(most, plan_arena(schedule.program(Rank(rank))).size.value());
    }
    return most;
  };
  const std::int64_t all_kept = held();
  step.recompute.kind = Recompute::selective;
  const std::int64_t without_modules = held();
  CHECK(without_modules < all_kept);
  CHECK_THAT(prove(step.build()).counter_example, Catch::Matchers::Equals(""));
  step.recompute.kind = Recompute::full;
  CHECK(held() < without_modules);
  CHECK(static_cast<double>(held()) < 0.85 * static_cast<double>(all_kept));
  Schedule once = step.build();
  once.contract.recomputes = false;
  CHECK_THAT(refuted(once), Catch::Matchers::Contains("Met twice"));
  step.recompute.kind = Recompute::none;
  once = step.build();
  once.contract.recomputes = true;
  CHECK_THAT(refuted(once), Catch::Matchers::Contains("Not computed again"));
}

/// Products, and what goes between tensor ranks.
struct LayerWork {
  double flops = 0;
  std::array<Bytes, comm_kinds> sent{};
  [[nodiscard]] LayerWork beyond(const LayerWork& other) const {
    LayerWork more{.flops = flops - other.flops};
    for (std::size_t i = 0; i < sent.size(); ++i) {
      more.sent.at(i) = sent.at(i) - other.sent.at(i);
    }
    return more;
  }
  friend bool operator==(const LayerWork&, const LayerWork&) = default;
};

LayerWork in_schedule(const StepCase& step) {
  const Schedule schedule = step.build();
  const Program program = schedule.program(Rank(0));
  const Shapes shapes{
      .problem = &schedule.contract.attention, .buffers = program.buffers, .rank = Rank(0)};
  LayerWork work;
  for (const Op& op : ops_of(program)) {
    if (const auto* gemm = op_if<Gemm>(op.body)) {
      work.flops += gemm_shape(*gemm, shapes).flops().value();
    } else if (op.stream == StreamId(6)) {
      const Transfer& transfer = std::get<Transfer>(op.body);
      work.sent.at(static_cast<std::size_t>(comm_kind_of(transfer))) +=
          sent_bytes(transfer, shapes);
    }
  }
  return work;
}

LayerWork in_lists(const StepCase& step) {
  const Problem& problem = step.layer.attention.problem;
  const LocalTokens local{.tokens = problem.seq / step.layer.attention.plan.ranks(),
                          .batch = problem.batch,
                          .dtype = problem.dtype,
                          .split = {.tensor = step.layer.tensor, .expert = step.expert_groups},
                          .gathered_kept = step.gathered_kept};
  LayerWork work;
  const auto add = [&](const std::vector<LayerOp>& ops) {
    for (const LayerOp& op : ops) {
      if (const auto* gemm = std::get_if<GemmShape>(&op.work)) {
        work.flops += gemm->flops().value();
      } else if (const auto* grouped = std::get_if<GroupedGemm>(&op.work)) {
        work.flops +=
            GemmShape{.m = grouped->rows, .n = grouped->n, .k = grouped->k}.flops().value();
      } else if (const auto* transfer = std::get_if<LayerTransfer>(&op.work);
                 transfer != nullptr && transfer->axis == LayerAxis::tensor) {
        work.sent.at(static_cast<std::size_t>(transfer->kind)) +=
            transfer->bytes / step.layer.tensor * (step.layer.tensor - 1);
      }
    }
  };
  const TensorOps layer = layer_of(step.model());
  for (int i = 0; i < step.layers(); ++i) {
    add(forward_ops(layer, local));
    add(recomputed_ops(layer, local, step.recompute, step.replay));
    add(backward_ops(layer, local));
  }
  const TensorOps ends = ends_of(step.model(), StepKind::train);
  add(forward_ops(ends, local));
  add(backward_ops(ends, local));
  return work;
}

/// What a step that computes again does more than one that does not is what its lists say. How many
/// different FLOPs, and gathered bytes, there were.
std::pair<std::size_t, std::size_t> check_again(const StepCase& plain) {
  using enum RecomputeModule;
  REQUIRE_THAT(why_not_step(plain.graph(), plain.layer.attention.problem, plain.plan(), {}),
               Catch::Matchers::Equals(""));
  std::set<double> flops;
  std::set<Bytes> gathered;
  for (const Recomputation& how :
       {Recomputation{}, Recomputation{.kind = Recompute::full},
        Recomputation{.kind = Recompute::selective, .modules = {mlp, norms}}}) {
    for (const Replay replay : {Replay::whole, Replay::needed}) {
      for (const bool kept : {false, true}) {
        StepCase step = plain;
        step.recompute = how;
        step.replay = replay;
        step.gathered_kept = kept;
        INFO(step.text());
        const LayerWork work = in_schedule(step);
        CHECK(work.beyond(in_schedule(plain)) == in_lists(step).beyond(in_lists(plain)));
        flops.insert(work.flops);
        gathered.insert(work.sent.at(static_cast<std::size_t>(CommKind::all_gather)));
      }
    }
  }
  return {flops.size(), gathered.size()};
}

TEST_CASE("a step computes and gathers again what its layers' lists do") {
  StepCase step{.layer = small_layer()};
  REQUIRE(step.layer.tensor > 1);
  step.layer.attention.problem.seq = 16;
  SECTION("of heads") {
    const auto [flops, gathered] = check_again(step);
    // Once; all products twice, or those of the MLP; the same without the last one.
    CHECK(flops == 5);
    // In each forward, and in each backward or not; where no norm's output stays, that is the same.
    CHECK(gathered == 5);
  }
  SECTION("of latents") {
    test::make_latent(step.layer);
    check_again(step);
  }
  SECTION("of experts") {
    step.experts = {.count = 4, .per_token = 2, .ffn = 4};
    step.expert_groups = 2;
    const auto [flops, gathered] = check_again(step);
    CHECK(flops == 2);  // what experts give back may be weighed: it counts as read
    CHECK(gathered > 2);
  }
  SECTION("of experts beside shared ones") {
    step.experts = {.count = 4, .per_token = 2, .ffn = 4, .shared = 1, .shared_ffn = 8};
    step.expert_groups = 2;
    check_again(step);
  }
}

TEST_CASE("what a cut backward puts off gathers its inputs, which takes less memory") {
  StepCase step = small_pipeline();
  step.order = "zero-bubble";
  step.layer.attention.problem.seq = 64;
  const auto held = [&](bool kept) {
    step.gathered_kept = kept;
    const Schedule schedule = step.build();
    CHECK_THAT(prove(schedule).counter_example, Catch::Matchers::Equals(""));
    return plan_arena(schedule.program(Rank(0))).size.value();
  };
  CHECK(held(false) < held(true));
}

TEST_CASE("a step over 2 x 2 ranks is the schedule of its golden text") {
  const StepCase step{
      .layer = {.attention = {.problem = {.seq = 16, .q_heads = 2, .kv_heads = 2, .head_dim = 8},
                              .plan = {.strategy = "ulysses"},
                              .phase = Phase::forward,
                              .options = {}},
                .tensor = 2},
      .zero = 1,
      .replicas = 2};
  const std::array first{Rank(0)};  // the others differ in heads, tokens and peers
  CHECK(to_text(step.build(), first) ==
        test::read_text(test::source_path("tests/golden/step_of_four.txt")));
}

TEST_CASE("a step has the model's parameters") {
  const StepCase step{.layer = small_layer()};
  std::int64_t parameters = 0;
  for (const Param& param : step.graph().graph.params) {
    parameters += param.rows * param.columns;
  }
  CHECK(parameters == step.model().parameters());
}

}  // namespace
}  // namespace spp
