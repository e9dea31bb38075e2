// One class in one file: each degree's choices follow from those of the degrees before it.
#include "planner/step_space.hpp"

#include "base/error.hpp"
#include "parallel/pipeline/pipeline.hpp"
#include "planner/evaluator.hpp"
#include "planner/framework.hpp"
#include "planner/step_bound.hpp"
#include "step/linear_attention.hpp"
#include "step/stages.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>

namespace spp {
namespace {

/// Virtual stages of a rank in layouts that are written by hand, as far as they are searched:
/// Megatron-Bridge's of DeepSeek-V3 have 1 to 4 (reports/corpus).
constexpr int most_by_hand = 4;

std::vector<std::int64_t> divisors_of(std::int64_t n) {
  std::vector<std::int64_t> low;
  std::vector<std::int64_t> high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d == 0) {
      low.push_back(d);
      if (d != n / d) {
        high.push_back(n / d);
      }
    }
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

class Space {
 public:
  Space(const Request& request, StepEvaluator& evaluator)
      : request_(request),
        model_(*request.model),
        bounds_(request, evaluator),
        dispatchers_(dispatchers_of(request)),
        train_(request.phase == StepPhase::train) {}

  StepSpace take() {
    for (const int tensor : tensors()) {
      for (const int data : replicas()) {
        if (request_.gpus % (std::int64_t{tensor} * data) == 0) {
          pipelines_of(tensor, data, static_cast<int>(request_.gpus / tensor / data));
        }
      }
    }
    return std::move(space_);
  }

 private:
  // ---- degrees
  [[nodiscard]] std::vector<int> tensors() const {
    if (request_.step.tensor) {
      return {*request_.step.tensor};
    }
    if (alone() || !has(&FrameworkAxes::tensor)) {
      return {1};
    }
    // Of a node that is used in part: of that part.
    const int node = std::min(request_.cluster->gpus_per_node(), request_.gpus);
    std::vector<int> result;
    for (const std::int64_t d : divisors_of(node)) {
      result.push_back(static_cast<int>(d));
    }
    return result;
  }
  [[nodiscard]] std::vector<int> replicas() const {
    const bool many = request_.step.global_batch || request_.counts_replicas();
    if (request_.step.data || !many || alone()) {
      return {request_.step.data.value_or(1)};
    }
    if (guided()) {
      return has(&FrameworkAxes::guidance) ? std::vector{1, 2} : std::vector{1};
    }
    std::vector<int> result;
    for (const std::int64_t d : divisors_of(request_.gpus)) {
      if (!request_.step.global_batch || *request_.step.global_batch % d == 0) {
        result.push_back(static_cast<int>(d));
      }
    }
    return result;
  }
  /// Ranks that share cores or a GPU run one sequence-parallel group.
  [[nodiscard]] bool alone() const {
    const MachineSpec& machine = request_.cluster->machine();
    return machine.host.has_value() || machine.device.has_value();
  }
  [[nodiscard]] bool guided() const { return request_.step.guidance != Guidance::none; }
  [[nodiscard]] bool has(bool FrameworkAxes::* axis) const {
    return request_.framework == nullptr || request_.framework->axes.*axis;
  }

  [[nodiscard]] bool has_order(const Pipeline& order) const {
    return request_.framework == nullptr || request_.framework->axes.has_order(order.name);
  }

  /// Models are cut into stages also where one sequence passes them alone: each stage has fewer
  /// ranks that talk.
  void pipelines_of(int tensor, int data, int left) {
    for (const std::int64_t stages : divisors_of(left)) {
      const bool given = request_.step.pipeline.has_value();
      const bool wanted = given
                              ? *request_.step.pipeline == stages
                              : stages == 1 || (!alone() && has(&FrameworkAxes::pipeline) &&
                                                can_stage(model_, stages, kind_of(request_.phase)));
      const auto sequence = static_cast<int>(left / stages);
      if (!wanted || !fits_fixed(sequence)) {
        continue;
      }
      const StepPoint point{.tensor = tensor,
                            .sequence = sequence,
                            .data = data,
                            .pipeline = static_cast<int>(stages)};
      if (stages == 1 && request_.step.order) {
        reject(point, {"pipeline", fmt::format("{} orders the stages of a pipeline, and one stage "
                                               "is none",
                                               *request_.step.order)});
      } else {
        experts_of(point);
      }
    }
  }
  [[nodiscard]] bool fits_fixed(int sequence) const {
    const FixedChoices& f = request_.fixed;
    const int ulysses = f.ulysses.value_or(1);
    const int ring = f.ring.value_or(1);
    return f.ulysses && f.ring ? std::int64_t{ulysses} * ring == sequence
                               : sequence % (std::int64_t{ulysses} * ring) == 0;
  }

