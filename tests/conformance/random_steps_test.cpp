// Training steps drawn at random: models, machines, degrees, attention's strategies, ZeRO stages,
// pipelines, recomputation. What each is costed in closed form around its attention is about what
// it takes op by op; what is counted of memory is about what lives at once; folded it takes as long
// as rank by rank, and few turns tell what many take.
#include "planner/layer.hpp"
#include "planner/step.hpp"
#include "schedule/arena.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/requests.hpp"

#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace spp;

namespace {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  /// One of them, each as likely.
  template <class T>
  T one_of(const std::vector<T>& values) {
    return values[random_() % values.size()];
  }
  /// Of those that divide `all`.
  int divisor(int all, const std::vector<int>& wanted) {
    std::vector<int> fit;
    for (const int d : wanted) {
      if (all % d == 0) {
        fit.push_back(d);
      }
    }
    return one_of(fit);
  }

 private:
  std::mt19937_64 random_;
};

struct Drawn {
  std::unique_ptr<sim::Cluster> cluster;
  Request request;
  StepPlan plan;
  [[nodiscard]] std::string name() const {
    return fmt::format(
        "{}, {} nodes, {}, {} tokens: {}, ZeRO {}, {} micro-batches, {}, "
        "recomputation {}",
        cluster->machine().name, cluster->nodes(), request.model->name, request.problem.seq,
        short_name(plan), plan.zero, plan.micro_batches, plan.order, to_string(plan.recompute));
  }
};

const StackSpec& stack() {
  static const StackSpec own = test::catalog().stack("sp-plan", "test");
  return own;
}

/// Whole nodes, or a part of one.
std::unique_ptr<sim::Cluster> cluster_of(Draw& draw) {
  const std::string machine =
      draw.one_of<std::string>({"dgx-h100", "dgx-a100", "dgx-b200", "hgx-h20", "hgx-a800",
                                "8xl20-pcie", "8xrtx4090-pcie", "cloud-a100-ethernet"});
  const MachineSpec spec = test::catalog().machine(machine, "test");
  const int nodes = machine.ends_with("-pcie") ? 1 : draw.one_of<int>({1, 2, 4});
  const int gpus = nodes > 1 ? 8 * nodes : draw.one_of<int>({3, 5, 6, 7, 8, 8, 8, 8});
  return std::make_unique<sim::Cluster>(spec, nodes, gpus);
}

/// Nothing where no schedule holds it.
std::optional<Drawn> drawn(std::uint64_t seed) {
  Draw draw(seed);
  Drawn d{.cluster = cluster_of(draw), .request = {}, .plan = {}};
  const auto model =
      draw.one_of<std::string>({"llama-3.1-8b", "qwen2.5-7b", "llama-3.1-70b", "mixtral-8x7b",
                                "qwen3-30b-a3b", "gpt-oss-20b", "qwen3-8b"});
  int left = d.cluster->gpus();
  const std::int64_t seq = draw.one_of<std::int64_t>({256, 512, 1024}) * 4 * left;
  d.request = test::step_request(*d.cluster, model, seq);
  Request& request = d.request;
  request.run_by(stack());
  request.model->layers = 8;
  request.memory = Bytes(7'200'000'000'000);  // whether it fits is another question
  StepPlan& plan = d.plan;
  const auto take = [&](const std::vector<int>& wanted) {
    const int degree = draw.divisor(left, wanted);
    left /= degree;
    return degree;
  };
  plan.tensor = take({1, 1, 2, 4});
  plan.pipeline = take({1, 1, 2, 4});
  plan.data = take({1, 1, 2, 3, 4});
  const bool staged = plan.pipeline > 1;
  plan.order = staged ? draw.one_of<std::string>({"1f1b", "gpipe", "zero-bubble", "interleaved"})
                      : std::string("1f1b");
  plan.virtual_stages = plan.order == "interleaved" ? 2 : 1;
  plan.micro_batches = draw.one_of<int>({1, 2, 4}) * plan.pipeline;
  plan.zero = staged ? draw.one_of<int>({0, 1}) : draw.one_of<int>({0, 1, 2, 3});
  plan.recompute = recomputation_of(
      request, draw.one_of<Recompute>({Recompute::none, Recompute::selective, Recompute::full}));
  if (plan.zero > 0 && plan.data * left % 4 == 0) {
    plan.zero_group = draw.one_of<int>({0, 0, 2, 4});
  }
  if (request.model->experts.count > 0) {
    plan.expert = draw.divisor(plan.tensor * plan.data * left, {1, 2, 4, 8});
  }
  plan.attention.ring = left;
  const AttentionQuestion question = attention_question(request, plan, request.problem);
  std::vector<SequencePlan> legal = legal_plans(question.request, nullptr);
  // Heads are dealt out padded in attention alone.
  std::erase_if(legal, [](const SequencePlan& p) { return p.heads == HeadPolicy::pad; });
  if (legal.empty()) {
    return std::nullopt;
  }
  plan.attention = draw.one_of(legal);
  if (!why_not(*request.model, plan).legal()) {
    return std::nullopt;
  }
  try {
    step_question(request, plan);
  } catch (const InputError&) {
    return std::nullopt;
  }
  return d;
}

