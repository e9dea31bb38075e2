// One clock in one file: passes, pipeline, gradients and what is sent are read off the same state.
#include "step/cost.hpp"

#include "base/error.hpp"
#include "parallel/pipeline/walk.hpp"
#include "step/memory.hpp"
#include "step/stages.hpp"
#include "step/timeline.hpp"
#include "step/weights.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spp {
namespace {

/// A layer of one kind, or an end of the model.
struct LayerCost {
  Pass forward, backward;
  HeldWeights weights;
  double moved = 0;  // seconds in which what it keeps goes to the host, and comes back
};

/// Bytes a second between a GPU and its host's memory, one way: of PCI Express x16 what large
/// copies reach (12.8 of 15.8 GB/s, doubled by generation).
double host_rate(const GpuSpec& gpu) {
  const int generation = gpu.pcie.starts_with("pcie") ? gpu.pcie.back() - '0' : 4;
  return 12.8e9 * std::pow(2, generation - 3);
}

/// What the host takes for a transfer of tensor ranks beside what it takes for any.
Seconds tensor_host(const StepPractice& practice, const StepLinks& links, int ranks) {
  const double further = links.nodes(StepAxis::tensor) - 1;
  const double apart = links.nodes(StepAxis::stages) > 1 ? ranks : 0;
  return further * practice.host_tensor_node.value + apart * practice.host_tensor_rank.value;
}

class StepClock {
 public:
  StepClock(const StepRequest& request, const StepPlan& plan, AttentionCosts attention)
      : request_(request),
        plan_(plan),
        practice_(*request.practice),
        links_(*request.cluster, plan),
        costs_{.kernels = request.kernels,
               .practice = request.practice,
               .links = &links_,
               .dtype = request.dtype,
               .format = plan.format,
               .wide_attention = plan.wide_attention,
               .tensor_host = tensor_host(practice_, links_, plan.tensor),
               .experts_per_token = std::max(1, request.model->experts.per_token),
               .device_counts = practice_.device_counts.value > 0 &&
                                request.cluster->gpus_per_node() >= practice_.device_counts.value,
               .crowd = request.cluster->ranks_per_core()},
        host_rate_(host_rate(request.cluster->machine().gpu)),
        local_(local_tokens(request, plan)),
        shape_{.stages = plan.pipeline,
               .chunks = plan.virtual_stages,
               .micro_batches = static_cast<int>(plan.micro_batches)},
        order_(pipelines::by_name(plan.pipeline > 1 ? plan.order : "1f1b", "pipeline")),
        kind_of_layer_(kinds_of_layers(*request.model)),
        stages_(stages_of(*request.model, plan, request.practice->even_stages.value > 0,
                          further_predictions(*request.model, request.kind))) {
    const std::vector<LayerRun> runs = layer_runs(*request.model);
    ensure(attention.size() == runs.size(), "an attention cost for each kind of layer");
    for (std::size_t k = 0; k < runs.size(); ++k) {
      kinds_.push_back(layer_cost(runs[k].ops, plan.recompute, &attention[k]));
      if (moves_activations(plan.offload)) {
        kinds_.back().moved =
            plan.offloaded * activation_bytes(runs[k].ops, local_, plan.recompute, practice_).kept /
            host_rate_;
      }
    }
    first_ = layer_cost(first_of(*request.model), {}, nullptr);
    last_ = layer_cost(last_of(*request.model, request.kind), {}, nullptr);
    if (further_predictions(*request.model, request.kind) > 0) {
      predict_ =
          layer_cost(predict_of(*request.model), plan.recompute, &attention[kind_of_layer_.back()]);
    }
  }

  /// `timeline`: gets what happens when; of a training step.
  StepCost run(StepTimeline* timeline = nullptr) {
    chunks();
    if (request_.kind == StepKind::prefill) {
      return prefill();
    }
    timeline_ = timeline;
    const PipelineWalk walked = walk(order_, shape_, times());
    ensure(walked.stuck.empty(), "a pipeline that deadlocks");
    for (int r = 0; r < plan_.pipeline; ++r) {
      finish(r, walked.ranks[static_cast<std::size_t>(r)]);
    }
    const double gathered = add_optimizer();
    const double updated = cost_.total();
    add_gather(gathered);
    if (timeline_ != nullptr) {
      timeline_->add_end(plan_.pipeline,
                         {.reduced = ends_,
                          .updated = updated,
                          .gathered = cost_.total(),
                          .logged = cost_.total() + practice_.host_step.value.count()});
    }
    add_sent(cost_.slowest);
    cost_.parts[StepPart::launch] += practice_.host_step.value.count();
    return cost_;
  }