  void experts_of(StepPoint point) {
    if (model_.experts.count == 0) {
      point.expert = request_.step.expert.value_or(1);
      point.expert_tensor = request_.step.expert_tensor.value_or(1);
      micro_batches_of(point);
      return;
    }
    const Framework* f = request_.framework;
    const int all = point.tensor * point.sequence * point.data;
    // Of frameworks that split experts over ranks of their choice, both degrees make up these.
    const int ranks =
        f != nullptr ? f->axes.expert_ranks_of(point.tensor, point.sequence, point.data) : 0;
    std::vector<std::int64_t> degrees{1};
    if (request_.step.expert) {
      degrees = {*request_.step.expert};
    } else if (!alone() && has(&FrameworkAxes::expert)) {
      degrees = divisors_of(model_.experts.count);
    }
    for (const std::int64_t expert : degrees) {
      point.expert = static_cast<int>(expert);
      std::vector<int> parts{request_.step.expert_tensor.value_or(1)};
      if (f != nullptr && !request_.step.expert_tensor) {
        parts = f->axes.parts_of_expert(point.expert, point.tensor, point.sequence, point.data);
      }
      for (const int of_each : parts) {
        point.expert_tensor = of_each;
        if (all % (expert * of_each) != 0) {
          if (request_.step.expert) {
            reject(point,
                   {"expert", fmt::format("{} x {} expert ranks do not divide a stage's {} ranks",
                                          expert, of_each, all)});
          }
        } else if (ranks == 0 || expert * of_each == ranks) {
          send_experts_of(point);
        }
      }
    }
  }

  void send_experts_of(StepPoint point) {
    point.sends_to_experts =
        LayerSplit{.tensor = point.tensor,
                   .sequence_parallel = practice_of(request_).tensor_sequence.value > 0,
                   .expert = point.expert,
                   .expert_tensor = point.expert_tensor}
            .sends_to_experts();
    for (const Dispatcher way : ways(point)) {
      point.to_experts = way;
      micro_batches_of(point);
    }
  }
  /// To experts; where no token goes to another rank any will do.
  [[nodiscard]] std::span<const Dispatcher> ways(const StepPoint& point) const {
    return std::span(dispatchers_).first(point.sends_to_experts ? dispatchers_.size() : 1);
  }

  void micro_batches_of(StepPoint point) {
    const auto global = request_.step.global_batch;
    const std::int64_t replica = global ? *global / point.data : 0;
    std::vector<std::int64_t> sizes = prompts_at_once_to_try(request_, point.pipeline);
    if (guided()) {
      sizes = {request_.step.guided_batch(point.data)};
    } else if (!request_.step.micro_batch && global) {
      sizes = divisors_of(replica);
      constexpr std::size_t most = 8;
      sizes.resize(std::min(sizes.size(), most));
    }
    for (const std::int64_t size : sizes) {
      if (global && (*global % point.data != 0 || replica % size != 0)) {
        reject(point, {"batch", fmt::format("{} sequences are not a multiple of dp {} x "
                                            "micro-batch {}",
                                            *global, point.data, size)});
        continue;
      }
      point.micro_batch = size;
      point.micro_batches = (global ? replica : request_.step.micro_batch.value_or(1)) / size;
      orders_of(point);
    }
  }

