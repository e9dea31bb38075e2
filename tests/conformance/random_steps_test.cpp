// Training steps drawn at random: models, machines, degrees, attention's strategies, ZeRO stages,
// pipelines, recomputation. What each is costed in closed form around its attention is about what
// it takes op by op; what is counted of memory is about what lives at once; folded it takes as long
// as rank by rank.
#include "planner/layer.hpp"
#include "planner/step.hpp"
#include "schedule/arena.hpp"
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
};

/// A step without what hosts take, which schedules do not hold: it hides transfers, too.
const StepPractice& without_hosts() {
  static const StepPractice practice = [] {
    StepPractice p = counting_on_device(default_practice());
    for (auto* host : {&p.host_kernel, &p.host_transfer, &p.host_exchange, &p.host_message}) {
      host->value = Seconds(0);
    }
    return p;
  }();
  return practice;
}

/// Nothing where no schedule holds it.
std::optional<Drawn> drawn(std::uint64_t seed) {
  Draw draw(seed);
  const std::string machine =
      draw.one_of<std::string>({"dgx-h100", "dgx-a100", "dgx-b200", "hgx-h20", "hgx-a800",
                                "8xl20-pcie", "8xrtx4090-pcie", "cloud-a100-ethernet"});
  const bool alone = machine.ends_with("-pcie");
  Drawn d{.cluster = std::make_unique<sim::Cluster>(
              test::cluster_of(machine, alone ? 1 : draw.one_of<int>({1, 2, 4}))),
          .request = {},
          .plan = {}};
  const auto model = draw.one_of<std::string>(
      {"llama-3.1-8b", "qwen2.5-7b", "llama-3.1-70b", "mixtral-8x7b", "qwen3-30b-a3b"});
  d.request =
      test::step_request(*d.cluster, model, draw.one_of<std::int64_t>({8192, 16384, 32768}));
  Request& request = d.request;
  request.practice = &without_hosts();
  request.model->layers = 8;
  request.memory = Bytes(7'200'000'000'000);  // whether it fits is another question
  StepPlan& plan = d.plan;
  int left = d.cluster->gpus();
  const auto take = [&](const std::vector<int>& wanted) {
    const int degree = draw.divisor(left, wanted);
    left /= degree;
    return degree;
  };
  plan.tensor = take({1, 1, 2, 4});
  plan.pipeline = take({1, 1, 2, 4});
  plan.data = take({1, 1, 2, 4});
  plan.attention.ring = left;
  plan.order =
      plan.pipeline == 1 ? "1f1b" : draw.one_of<std::string>({"1f1b", "gpipe", "zero-bubble"});
  plan.micro_batches = draw.one_of<int>({1, 2, 4}) * (plan.pipeline > 1 ? plan.pipeline : 1);
  plan.zero = plan.pipeline > 1 ? draw.one_of<int>({0, 1}) : draw.one_of<int>({0, 1, 2, 3});
  plan.recompute = recomputation_of(
      request, draw.one_of<Recompute>({Recompute::none, Recompute::selective, Recompute::full}));
  if (request.model->experts.count > 0) {
    plan.expert = draw.divisor(plan.stage_ranks(), {1, 2, 4, 8});
  }
  request.gpus = d.cluster->gpus();
  const AttentionQuestion question = attention_question(request, plan, request.problem);
  const std::vector<SequencePlan> legal = legal_plans(question.request, nullptr);
  if (legal.empty()) {
    return std::nullopt;
  }
  plan.attention = draw.one_of(legal);
  if (!why_not(*request.model, plan).legal()) {
    return std::nullopt;
  }
  return d;
}

}  // namespace

TEST_CASE("x") {
  double sum = 0;
  int n = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::optional<Drawn> d = drawn(seed);
    if (!d) {
      continue;
    }
    const auto& request = d->request;
    const auto& plan = d->plan;
    try {
      const LayerQuestion step = step_question(request, plan);
      const auto phases = phases_of(request, plan, step, true);
      const Evaluation simulated = evaluate_layer(request, plan, step, phases, {});
      const Prediction cost = evaluate(request, plan).candidate.predicted;
      const double costed = cost.step.count() - cost.parts_s[StepPart::launch];
      const double takes = simulated.candidate.predicted.step.count();
      double low = 9, high = 0;
      for (int stage = 0; stage < plan.pipeline; ++stage) {
        const Bytes lives =
            plan_arena(phases[0].schedule.program(Rank(stage * plan.stage_ranks()))).total();
        const double r = cost.by_stage[static_cast<std::size_t>(stage)].tensors().as_double() /
                         lives.as_double();
        low = std::min(low, r);
        high = std::max(high, r);
      }
      fmt::print(
          "{:4} {:.2f} mem {:.2f} {:.2f} {} {} {} zero {} ep {} m {} {} rc {} seq {} {:.3f}s\n",
          seed, costed / takes, low, high, d->cluster->machine().name, request.model->name,
          short_name(plan), plan.zero, plan.expert, plan.micro_batches, plan.order,
          to_string(plan.recompute), request.problem.seq, takes);
      sum += std::abs(std::log(costed / takes));
      ++n;
    } catch (const std::exception& e) {
      fmt::print("{:4} {}\n", seed, e.what());
    }
  }
  fmt::print("{} mean {}\n", n, sum / n);
}