 private:
  LayerCost layer_cost(const TensorOps& ops, const Recomputation& recompute,
                       const AttentionCost* attention) {
    LayerCost cost{.forward = pass_of(forward_ops(ops, local_), costs_, attention),
                   .weights = held_weights(ops, plan_.split())};
    if (request_.kind == StepKind::train) {
      cost.backward = pass_of(recomputed_ops(ops, local_, recompute), costs_, attention);
      cost.backward.weight_gradients = 0;
      cost.backward += pass_of(backward_ops(ops, local_), costs_, attention);
    }
    return cost;
  }

  /// The layers of a virtual stage, its ends among them.
  std::vector<const LayerCost*> layers_of(const Stage& stage) const {
    std::vector<const LayerCost*> layers;
    if (stage.embeds) {
      layers.push_back(&first_);
    }
    for (std::int64_t i = stage.first; i < stage.first + stage.layers; ++i) {
      layers.push_back(&kinds_[kind_of_layer_[static_cast<std::size_t>(i)]]);
    }
    layers.insert(layers.end(), stage.predictions, &predict_);
    if (stage.ends) {
      layers.push_back(&last_);
    }
    return layers;
  }

  void chunks() {
    for (const Stage& stage : stages_) {
      Pass forward;
      Pass backward;
      std::vector<LayerWork> work;
      double moved = 0;
      for (const LayerCost* layer : layers_of(stage)) {
        forward += layer->forward;
        backward += layer->backward;
        moved += layer->moved;
        work.push_back({.forward = layer->forward.total(),
                        .backward = layer->backward.total(),
                        .weights = weight_times(layer->weights)});
      }
      const double host = practice_.host_micro_batch.value.count();
      // A layer's copies run beside the next one's kernels.
      forward.parts[StepPart::launch] += host / 2 + std::max(0.0, moved - forward.total());
      backward.parts[StepPart::launch] += host / 2 + std::max(0.0, moved - backward.total());
      if (sharded_layers()) {
        const Sharded sharded = gather_and_reduce(work);
        const auto beside = [&](double exposed, double hidden, Pass& pass) {
          pass.parts[StepPart::dp] += exposed;
          pass.parts[StepPart::gemm] += practice_.slowdown.value * hidden;
          pass.hidden += hidden;
        };
        beside(sharded.forward_exposed, sharded.forward_hidden, forward);
        beside(sharded.backward_exposed, sharded.backward_hidden, backward);
      }
      backward.parts[StepPart::launch] += added_on_host(stage);
      forward_.push_back(std::move(forward));
      backward_.push_back(std::move(backward));
    }
  }

  /// Gradients that lie with an offloaded optimizer: what each micro-batch gives is added there.
  [[nodiscard]] double added_on_host(const Stage& stage) const {
    if (!moves_optimizer(plan_.offload) || plan_.zero < 2 || plan_.micro_batches == 1) {
      return 0;
    }
    std::int64_t weights = 0;
    for (const LayerCost* layer : layers_of(stage)) {
      weights += layer->weights.all();
    }
    return on_host(real_of(weights) / plan_.shards(), practice_.host_add.value);
  }
  /// Seconds in which all CPUs of a node work on so many numbers of each of its ranks.
  [[nodiscard]] double on_host(double numbers, Seconds each) const {
    return std::min(plan_.world(), request_.cluster->gpus_per_node()) * numbers * each.count();
  }

  /// FSDP: weights come and go layer by layer in every micro-batch.
  [[nodiscard]] bool sharded_layers() const {
    return plan_.zero == 3 && plan_.pipeline == 1 && plan_.can_shard(*request_.model);
  }