  void orders_of(StepPoint point) {
    for (const int chunks : virtual_stages(point)) {
      point.virtual_stages = chunks;
      for (const Pipeline* order : orders(point)) {
        point.order = order;
        const StepPlan plan = plan_around_attention(request_, point, 0);
        if (const WhyNot rule = why_not(model_, plan); !rule.legal()) {
          reject(point, rule);
        } else {
          recomputations_of(point, plan);
        }
      }
    }
  }
  [[nodiscard]] std::vector<int> virtual_stages(const StepPoint& point) const {
    if (request_.step.virtual_stages) {
      return {*request_.step.virtual_stages};
    }
    std::vector<int> result{1};
    const bool may =
        train_ && point.pipeline > 1 && point.micro_batches % point.pipeline == 0 &&
        has_order(pipelines::usual(2)) &&
        (!request_.step.order || pipelines::by_name(*request_.step.order, "--pipeline").chunks);
    if (may && model_.predict_layers > 0) {  // laid out by hand
      for (int v = 2; can_stage(model_, std::int64_t{point.pipeline} * v, StepKind::train) &&
                      v <= most_by_hand;
           v *= 2) {
        result.push_back(v);
      }
      return result;
    }
    const std::int64_t most = (model_.layers + 2) / point.pipeline;
    for (int v = 2; may && v <= most; ++v) {
      if (can_stage(model_, std::int64_t{point.pipeline} * v, StepKind::train)) {
        result.push_back(v);
      }
    }
    return result;
  }
  [[nodiscard]] std::vector<const Pipeline*> orders(const StepPoint& point) const {
    if (point.pipeline > 1 && request_.step.order) {
      return {&pipelines::by_name(*request_.step.order, "--pipeline")};
    }
    const Pipeline& usual = pipelines::usual(point.virtual_stages);
    std::vector<const Pipeline*> result{&usual};
    if (point.pipeline > 1) {
      std::ranges::copy_if(pipelines::all(), std::back_inserter(result), [&](const Pipeline* p) {
        return p != &usual && p->chunks == usual.chunks && !p->dominated && has_order(*p);
      });
    }
    return result;
  }

  void recomputations_of(StepPoint point, const StepPlan& plan) {
    const Attention& attention = attention_cost(point);
    if (!attention.legal) {
      return;  // its rules are listed
    }
    point.attention = attention.least;
    const StepBounds::Around around = bounds_.around(point, plan);
    for (const Recompute recompute : recomputations) {
      const bool wanted =
          train_ ? request_.step.recompute.value_or(recompute) == recompute &&
                       (request_.framework == nullptr ||
                        request_.framework->recomputes(recomputation_of(request_, recompute)))
                 : recompute == Recompute::none;
      if (wanted) {
        point.recompute = recompute;
        bounds_.fill(point, plan, around);
        if (!loses(point, plan, around)) {
          space_.points.push_back(point);
        }
      }
    }
  }
  /// Another way to experts is faster, whatever it asks of the host, and needs no more memory:
  /// around attention, which is the same. By bounds: where memory decides nothing is left out.
  [[nodiscard]] bool loses(const StepPoint& point, StepPlan plan,
                           const StepBounds::Around& around) {
    if (request_.objective == Objective::memory) {
      return false;
    }
    const std::span<const Dispatcher> others = ways(point);
    return std::ranges::any_of(others, [&](Dispatcher way) {
      if (way == point.to_experts) {
        return false;
      }
      StepPoint other = point;
      other.to_experts = plan.to_experts = way;
      const StepBounds::Around there = bounds_.around(other, plan);
      bounds_.fill(other, plan, there);
      return there.layers->most() < around.layers->least() &&
             other.mean.around < point.mean.around && other.most.around < point.most.around &&
             other.memory <= point.memory;
    });
  }

  struct Attention {
    bool legal = false;
    AttentionSeconds least;  // of all plans
  };
  const Attention& attention_cost(const StepPoint& point) {
    const auto [at, fresh] =
        attention_.try_emplace({point.tensor, point.sequence, point.micro_batch});
    if (fresh) {
      const AttentionQuestion question = attention_of(request_, point);
      std::vector<Rejected> rejected;
      const std::vector<SequencePlan> legal = legal_plans(question.request, &rejected);
      for (Rejected& r : rejected) {
        r.plan.tensor = point.tensor;
        list(std::move(r));
      }
      say_why_contiguous(point);
      const Evaluator evaluator(question.request);
      constexpr double none = std::numeric_limits<double>::infinity();
      AttentionSeconds least{.all = none, .forward = none};
      for (const SequencePlan& p : legal) {
        const Strategy& strategy = strategies::by_name(p.strategy, "strategy");
        least.all = std::min(least.all, evaluator.lower_bound(p, strategy));
        least.forward = std::min(least.forward, evaluator.lower_bound(p, strategy, Phase::forward));
      }
      at->second = {.legal = !legal.empty(), .least = least};
    }
    return at->second;
  }