double makespan(const Drawn& d, const LayerQuestion& step, std::span<const LayerPhase> phases) {
  return evaluate_layer(d.request, d.plan, step, phases, {}).candidate.predicted.step.count();
}

/// How many could be drawn, and how far costs were from simulations, on average.
struct Checked {
  int steps = 0;
  double apart = 0;  // sum of |ln(costed / simulated)|
};

void check(const Drawn& d, bool unfolded, Checked& checked) {
  INFO(d.name());
  const LayerQuestion step = step_question(d.request, d.plan);
  const std::vector<LayerPhase> phases = phases_of(d.request, d.plan, step, true);
  const Prediction cost = evaluate(d.request, d.plan).candidate.predicted;
  const double costed = cost.step.count();
  const double takes = makespan(d, step, phases);
  INFO("costed " << costed << " s, takes " << takes);
  // Both ends of a message are busy in a schedule, only its sender in a cost: it shows over TCP.
  CHECK(costed > 0.65 * takes);
  CHECK(costed < 1.3 * takes);
  ++checked.steps;
  checked.apart += std::abs(std::log(costed / takes));
  for (int stage = 0; stage < d.plan.pipeline; ++stage) {
    const Program program = phases[0].schedule.program(Rank(stage * d.plan.stage_ranks()));
    const double lives = plan_arena(program).peak_live.as_double();
    const double counted = cost.by_stage[static_cast<std::size_t>(stage)].tensors().as_double();
    INFO("stage " << stage << ": " << lives / 1e9 << " GB live, " << counted / 1e9 << " counted");
    CHECK(counted > 0.85 * lives);
    CHECK(counted < 2.5 * lives);  // a single micro-batch's gradients need not be there at once
  }
  if (unfolded) {
    CHECK(makespan(d, step, phases_of(d.request, d.plan, step, false)) ==
          Approx(takes).epsilon(1e-9));
  }
}

Checked check_steps(std::uint64_t first, std::uint64_t end) {
  Checked checked;
  for (std::uint64_t seed = first; seed < end; ++seed) {
    INFO("step " << seed);
    if (const std::optional<Drawn> d = drawn(seed)) {
      constexpr int few = 8;
      check(*d, d->cluster->gpus() <= few, checked);
    }
  }
  return checked;
}

