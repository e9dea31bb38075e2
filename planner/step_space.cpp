// Enumeration, rules and bounds in one file: a point is worth its bounds only, and all of them
// share what is worked out once for its degrees.
#include "planner/step_space.hpp"

#include "base/error.hpp"
#include "parallel/pipeline/pipeline.hpp"
#include "planner/evaluator.hpp"
#include "planner/framework.hpp"
#include "step/linear_attention.hpp"
#include "step/links.hpp"
#include "step/stages.hpp"
#include "transformer/activations.hpp"

#include <algorithm>
#include <limits>
#include <set>

namespace spp {
namespace {

/// Virtual stages of a rank in layouts that are written by hand, as far as they are searched:
/// Megatron-Bridge's of DeepSeek-V3 have 1 to 4 (reports/corpus).
constexpr int most_by_hand = 4;

constexpr std::array recomputations{Recompute::none, Recompute::selective, Recompute::full};

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

/// What all layers take together, of one micro-batch, without attention over the sequence.
struct LayersCost {
  double forward = 0;                  // seconds
  std::array<double, 3> backward{};    // by Recompute
  double layer_forward = 0;            // of the cheapest kind
  std::array<double, 3> layer_both{};  // forward and backward of the cheapest kind
  std::array<double, 3> kept{};        // bytes of all layers
  std::array<double, 3> working{};     // of the layer that takes most
  double cached = 0;
  HeldWeights weights;
};

class Space {
 public:
  Space(const Request& request, const StepEvaluator& evaluator)
      : request_(request),
        model_(*request.model),
        evaluator_(evaluator),
        groups_(*request.cluster),
        dispatchers_(dispatchers_of(request)),
        runs_{layer_runs(model_, Dispatcher::all_to_all),
              layer_runs(model_, Dispatcher::all_gather)},
        train_(request.phase == StepPhase::train) {
    for (const LayerRun& run : runs_.front()) {
      own_mask_ += run.attends && run.mask == model_.mask ? run.layers : 0;
    }
  }

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

  [[nodiscard]] bool has_order(std::string_view order) const {
    return request_.framework == nullptr || request_.framework->axes.has_order(order);
  }

  void pipelines_of(int tensor, int data, int left) {
    for (const std::int64_t stages : divisors_of(left)) {
      const bool given = request_.step.pipeline.has_value();
      const bool wanted =
          given ? *request_.step.pipeline == stages
                : stages == 1 || (stages_layers() && !alone() && has(&FrameworkAxes::pipeline) &&
                                  can_stage(model_, stages, kind_of(request_.phase)));
      const auto sequence = static_cast<int>(left / stages);
      if (wanted && fits_fixed(sequence)) {
        experts_of({.tensor = tensor,
                    .sequence = sequence,
                    .data = data,
                    .pipeline = static_cast<int>(stages)});
      }
    }
  }
  /// Language models are cut into stages also where one prompt passes them alone: each stage has
  /// fewer ranks that talk.
  [[nodiscard]] bool stages_layers() const { return train_ || model_.kind == ModelKind::llm; }
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
      const std::int64_t of_each = request_.step.expert_tensor.value_or(
          ranks > 0 ? static_cast<int>(std::max<std::int64_t>(1, ranks / expert)) : 1);
      point.expert = static_cast<int>(expert);
      point.expert_tensor = static_cast<int>(of_each);
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

  void send_experts_of(StepPoint point) {
    for (const Dispatcher way : ways(point)) {
      point.to_experts = way;
      micro_batches_of(point);
    }
  }
  /// To experts; where no token goes to another rank any will do.
  [[nodiscard]] std::span<const Dispatcher> ways(const StepPoint& point) const {
    const LayerSplit split{.tensor = point.tensor,
                           .sequence_parallel = practice_of(request_).tensor_sequence.value > 0,
                           .expert = point.expert,
                           .expert_tensor = point.expert_tensor};
    return std::span(dispatchers_).first(split.sends_to_experts() ? dispatchers_.size() : 1);
  }