  // ---- rules
  /// What linear attention leaves out, where attention_of() has the search go by it.
  void say_why_contiguous(const StepPoint& point) {
    SequencePlan ring{.ring = point.sequence, .layout = Layout::zigzag};
    ring.strategy = strategies::simplest(ring)->name;
    const StepPlan zigzag = plan_of(request_, point, ring, 0);
    if (const WhyNot rule = why_not_linear(model_, zigzag);
        rule.rule == "linear" && !request_.fixed.layout) {
      list({.plan = zigzag, .rule = rule.rule, .detail = rule.detail});
    }
  }
  void reject(const StepPoint& point, const WhyNot& rule) {
    list({.plan = plan_of(request_, point, {.ring = point.sequence}, 0),
          .rule = rule.rule,
          .detail = rule.detail});
  }
  void list(Rejected rejected) {
    const SequencePlan& a = rejected.plan.attention;
    if (seen_
            .insert(fmt::format("{}|{}|{}|{}", rejected.rule, rejected.detail, a.strategy,
                                rejected.plan.tensor))
            .second) {
      space_.rejected.push_back(std::move(rejected));
    }
  }

  const Request& request_;
  const Model& model_;
  StepBounds bounds_;
  std::vector<Dispatcher> dispatchers_;
  bool train_ = true;
  std::map<std::tuple<int, int, std::int64_t>, Attention> attention_;
  std::set<std::string> seen_;
  StepSpace space_;
};

}  // namespace

StepSpace step_space(const Request& request, StepEvaluator& evaluator) {
  return Space(request, evaluator).take();
}

std::vector<int> zero_stages(const Request& request, const StepPoint& point) {
  if (request.step.zero) {
    return {*request.step.zero};
  }
  const bool can_shard = plan_around_attention(request, point, 0).can_shard(*request.model);
  if (request.phase != StepPhase::train) {
    // Weights alone are there to be cut.
    const bool cut =
        can_shard && point.pipeline == 1 &&
        (request.framework == nullptr || request.framework->has_zero(3, request.phase));
    return cut ? std::vector{0, 3} : std::vector{0};
  }
  std::vector<int> stages{0, 1, 2, 3};
  if (!can_shard) {
    // From 2 on gradients lie where an offloaded optimizer updates them.
    const bool on_host = moves_optimizer(request.step.offload.value_or(Offload::none));
    stages = on_host && point.pipeline == 1 ? std::vector{0, 2} : std::vector{0};
  } else if (point.pipeline > 1) {
    stages = {0, 1};
  }
  if (const Framework* f = request.framework; f != nullptr && !f->zero.values.empty()) {
    std::erase_if(stages, [&](int zero) { return !f->zero.has(zero); });
    if (stages.empty()) {
      stages = {f->zero.values.front()};
    }
  }
  return stages;
}

StepPlan plan_of(const Request& request, const StepPoint& point, const SequencePlan& attention,
                 int zero) {
  const StepChoices& given = request.step;
  return {.attention = attention,
          .tensor = point.tensor,
          .tensor_sequence = practice_of(request).tensor_sequence.value > 0,
          .data = point.data,
          .guided = given.guidance != Guidance::none,
          .expert = point.expert,
          .expert_tensor = point.expert_tensor,
          .to_experts = point.to_experts,
          .pipeline = point.pipeline,
          .virtual_stages = point.virtual_stages,
          .order = std::string(point.order->name),
          .micro_batch = point.micro_batch,
          .micro_batches = point.micro_batches,
          .zero = zero,
          .zero_group = given.zero_group.value_or(0),
          .recompute = recomputation_of(request, point.recompute),
          .offload = given.offload.value_or(Offload::none),
          .format = given.format};
}

StepPlan plan_around_attention(const Request& request, const StepPoint& point, int zero) {
  SequencePlan around{.ring = point.sequence,
                      .layout = request.fixed.layout.value_or(Layout::contiguous),
                      .rank_order = request.fixed.rank_order.value_or(RankOrder::block)};
  if (request.model->indexer) {
    around.strategy = strategies::gathering().name;
  }
  return plan_of(request, point, around, zero);
}

bool leaves_rank_order_open(const Request& request, int sequence) {
  return !request.fixed.rank_order && sequence == request.gpus && request.cluster->nodes() > 1 &&
         why_not(RankOrder::cyclic, *request.cluster, sequence).legal();
}

AttentionQuestion attention_of(const Request& request, const StepPoint& point) {
  AttentionQuestion question = attention_question(
      request, plan_of(request, point, {.ring = point.sequence}, 0), request.problem);
  if (request.model->linear && !question.request.fixed.layout &&
      !splits_linear_heads(*request.model, point.tensor, point.sequence)) {
    question.request.fixed.layout = Layout::contiguous;  // of which alone states are handed on
  }
  if (!question.request.fixed.rank_order && !leaves_rank_order_open(request, point.sequence)) {
    question.request.fixed.rank_order = RankOrder::block;
  }
  return question;
}

}  // namespace spp