  WeightTimes weight_times(const HeldWeights& held) {
    return {.gather = gather(held, 1), .reduce = reduce(held, plan_.zero >= 1)};
  }
  double gather(const HeldWeights& held, double pieces) {
    const double bytes = practice_.state_parameter.value;
    return in_pieces(StepAxis::weights, CommKind::all_gather, real_of(held.dense) * bytes, pieces) +
           in_pieces(StepAxis::expert_weights, CommKind::all_gather, real_of(held.experts) * bytes,
                     pieces);
  }
  /// Of a layer.
  double reduce(const HeldWeights& held, bool scatter) {
    const double bytes = practice_.gradient_bytes.value;
    const double bucket = practice_.gradient_bucket.value.as_double();
    const double all = real_of(held.all()) * bytes;
    const double pieces = scatter && plan_.zero < 3 && practice_.zero_pieces.value > 0
                              ? practice_.zero_pieces.value
                          : bucket > 0 ? std::max(1.0, std::round(all / bucket))
                                       : 1;
    const CommKind kind = scatter ? CommKind::reduce_scatter : CommKind::all_reduce;
    const double dense = real_of(held.dense) * bytes;
    return in_pieces(StepAxis::weights, kind, dense, pieces) +
           in_pieces(StepAxis::expert_weights, kind, real_of(held.experts) * bytes, pieces) +
           in_pieces(StepAxis::replicas, CommKind::all_reduce, dense / plan_.shards(), pieces);
  }
  /// Seconds of a collective in pieces, one after the other.
  double in_pieces(StepAxis axis, CommKind kind, double bytes, double pieces) {
    return pieces *
           links_.collective(axis, kind, Bytes(static_cast<std::int64_t>(bytes / pieces))).count();
  }

  PipelineTimes times() {
    PipelineTimes times{.message = message_time() + practice_.host_message.value.count(),
                        .overlap = order_.overlaps && practice_.messages_hidden.value > 0};
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const double backward = backward_[s].total();
      const double weights = std::min(backward, backward_[s].weight_gradients);
      times.stages.push_back({.forward = forward_[s].total(),
                              .input_gradient = backward - weights,
                              .weight_gradient = weights});
    }
    return times;
  }

  /// Hidden states of a micro-batch, whole.
  [[nodiscard]] Bytes hidden_bytes() const {
    return Bytes(local_.rows() * request_.model->hidden * size_of(request_.dtype));
  }
  /// Every tensor rank has them all, but gets its part of them alone (arXiv:2104.04473, 4.1).
  [[nodiscard]] bool gathers_messages() const {
    return !plan_.tensor_sequence && plan_.tensor > 1 && practice_.messages_gathered.value > 0;
  }
  /// What of them one tensor rank sends to the next stage.
  [[nodiscard]] Bytes message_bytes() const {
    const bool cut = plan_.tensor_sequence || gathers_messages();
    return Bytes(hidden_bytes().value() / (cut ? plan_.tensor : 1));
  }
  double message_time() {
    const Seconds gathered =
        gathers_messages()
            ? links_.collective(StepAxis::tensor, CommKind::all_gather, hidden_bytes())
            : Seconds(0);
    return (links_.message(message_bytes()) + gathered).count();
  }

  StepCost prefill() {
    Pass all;
    std::size_t slowest = 0;
    for (std::size_t s = 0; s < forward_.size(); ++s) {
      all += forward_[s];
      slowest = forward_[s].total() > forward_[slowest].total() ? s : slowest;
    }
    all += real_of(plan_.micro_batches - 1) * forward_[slowest];
    cost_.parts = all.parts;
    cost_.hidden = all.hidden;
    cost_.slowest = static_cast<int>(slowest) % plan_.pipeline;
    add_sent_forward(cost_.slowest);
    if (sharded_layers()) {
      add_sent_gathers(held_by(cost_.slowest), real_of(plan_.micro_batches));
    }
    cost_.parts[StepPart::pp] +=
        real_of(std::int64_t{plan_.pipeline} * plan_.virtual_stages - 1) * message_time();
    return cost_;
  }