  void micro_batches_of(StepPoint point) {
    const auto global = request_.step.global_batch;
    const std::int64_t replica = global ? *global / point.data : 0;
    std::vector<std::int64_t> sizes{prompts_at_once(request_, point.pipeline)};
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
      for (const std::string_view order : orders(point)) {
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
    const bool may = train_ && point.pipeline > 1 && point.micro_batches % point.pipeline == 0 &&
                     has_order("interleaved") &&
                     (!request_.step.order || *request_.step.order == "interleaved");
    if (may && model_.predict_layers > 0) {  // laid out by hand
      for (int v = 2; can_stage(model_, std::int64_t{point.pipeline} * v, StepKind::train) &&
                      v <= most_by_hand;
           v *= 2) {
        result.push_back(v);
      }
      return result;
    }
    const std::int64_t dealt = model_.layers % point.pipeline == 0         ? model_.layers
                               : (model_.layers + 2) % point.pipeline == 0 ? model_.layers + 2
                                                                           : model_.layers + 1;
    for (const std::int64_t v : divisors_of(dealt / point.pipeline)) {
      if (may && v > 1) {
        result.push_back(static_cast<int>(v));
      }
    }
    return result;
  }
  [[nodiscard]] std::vector<std::string_view> orders(const StepPoint& point) const {
    if (point.pipeline == 1) {
      return {"1f1b"};
    }
    if (request_.step.order) {
      return {pipelines::by_name(*request_.step.order, "--pipeline").name};
    }
    if (point.virtual_stages > 1) {
      return {"interleaved"};
    }
    // 1F1B holds less than GPipe at the same time; a cut backward is not everywhere.
    std::vector<std::string_view> result{"1f1b"};
    if (has_order("zero-bubble")) {
      result.emplace_back("zero-bubble");
    }
    return result;
  }

  void recomputations_of(StepPoint point, const StepPlan& plan) {
    const LayersCost& cost = layers_cost(point, plan);
    const Attention& attention = attention_cost(point);
    if (!attention.legal) {
      return;  // its rules are listed
    }
    point.attention = attention.seconds;
    point.calls = real_of(own_mask_ * point.micro_batches) / point.pipeline;
    for (const Recompute recompute : recomputations) {
      const bool wanted =
          train_ ? request_.step.recompute.value_or(recompute) == recompute &&
                       (request_.framework == nullptr ||
                        request_.framework->recomputes(recomputation_of(request_, recompute)))
                 : recompute == Recompute::none;
      if (wanted) {
        point.recompute = recompute;
        point.around = seconds(point, cost);
        point.memory = bytes(point, plan, cost);
        if (!loses(point, plan)) {
          space_.points.push_back(point);
        }
      }
    }
  }
  /// Another way to experts is faster and needs no more memory: around attention, which is the
  /// same.
  [[nodiscard]] bool loses(const StepPoint& point, StepPlan plan) {
    const std::span<const Dispatcher> others = ways(point);
    return std::ranges::any_of(others, [&](Dispatcher way) {
      if (way == point.to_experts) {
        return false;
      }
      StepPoint other = point;
      other.to_experts = plan.to_experts = way;
      const LayersCost& cost = layers_cost(other, plan);
      return seconds(other, cost) < point.around && bytes(other, plan, cost) <= point.memory;
    });
  }

  // ---- bounds
  [[nodiscard]] double seconds(const StepPoint& point, const LayersCost& cost) const {
    const auto r = static_cast<std::size_t>(point.recompute);
    const double micro_batch = cost.forward + (train_ ? cost.backward.at(r) : 0);
    const double work = real_of(point.micro_batches) * micro_batch / point.pipeline;
    const double chunk = std::max<double>(
        0, real_of((model_.layers - 1) / (std::int64_t{point.pipeline} * point.virtual_stages)));
    const double first =
        point.order == "zero-bubble" || !train_ ? cost.layer_forward : cost.layer_both.at(r);
    // A layout by hand may leave its last two stages without a layer.
    const int without = model_.predict_layers > 0 ? 2 : 0;
    return work + std::max(0, point.pipeline - 1 - without) * chunk * first;
  }

  [[nodiscard]] Bytes bytes(const StepPoint& point, const StepPlan& plan,
                            const LayersCost& cost) const {
    const StepPractice& practice = evaluator_.practice();
    const double dense = real_of(cost.weights.dense) / point.pipeline;
    const double experts = real_of(cost.weights.experts) / point.pipeline;
    const double part = dense / plan.shards() + experts / plan.expert_replicas();
    const double whole = dense + experts;
    const int zero = zero_stages(request_, point).back();
    const ParameterBytes parameters =
        parameter_bytes(cost.weights, plan.format, kind_of(request_.phase), practice);
    double all = zero == 3 && point.pipeline == 1 ? parameters.dense / plan.shards() +
                                                        parameters.experts / plan.expert_replicas()
                                                  : parameters.all();
    all /= point.pipeline;
    if (train_) {
      all += (zero >= 2 ? part : whole) * practice.state_gradient.value;
      all += moves_optimizer(plan.offload)
                 ? 0
                 : (zero >= 1 ? part : whole) * practice.state_optimizer.value;
    }
    const double stages = point.pipeline;
    const double chunks = stages * point.virtual_stages;
    const double full =
        real_of((model_.layers - 1) / (std::int64_t{point.pipeline} * point.virtual_stages)) *
        chunks / real_of(model_.layers);
    if (!train_) {
      all += real_of(point.micro_batches) * cost.cached * full / stages;
    } else if (!moves_activations(plan.offload)) {
      const double in_flight = point.order == "gpipe"
                                   ? real_of(point.micro_batches)
                                   : std::min(stages, real_of(point.micro_batches));
      all += cost.kept.at(static_cast<std::size_t>(point.recompute)) * std::min(1.0, full) *
             in_flight / stages;
    }
    if (train_) {
      all += cost.working.at(static_cast<std::size_t>(point.recompute));
    }
    if (train_ && point.pipeline == 1) {
      const double rows = real_of(request_.problem.seq / point.sequence * point.micro_batch);
      all += rows * real_of(model_.vocab) / point.tensor * practice.logit_bytes.value *
             practice.logit_part.value;
    }
    constexpr double most = 1e18;
    return Bytes(static_cast<std::int64_t>(std::min(most, all)));
  }

  const LayersCost& layers_cost(const StepPoint& point, const StepPlan& plan) {
    const auto [at, fresh] =
        layers_.try_emplace({point.tensor, point.sequence, point.expert, point.expert_tensor,
                             point.to_experts, point.micro_batch});
    if (fresh) {
      at->second = worked_out(plan);
    }
    return at->second;
  }

  [[nodiscard]] LayersCost worked_out(StepPlan plan) {
    plan.data = plan.pipeline = plan.virtual_stages = 1;  // a layer does not know of them
    const StepLinks links(groups_, plan);
    const PassCosts costs{.kernels = &evaluator_.kernels(),
                          .practice = &evaluator_.practice(),
                          .links = &links,
                          .dtype = request_.problem.dtype,
                          .format = plan.format,
                          .crowd = request_.cluster->ranks_per_core()};
    const std::int64_t tokens = request_.problem.seq / plan.sequence();
    const std::int64_t joint = model_.diffusion.joint_tokens;
    const LocalTokens local{
        .tokens = tokens,
        .batch = plan.micro_batch,
        .dtype = request_.problem.dtype,
        .split = plan.split(),
        .joint = std::min(tokens, (joint + plan.sequence() - 1) / plan.sequence())};
    const auto time = [&](const std::vector<LayerOp>& ops) {
      const PassTime pass = pass_around(ops, costs).time;
      return pass.total() - pass.parts[StepPart::launch];  // which hides behind attention
    };
    LayersCost all;
    all.layer_forward = std::numeric_limits<double>::infinity();
    all.layer_both.fill(std::numeric_limits<double>::infinity());
    const auto add = [&](const TensorOps& ops, std::int64_t layers) {
      const double n = real_of(layers);
      const double forward = time(forward_ops(ops, local));
      const double backward = train_ ? time(backward_ops(ops, local)) : 0;
      const HeldWeights weights = held_weights(ops, plan.split());
      all.weights += layers * weights;
      all.forward += n * forward;
      all.cached += n * cached_bytes(ops, local).as_double();
      return std::pair(forward, backward);
    };
    for (const LayerRun& run : runs_[static_cast<std::size_t>(plan.to_experts)]) {
      const auto [forward, backward] = add(run.ops, run.layers);
      all.layer_forward = std::min(all.layer_forward, forward);
      for (std::size_t r = 0; train_ && r < recomputations.size(); ++r) {
        const Recomputation how = recomputation_of(request_, recomputations.at(r));
        const double again = r == 0 ? 0 : time(recomputed_ops(run.ops, local, how));
        all.backward.at(r) += real_of(run.layers) * (backward + again);
        all.layer_both.at(r) = std::min(all.layer_both.at(r), forward + backward + again);
        const ActivationBytes bytes = activation_bytes(run.ops, local, how, evaluator_.practice());
        all.kept.at(r) += real_of(run.layers) * bytes.kept;
        all.working.at(r) = std::max(all.working.at(r), bytes.working);
      }
    }
    for (const TensorOps& end : {first_of(model_), last_of(model_, kind_of(request_.phase))}) {
      const double backward = add(end, 1).second;
      for (double& all_backward : all.backward) {
        all_backward += backward;
      }
    }
    return all;
  }

  struct Attention {
    bool legal = false;
    double seconds = 0;  // least of all plans
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
      double least = std::numeric_limits<double>::infinity();
      for (const SequencePlan& p : legal) {
        least =
            std::min(least, evaluator.lower_bound(p, strategies::by_name(p.strategy, "strategy")));
      }
      at->second = {.legal = !legal.empty(), .seconds = least};
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
  const StepEvaluator& evaluator_;
  GroupTimes groups_;
  std::vector<Dispatcher> dispatchers_;
  std::array<std::vector<LayerRun>, dispatchers> runs_;  // by Dispatcher
  bool train_ = true;
  std::int64_t own_mask_ = 0;  // layers that attend as the request says
  std::map<std::tuple<int, int, int, int, Dispatcher, std::int64_t>, LayersCost> layers_;
  std::map<std::tuple<int, int, std::int64_t>, Attention> attention_;
  std::set<std::string> seen_;
  StepSpace space_;
};

}  // namespace

StepSpace step_space(const Request& request, const StepEvaluator& evaluator) {
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
    stages = {0};
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
          .order = std::string(point.order),
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
                      .layout = request.fixed.layout.value_or(Layout::contiguous)};
  if (request.model->indexer) {
    around.strategy = strategies::gathering().name;
  }
  return plan_of(request, point, around, zero);
}

AttentionQuestion attention_of(const Request& request, const StepPoint& point) {
  AttentionQuestion question = attention_question(
      request, plan_of(request, point, {.ring = point.sequence}, 0), request.problem);
  if (request.model->linear && !question.request.fixed.layout &&
      !splits_linear_heads(*request.model, point.tensor, point.sequence)) {
    question.request.fixed.layout = Layout::contiguous;  // of which alone states are handed on
  }
  const bool all = point.sequence == request.gpus;
  if (!all && !question.request.fixed.rank_order) {
    question.request.fixed.rank_order = RankOrder::block;  // of one axis among others
  }
  return question;
}

}  // namespace spp