void check_equal(const sim::Simulation& few, const sim::Simulation& all) {
  constexpr double rounding = 1e-9;
  CHECK(few.makespan.count() == Approx(all.makespan.count()).epsilon(rounding));
  CHECK(few.critical == all.critical);
  CHECK(few.issue.count() == Approx(all.issue.count()).epsilon(rounding));
  const double scale = all.makespan.count();
  for (const auto part :
       {&Breakdown::attention, &Breakdown::gemm, &Breakdown::other_kernels, &Breakdown::exposed,
        &Breakdown::imbalance, &Breakdown::hidden, &Breakdown::launch_bound}) {
    CHECK((few.breakdown.*part).count() ==
          Approx((all.breakdown.*part).count()).epsilon(rounding).scale(scale));
  }
  CHECK(few.sent_on == all.sent_on);
  REQUIRE(few.rank_end.size() == all.rank_end.size());
  for (std::size_t i = 0; i < few.rank_end.size(); ++i) {
    CHECK(few.rank_end[i].count() == Approx(all.rank_end[i].count()).epsilon(rounding));
  }
  REQUIRE(few.bottlenecks.size() == all.bottlenecks.size());
  for (std::size_t i = 0; i < few.bottlenecks.size(); ++i) {
    CHECK(few.bottlenecks[i].exposed.count() ==
          Approx(all.bottlenecks[i].exposed.count()).epsilon(rounding).scale(scale));
  }
  for (std::size_t i = 0; i < sim::link_levels; ++i) {
    CHECK(few.links[i] == Approx(all.links[i]).epsilon(rounding));
  }
  REQUIRE(few.waits.size() == all.waits.size());
  for (std::size_t i = 0; i < few.waits.size(); ++i) {
    CHECK(few.waits[i].op == all.waits[i].op);
    CHECK(few.waits[i].waited_for == all.waits[i].waited_for);
  }
}

/// Steps of many micro-batches; gives how many of them fold.
int check_turns(std::uint64_t first, std::uint64_t end) {
  int folded = 0;
  for (std::uint64_t seed = first; seed < end; ++seed) {
    std::optional<Drawn> d = drawn(seed);
    if (!d) {
      continue;
    }
    d->request.model->layers = d->plan.pipeline * d->plan.virtual_stages;
    d->plan.micro_batches = 16 * d->plan.pipeline + (d->plan.order == "interleaved" ? 0 : 1);
    INFO("step " << seed << ": " << d->name());
    const LayerQuestion step = step_question(d->request, d->plan);
    const std::vector<LayerPhase> phases = phases_of(d->request, d->plan, step, true);
    const auto simulated = [&](bool fold) {
      const EvaluationOptions options{.fold = fold, .steps = true};
      return *evaluate_layer(d->request, d->plan, step, phases, options).forward;
    };
    const sim::Simulation few = simulated(true);
    if (few.turns_left_out > 0) {
      ++folded;
      const sim::Simulation all = simulated(false);
      CHECK(few.ops < all.ops);
      check_equal(few, all);
    }
  }
  return folded;
}

}  // namespace

TEST_CASE("few turns of a step of many micro-batches tell what all take") {
  CHECK(check_turns(0, 60) > 20);
}

TEST_CASE("steps drawn at random are costed as they are simulated, and hold what is counted") {
  const Checked checked = check_steps(0, 80);
  CHECK(checked.steps > 45);
  CHECK(checked.apart / checked.steps < 0.04);
}

TEST_CASE("shards that have copies fold where experts are cut over all of them") {
  const sim::Cluster cluster = test::cluster_of("8xrtx4090-pcie", 1);
  Request request = test::step_request(cluster, "gpt-oss-20b", 8192);
  request.model->layers = 2;
  request.memory = Bytes(720'000'000'000);
  const StepPlan plan{.attention = {.strategy = "ulysses"},
                      .tensor = 2,
                      .data = 4,
                      .micro_batches = 2,
                      .zero = 1,
                      .zero_group = 2};
  const LayerQuestion step = step_question(request, plan);
  const auto takes = [&](bool fold) {
    const std::vector<LayerPhase> phases = phases_of(request, plan, step, fold);
    CHECK((phases[0].folding.size() > 1) == fold);
    return evaluate_layer(request, plan, step, phases, {}).candidate.predicted.step.count();
  };
  CHECK(takes(true) == Approx(takes(false)).epsilon(1e-9));
}

TEST_CASE("few turns of many steps", "[.all]") { CHECK(check_turns(60, 3000) > 1000); }

TEST_CASE("many steps", "[.all]") {
  const Checked checked = check_steps(80, 3000);
  CHECK(checked.apart / checked.steps < 0.06);
}