  /// All micro-batches through the virtual stages of a rank, and on to the next rank's.
  void add_sent_forward(int rank) {
    const double micro_batches = real_of(plan_.micro_batches);
    for (int c = 0; c < plan_.virtual_stages; ++c) {
      const std::size_t s = static_cast<std::size_t>(c * plan_.pipeline + rank);
      cost_.sent += micro_batches * forward_[s].sent;
      if (s > 0 && gathers_messages()) {
        cost_.sent.at(StepAxis::tensor, CommKind::all_gather) +=
            Bytes(plan_.micro_batches *
                  links_.sent(StepAxis::tensor, CommKind::all_gather, hidden_bytes()).value());
      }
      if (s + 1 < forward_.size()) {
        cost_.sent.at(StepAxis::stages, CommKind::send_recv) +=
            Bytes(plan_.micro_batches * message_bytes().value());
      }
    }
  }

  /// The rank's gradients; keeps the rank that ends last.
  void finish(int rank, const PipelineRank& walked) {
    std::vector<Reduction> reductions;
    double all = 0;
    if (!sharded_layers()) {
      for (const StageInterval& interval : walked.ops) {
        add_reductions(rank, interval, reductions, all);
      }
    }
    const double behind = practice_.gradients_hidden.value;
    if (timeline_ != nullptr) {
      record(rank, walked, reductions, behind > 0 ? 0 : walked.end());
    }
    const double left = left_over(reductions, walked.end());
    const double exposed = behind * left + (1 - behind) * all;
    const double beside = std::max(0.0, all - exposed);
    const double slowed = practice_.slowdown.value * beside;
    const double end = walked.end() + exposed + slowed;
    if (rank > 0 && end <= ends_) {
      return;
    }
    ends_ = end;
    cost_ = {.slowest = rank};
    Pass work;
    for (int c = 0; c < plan_.virtual_stages; ++c) {
      const auto s = static_cast<std::size_t>(c * plan_.pipeline + rank);
      work += real_of(plan_.micro_batches) * forward_[s];
      work += real_of(plan_.micro_batches) * backward_[s];
    }
    cost_.parts = work.parts;
    cost_.hidden = work.hidden + beside;
    cost_.sent = work.sent;
    cost_.parts[StepPart::dp] += exposed;
    cost_.parts[StepPart::gemm] += slowed;
    cost_.parts[StepPart::pp] += walked.sending;
    cost_.parts[StepPart::bubble] += std::max(0.0, walked.end() - walked.busy - walked.sending);
  }

  void record(int rank, const PipelineRank& walked, std::span<const Reduction> reductions,
              double gradients_from) {
    const auto parts = [&](const StageOp& op) {
      const auto s = static_cast<std::size_t>(shape_.virtual_stage(rank, op.chunk));
      return op.work == StageWork::forward    ? forward_[s].parts
             : op.work == StageWork::backward ? backward_[s].parts
                                              : StepSeconds();
    };
    timeline_->add(shape_, rank, walked, times().message, parts);
    timeline_->add(rank, reductions, gradients_from);
  }
  /// Gradients leave when the backward of their layer in the last micro-batch ends (stage 2: in
  /// every one).
  void add_reductions(int rank, const StageInterval& interval, std::vector<Reduction>& reductions,
                      double& all) {
    const StageOp& op = interval.op;
    const bool gives = op.work == StageWork::backward || op.work == StageWork::weight_gradient;
    const bool last = op.micro_batch + 1 == plan_.micro_batches;
    if (!gives || !(last || plan_.zero == 2)) {
      return;
    }
    const Stage& stage = stages_[static_cast<std::size_t>(op.chunk * plan_.pipeline + rank)];
    const std::vector<const LayerCost*> layers = layers_of(stage);
    double total = 0;
    for (const LayerCost* layer : layers) {
      total += layer->backward.total();
    }
    double at = interval.begin;
    for (std::size_t i = layers.size(); i-- > 0;) {
      at += total > 0 ? layers[i]->backward.total() / total * (interval.end - interval.begin) : 0;
      const double seconds = reduce(layers[i]->weights, plan_.zero >= 1);
      reductions.push_back({.ready = at, .seconds = seconds});
      all += seconds;
    }
  }

  [[nodiscard]] double layers_on(int rank) const {
    double layers = 0;
    for (int c = 0; c < plan_.virtual_stages; ++c) {
      layers += real_of(stages_[static_cast<std::size_t>(c * plan_.pipeline + rank)].layers);
    }
    return layers;
  }

