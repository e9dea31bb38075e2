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

/// Of one micro-batch on one rank.
struct LayerCost {
  double forward = 0;                // seconds, without attention over the sequence and the host
  std::array<double, 3> backward{};  // by Recompute
  /// Of both, nothing again: what kernels take and stand, and what the host takes to issue them.
  double standing = 0, host = 0;
  std::array<double, 3> kept{};  // bytes
  std::array<double, 3> working{};
  double cached = 0;
  HeldWeights weights;
};
struct LayersCost {
  std::vector<LayerCost> kinds;
  LayerCost first, last;
  // Of all layers and both ends.
  double forward = 0, standing = 0, host = 0;
  std::array<double, 3> backward{};
  /// Forward and backward take so long at most; beside attention that is not bound by the host.
  [[nodiscard]] double most() const { return std::max(standing, host); }
  [[nodiscard]] double least() const { return forward + backward.front(); }
  // Of the cheapest kind.
  double layer_forward = 0;
  std::array<double, 3> layer_both{};
};

/// What stands on a virtual stage.
struct StageKinds {
  std::vector<std::int64_t> layers;  // by kind
  std::int64_t own_mask = 0;         // of these, such as attend as the request says
  bool embeds = false, ends = false;
};

class Space {
 public:
  Space(const Request& request, StepEvaluator& evaluator)
      : request_(request),
        model_(*request.model),
        evaluator_(evaluator),
        common_(evaluator.common()),
        dispatchers_(dispatchers_of(request)),
        train_(request.phase == StepPhase::train) {
    for (const LayerRun& run : common_.layers({}).runs) {
      own_mask_ += has_own_mask(run) ? run.layers : 0;
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
    const std::int64_t most = (model_.layers + 2) / point.pipeline;
    for (int v = 2; may && v <= most; ++v) {
      if (can_stage(model_, std::int64_t{point.pipeline} * v, StepKind::train)) {
        result.push_back(v);
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
    point.attention = attention.least;
    for (const Recompute recompute : recomputations) {
      const bool wanted =
          train_ ? request_.step.recompute.value_or(recompute) == recompute &&
                       (request_.framework == nullptr ||
                        request_.framework->recomputes(recomputation_of(request_, recompute)))
                 : recompute == Recompute::none;
      if (wanted) {
        point.recompute = recompute;
        point.mean = mean_work(point, cost);
        point.most = most_work(point, plan, cost);
        point.memory = bytes(point, plan, cost);
        if (!loses(point, plan)) {
          space_.points.push_back(point);
        }
      }
    }
  }
  /// Another way to experts is faster, whatever it asks of the host, and needs no more memory:
  /// around attention, which is the same.
  [[nodiscard]] bool loses(const StepPoint& point, StepPlan plan) {
    const double own = layers_cost(point, plan).least();
    const std::span<const Dispatcher> others = ways(point);
    return std::ranges::any_of(others, [&](Dispatcher way) {
      if (way == point.to_experts) {
        return false;
      }
      StepPoint other = point;
      other.to_experts = plan.to_experts = way;
      const LayersCost& cost = layers_cost(other, plan);
      return cost.most() < own && mean_work(other, cost).around < point.mean.around &&
             most_work(other, plan, cost).around < point.most.around &&
             bytes(other, plan, cost) <= point.memory;
    });
  }

  // ---- bounds
  [[nodiscard]] bool has_own_mask(const LayerRun& run) const {
    return run.attends && run.mask == model_.mask;
  }
  [[nodiscard]] RankWork mean_work(const StepPoint& point, const LayersCost& cost) const {
    const auto r = static_cast<std::size_t>(point.recompute);
    const double micro_batches = real_of(point.micro_batches) / point.pipeline;
    // A layout by hand may leave its last two stages without a layer.
    const int without = model_.predict_layers > 0 ? 2 : 0;
    return {.around = micro_batches * (cost.forward + (train_ ? cost.backward.at(r) : 0)) +
                      std::max(0, point.pipeline - 1 - without) * pass_of_chunk(point, cost),
            .calls = micro_batches * real_of(own_mask_)};
  }
  /// Of the rank with most: it waits for the ranks before it.
  [[nodiscard]] RankWork most_work(const StepPoint& point, const StepPlan& plan,
                                   const LayersCost& cost) {
    const std::vector<StageKinds>& stages = stage_kinds(plan);
    const auto r = static_cast<std::size_t>(point.recompute);
    const double call = point.seconds_of(point.attention);
    const double micro_batches = real_of(point.micro_batches);
    RankWork most;
    double longest = -1;
    for (int rank = 0; rank < point.pipeline; ++rank) {
      RankWork work;
      const auto add = [&](double n, const LayerCost& kind) {
        work.around += n * micro_batches * (kind.forward + (train_ ? kind.backward.at(r) : 0));
      };
      for (int chunk = 0; chunk < point.virtual_stages; ++chunk) {
        const StageKinds& stage = stages[static_cast<std::size_t>(chunk * point.pipeline + rank)];
        for (std::size_t k = 0; k < stage.layers.size(); ++k) {
          add(real_of(stage.layers[k]), cost.kinds[k]);
        }
        work.calls += micro_batches * real_of(stage.own_mask);
        add(stage.embeds ? 1 : 0, cost.first);
        add(stage.ends ? 1 : 0, cost.last);
      }
      const int before = model_.predict_layers > 0 ? std::max(0, rank - 2) : rank;
      work.around += before * pass_of_chunk(point, cost);
      if (const double all = work.around + work.calls * call; all > longest) {
        longest = all;
        most = work;
      }
    }
    return most;
  }
  /// Seconds that a micro-batch spends on a stage before it comes to the next, and on its way back,
  /// at least.
  [[nodiscard]] double pass_of_chunk(const StepPoint& point, const LayersCost& cost) const {
    const double layers = std::max<double>(
        0, real_of((model_.layers - 1) / (std::int64_t{point.pipeline} * point.virtual_stages)));
    return layers * (point.order == "zero-bubble" || !train_
                         ? cost.layer_forward
                         : cost.layer_both.at(static_cast<std::size_t>(point.recompute)));
  }

  /// Of the fullest rank.
  [[nodiscard]] Bytes bytes(const StepPoint& point, const StepPlan& plan, const LayersCost& cost) {
    const std::vector<StageKinds>& stages = stage_kinds(plan);
    const int zero = zero_stages(request_, point).back();
    double most = 0;
    for (int rank = 0; rank < point.pipeline; ++rank) {
      const RankBytes bytes = bytes_of_rank(point, cost, stages, rank);
      most = std::max(most, states_of(point, plan, zero, bytes.held) + bytes.rest);
    }
    constexpr double believed = 1e18;
    return Bytes(static_cast<std::int64_t>(std::min(believed, most)));
  }
  struct RankBytes {
    HeldWeights held;
    double rest = 0;  // bytes beside its states
  };
  [[nodiscard]] RankBytes bytes_of_rank(const StepPoint& point, const LayersCost& cost,
                                        const std::vector<StageKinds>& stages, int rank) const {
    const auto r = static_cast<std::size_t>(point.recompute);
    HeldWeights held;
    double kept = std::numeric_limits<double>::infinity();  // of the chunk that keeps least
    double working = 0, cached = 0;
    bool ends = false;
    for (int chunk = 0; chunk < point.virtual_stages; ++chunk) {
      const StageKinds& stage = stages[static_cast<std::size_t>(chunk * point.pipeline + rank)];
      double own = 0;
      for (std::size_t k = 0; k < stage.layers.size(); ++k) {
        const double n = real_of(stage.layers[k]);
        const LayerCost& kind = cost.kinds[k];
        held += stage.layers[k] * kind.weights;
        own += n * kind.kept.at(r);
        cached += n * kind.cached;
        working = n > 0 ? std::max(working, kind.working.at(r)) : working;
      }
      kept = std::min(kept, own);
      held += stage.embeds ? cost.first.weights : HeldWeights{};
      held += stage.ends ? cost.last.weights : HeldWeights{};
      ends = ends || stage.ends;
    }
    if (!train_) {
      return {.held = held, .rest = real_of(point.micro_batches) * cached};
    }
    const StepPractice& practice = evaluator_.practice();
    const double rows = real_of(request_.problem.seq / point.sequence * point.micro_batch);
    const double logits = ends ? rows * real_of(model_.vocab) / point.tensor *
                                     practice.logit_bytes.value * practice.logit_part.value
                               : 0;
    const double on_their_way = moves_activations(request_.step.offload.value_or(Offload::none))
                                    ? 0
                                    : point.virtual_stages * kept * in_flight(point, rank, ends);
    return {.held = held, .rest = on_their_way + working + logits};
  }
  /// Micro-batches of which a rank holds every chunk's activations, at least.
  [[nodiscard]] double in_flight(const StepPoint& point, int rank, bool ends) const {
    const double all = real_of(point.micro_batches);
    if (const double room = evaluator_.practice().stage_buffers.value;
        room > 0 && point.pipeline > 1 && !ends) {
      return room * point.pipeline;
    }
    return point.order == "gpipe" ? all : std::min<double>(point.pipeline - rank, all);
  }
  /// Parameters, gradients and the optimizer's, cut as far as the question allows.
  [[nodiscard]] double states_of(const StepPoint& point, const StepPlan& plan, int zero,
                                 const HeldWeights& held) const {
    const StepPractice& practice = evaluator_.practice();
    const double part =
        real_of(held.dense) / plan.shards() + real_of(held.experts) / plan.expert_replicas();
    const double whole = real_of(held.all());
    const bool cut = zero >= 2 && point.pipeline == 1;
    const ParameterBytes parameters =
        parameter_bytes(held, plan.format, kind_of(request_.phase), practice);
    double all = zero == 3 && point.pipeline == 1 ? parameters.dense / plan.shards() +
                                                        parameters.experts / plan.expert_replicas()
                                                  : parameters.all();
    if (train_) {
      const bool on_host = moves_optimizer(plan.offload);
      all += cut && on_host ? 0 : (cut ? part : whole) * practice.state_gradient.value;
      all += on_host ? 0 : (zero >= 1 ? part : whole) * practice.state_optimizer.value;
    }
    return all;
  }

  const std::vector<StageKinds>& stage_kinds(const StepPlan& plan) {
    const auto [at, fresh] = stage_kinds_.try_emplace({plan.pipeline, plan.virtual_stages});
    if (fresh) {
      const ModelLayers& layers = common_.layers(plan.to_experts);
      for (const Stage& stage : common_.stages(plan)) {
        StageKinds kinds{.layers = std::vector<std::int64_t>(layers.runs.size()),
                         .embeds = stage.embeds,
                         .ends = stage.ends};
        for (std::int64_t i = stage.first; i < stage.first + stage.layers; ++i) {
          const std::size_t kind = layers.kind_of[static_cast<std::size_t>(i)];
          ++kinds.layers[kind];
          kinds.own_mask += has_own_mask(layers.runs[kind]) ? 1 : 0;
        }
        at->second.push_back(std::move(kinds));
      }
    }
    return at->second;
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
    const StepLinks links = common_.links(plan);
    const LocalTokens local = local_tokens(common_.request(), plan, request_.problem.seq);
    const ModelLayers& layers = common_.layers(plan.to_experts);
    const ByLayer<HeldWeights>& weights = common_.weights(plan);
    LayersCost all;
    all.kinds.resize(layers.runs.size());
    for (std::size_t r = 0; r < (train_ ? recomputations.size() : 1); ++r) {
      plan.recompute = recomputation_of(request_, recomputations.at(r));
      const ByLayer<LayerPasses>& passes = common_.passes(plan, local, links);
      const ByLayer<LayerBytes>& bytes = common_.bytes(plan, local);
      for (std::size_t k = 0; k < all.kinds.size(); ++k) {
        fill(all.kinds[k], r, passes.kinds[k], bytes.kinds[k]);
        all.kinds[k].weights = weights.kinds[k];
      }
      fill(all.first, r, passes.first, bytes.first);
      fill(all.last, r, passes.last, bytes.last);
    }
    all.first.weights = weights.first;
    all.last.weights = weights.last;
    all.layer_forward = std::numeric_limits<double>::infinity();
    all.layer_both.fill(std::numeric_limits<double>::infinity());
    const auto add = [&](const LayerCost& cost, std::int64_t layers_of_it) {
      const double n = real_of(layers_of_it);
      all.forward += n * cost.forward;
      all.standing += n * cost.standing;
      all.host += n * cost.host;
      for (std::size_t r = 0; r < recomputations.size(); ++r) {
        all.backward.at(r) += n * cost.backward.at(r);
      }
    };
    for (std::size_t k = 0; k < all.kinds.size(); ++k) {
      const LayerCost& kind = all.kinds[k];
      add(kind, layers.runs[k].layers);
      all.layer_forward = std::min(all.layer_forward, kind.forward);
      for (std::size_t r = 0; r < recomputations.size(); ++r) {
        all.layer_both.at(r) = std::min(all.layer_both.at(r), kind.forward + kind.backward.at(r));
      }
    }
    add(all.first, 1);
    add(all.last, 1);
    return all;
  }
  /// With recomputation `r`.
  void fill(LayerCost& cost, std::size_t r, const LayerPasses& passes,
            const LayerBytes& bytes) const {
    const auto seconds = [](const PassAround& pass) {  // the host's may hide behind attention
      return pass.time.total() - pass.time.parts[StepPart::launch];
    };
    cost.forward = seconds(passes.forward);
    cost.standing = passes.forward.time.total();
    cost.host = passes.forward.host;
    if (train_) {
      cost.backward.at(r) = seconds(passes.again) + seconds(passes.backward);
      cost.standing += passes.backward.time.total();
      cost.host += passes.backward.host;
    }
    cost.kept.at(r) = bytes.kept;
    cost.working.at(r) = bytes.working;
    cost.cached = bytes.cached;
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
  const StepEvaluator& evaluator_;
  StepCommon& common_;
  std::vector<Dispatcher> dispatchers_;
  bool train_ = true;
  std::int64_t own_mask_ = 0;  // layers that attend as the request says
  std::map<std::tuple<int, int, int, int, Dispatcher, std::int64_t>, LayersCost> layers_;
  std::map<std::tuple<int, int, std::int64_t>, Attention> attention_;
  std::map<std::pair<int, int>, std::vector<StageKinds>> stage_kinds_;
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
                      .layout = request.fixed.layout.value_or(Layout::contiguous),
                      .rank_order = request.fixed.rank_order.value_or(RankOrder::block)};
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