  [[nodiscard]] HeldWeights held_by(int rank) const {
    HeldWeights held;
    for (int c = 0; c < plan_.virtual_stages; ++c) {
      for (const LayerCost* layer :
           layers_of(stages_[static_cast<std::size_t>(c * plan_.pipeline + rank)])) {
        held.dense += layer->weights.dense;
        held.experts += layer->weights.experts;
      }
    }
    return held;
  }

  /// All ranks wait for the norm of all gradients, then for the one with most weights. Seconds in
  /// which that one's parameters are gathered.
  double add_optimizer() {
    double longest = 0;
    double gathered = 0;
    for (int r = 0; r < plan_.pipeline; ++r) {
      const HeldWeights held = held_by(r);
      const std::int64_t cut = plan_.zero >= 1 ? plan_.shards() : 1;
      const std::int64_t expert_cut = plan_.zero >= 1 ? links_.size(StepAxis::expert_weights) : 1;
      const std::int64_t updated =
          (held.dense + cut - 1) / cut + (held.experts + expert_cut - 1) / expert_cut;
      // Under a pipeline micro-batches' gradients add up whole.
      const bool cut_gradients = plan_.zero >= 2 && plan_.pipeline == 1;
      const std::int64_t gradients = cut_gradients ? updated : held.all();
      longest =
          std::max(longest, moves_optimizer(plan_.offload) ? host_optimizer_time(updated, gradients)
                                                           : optimizer_time(updated, gradients));
      const double by_rank = practice_.zero_by_rank.value * plan_.shards();
      const double pieces = std::max({1.0, practice_.zero_pieces.value * layers_on(r), by_rank});
      const bool once =
          plan_.zero == 1 || plan_.zero == 2 || (plan_.zero == 3 && !sharded_layers());
      gathered = std::max(gathered, once ? gather(held, pieces) : 0);
    }
    cost_.parts[StepPart::optimizer] += longest;
    return gathered;
  }

  /// fp32 gradient norm: reads 4 B a weight. Adam: reads gradient, master, m, v (16 B), writes
  /// master, m, v (12 B) and the 16 bit weight (2 B). Zeroing: writes 4 B a gradient held.
  [[nodiscard]] double optimizer_time(std::int64_t updated, std::int64_t gradients) const {
    constexpr std::int64_t norm = 4;
    constexpr std::int64_t adam = 16 + 12 + 2;
    constexpr std::int64_t zeroing = 4;
    const KernelCost& kernels = *request_.kernels;
    const Bytes update(updated * adam);
    const Bytes beside(updated * norm + gradients * zeroing);
    const RowFunction timed{.function = LayerFunction::adam};
    const Seconds time = kernels.times(timed)  // on this machine, its launch among it
                             ? kernels.row_kernel(timed, update) + kernels.memory_bound(beside) +
                                   2 * kernels.launch()
                             : kernels.memory_bound(update + beside) * practice_.optimizer.value +
                                   3 * kernels.launch();
    return time.count() * costs_.crowd;
  }

  /// The norm as above; gradients go to the host, whose CPUs update what all its ranks have, and
  /// parameters come back.
  [[nodiscard]] double host_optimizer_time(std::int64_t updated, std::int64_t gradients) const {
    const double bytes = practice_.gradient_bytes.value + practice_.state_parameter.value;
    return request_.kernels->memory_bound(Bytes(4 * gradients)).count() +
           real_of(updated) * bytes / host_rate_ +
           on_host(real_of(updated), practice_.host_update.value);
  }

  void add_sent(StepAxis axis, CommKind kind, double bytes, double times) {
    cost_.sent.at(axis, kind) += Bytes(static_cast<std::int64_t>(
        times * links_.sent(axis, kind, Bytes(static_cast<std::int64_t>(bytes))).as_double()));
  }
  /// Parameters that are gathered so many times.
  void add_sent_gathers(const HeldWeights& held, double times) {
    const double bytes = practice_.state_parameter.value;
    add_sent(StepAxis::weights, CommKind::all_gather, real_of(held.dense) * bytes, times);
    add_sent(StepAxis::expert_weights, CommKind::all_gather, real_of(held.experts) * bytes, times);
  }

  /// What weights and hidden states move from a rank.
  void add_sent(int rank) {
    const HeldWeights held = held_by(rank);
    const double micro_batches = real_of(plan_.micro_batches);
    const double reductions = plan_.zero == 2 || sharded_layers() ? micro_batches : 1;
    const double gathers = sharded_layers() ? 2 * micro_batches : plan_.zero >= 1 ? 1 : 0;
    const CommKind reduction = plan_.zero >= 1 ? CommKind::reduce_scatter : CommKind::all_reduce;
    const double bytes = practice_.gradient_bytes.value;
    add_sent(StepAxis::weights, reduction, real_of(held.dense) * bytes, reductions);
    add_sent(StepAxis::expert_weights, reduction, real_of(held.experts) * bytes, reductions);
    add_sent(StepAxis::replicas, CommKind::all_reduce, real_of(held.dense / plan_.shards()) * bytes,
             reductions);
    add_sent_gathers(held, gathers);
    if (plan_.pipeline > 1) {  // forward to the next stage, gradients to the one before
      const bool at_end = plan_.virtual_stages == 1 && (rank == 0 || rank == plan_.pipeline - 1);
      const double messages =
          real_of(plan_.micro_batches * plan_.virtual_stages) * (at_end ? 1 : 2);
      cost_.sent.at(StepAxis::stages, CommKind::send_recv) +=
          Bytes(static_cast<std::int64_t>(messages * message_bytes().as_double()));
      if (gathers_messages()) {
        add_sent(StepAxis::tensor, CommKind::all_gather, hidden_bytes().as_double(), messages);
      }
    }
  }

  /// Behind the forward of the next step's first micro-batch, as far as the stack does that.
  void add_gather(double seconds) {
    double first = 0;
    for (int c = 0; c < plan_.virtual_stages; ++c) {
      first += forward_[static_cast<std::size_t>(c * plan_.pipeline)].total();
    }
    const double hidden = practice_.parameters_hidden.value * std::min(seconds, first);
    cost_.parts[StepPart::dp] += seconds - hidden;
    cost_.parts[StepPart::gemm] += practice_.slowdown.value * hidden;
    cost_.hidden += hidden;
  }

  const StepRequest& request_;
  const StepPlan& plan_;
  const StepPractice& practice_;
  StepLinks links_;
  PassCosts costs_;
  double host_rate_;  // bytes a second
  LocalTokens local_;
  PipelineShape shape_;
  const Pipeline& order_;
  std::vector<std::size_t> kind_of_layer_;  // in kinds_
  std::vector<Stage> stages_;
  std::vector<LayerCost> kinds_;
  LayerCost first_, last_, predict_;
  std::vector<Pass> forward_, backward_;  // by virtual stage, of a micro-batch
  double ends_ = 0;
  StepCost cost_;
  StepTimeline* timeline_ = nullptr;
};

}  // namespace

namespace {

/// Bytes of a number in that format, with its part of the scales of a block of 32 or 16, over the
/// two of 16 bits.
double stored(GemmFormat format) {
  switch (format) {
    case GemmFormat::plain:
      return 1;
    case GemmFormat::fp8:
      return 1.0 / 2;
    case GemmFormat::mxfp8:
      return (1 + 1.0 / 32) / 2;
    case GemmFormat::nvfp4:
      return (0.5 + 1.0 / 16) / 2;
  }
  throw InternalError("no such GemmFormat");
}

}  // namespace

LocalTokens local_tokens(const StepRequest& request, const StepPlan& plan) {
  const std::int64_t tokens = request.seq / plan.sequence();
  const std::int64_t text = request.model->diffusion.joint_tokens;
  return {.tokens = tokens,
          .batch = plan.micro_batch,
          .dtype = request.dtype,
          .split = plan.split(),
          .joint = std::min(tokens, (text + plan.sequence() - 1) / plan.sequence()),
          .stored = request.practice->narrow_kept.value > 0 ? stored(plan.format) : 1,
          .wide_attention = plan.wide_attention};
}

StepCost step_cost(const StepRequest& request, const StepPlan& plan, AttentionCosts attention) {
  return StepClock(request, plan, attention).run();
}

StepTimeline step_timeline(const StepRequest& request, const StepPlan& plan,
                           AttentionCosts attention) {
  ensure(request.kind == StepKind::train, "a training step");
  StepTimeline timeline;
  StepClock(request, plan, attention).run(&timeline);
  return timeline;
}

}  // namespace spp
