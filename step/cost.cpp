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
  const LayerPasses* passes = nullptr;
  const AttentionCost* attention = nullptr;
  PassTime forward, backward;
  HeldWeights weights;
  double moved = 0;  // seconds in which what it keeps goes to the host, and comes back
  double forward_time = 0, backward_time = 0;
  WeightTimes moves;  // of its weights; gathers of a sharded step alone
};

/// Bytes a second between a GPU and its host's memory, one way: its own link's, or of a PCI Express
/// slot what large copies reach (12.8 of the 15.75 GB/s of generation 3); of none that is known, a
/// slot of generation 4.
double host_rate(const GpuSpec& gpu) {
  if (gpu.host_link) {
    return gpu.host_link->value.value();
  }
  constexpr double reached = 12.8 / 15.75;
  constexpr double usual = 31.5e9;
  return reached * (gpu.slot.value() > 0 ? gpu.slot.value() : usual);
}

class StepClock {
 public:
  StepClock(StepCommon& common, const StepPlan& plan, std::int64_t seq, AttentionCosts attention)
      : request_(common.request()),
        plan_(plan),
        practice_(*request_.practice),
        links_(common.links(plan)),
        crowd_(request_.cluster->ranks_per_core()),
        host_rate_(host_rate(request_.cluster->machine().gpu)),
        local_(local_tokens(request_, plan, seq)),
        shape_(plan.pipeline_shape()),
        order_(plan.pipeline_order()),
        stages_(common.stages(plan)) {
    const ModelLayers& layers = common.layers(plan.to_experts);
    ensure(attention.size() == layers.runs.size(), "an attention cost for each kind of layer");
    const ByLayer<LayerPasses>& passes = common.passes(plan, local_, links_);
    const ByLayer<HeldWeights>& weights = common.weights(plan);
    kinds_.reserve(layers.runs.size());
    for (std::size_t k = 0; k < layers.runs.size(); ++k) {
      kinds_.push_back(layer_cost(passes.kinds[k], weights.kinds[k], &attention[k]));
      kinds_.back().moved = on_bus(layers.runs[k].ops, attention[k]);
    }
    first_ = layer_cost(passes.first, weights.first, nullptr);
    last_ = layer_cost(passes.last, weights.last, nullptr);
    if (layers.predictions > 0) {
      predict_ = layer_cost(passes.predict, weights.predict, &attention[layers.predict_kind]);
      predict_.moved = on_bus(layers.predict, attention[layers.predict_kind]);
    }
    line_up(layers);
  }

  /// `timeline`: gets what happens when; of a training step.
  StepCost run(StepTimeline* timeline = nullptr) {
    chunks();
    if (request_.kind == StepKind::prefill) {
      return prefill();
    }
    timeline_ = timeline;
    const bool all_ops = timeline_ != nullptr || reduces_each_time();  // which may give gradients
    const PipelineWalk walked =
        all_ops ? walk(order_, shape_, times()) : walk_ends(order_, shape_, times());
    ensure(walked.stuck.empty(), "a pipeline that deadlocks");
    std::vector<Finish> finishes;
    for (int r = 0; r < plan_.pipeline; ++r) {
      finishes.push_back(finish(r, walked.ranks[static_cast<std::size_t>(r)]));
      ends_ = std::max(ends_, finishes.back().end);
    }
    add_slowest(finishes, walked);
    if (shares_tables()) {
      const int last = plan_.pipeline - 1;
      cost_.parts[StepPart::pp] += links_.message(table_gradient(), last).count();
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
    cost_.parts[StepPart::launch] += practice_.host_step.value.count();
    return cost_;
  }

  SentBytes sent(int rank) {
    sent_ = sent_by_layers(rank);
    if (request_.kind == StepKind::prefill) {
      add_sent_forward(rank);
    } else {
      add_sent(rank);
    }
    return sent_;
  }

 private:
  LayerCost layer_cost(const LayerPasses& passes, const HeldWeights& weights,
                       const AttentionCost* attention) {
    LayerCost cost{.passes = &passes,
                   .attention = attention,
                   .forward = passes.forward.time_with(attention),
                   .weights = weights};
    cost.forward_time = cost.forward.total();
    if (sharded_layers()) {
      cost.moves.gather = gather(weights, 1);
    }
    if (request_.kind == StepKind::train) {
      cost.backward = passes.again.time_with(attention);
      cost.backward += passes.backward.time_with(attention);
      cost.backward_time = cost.backward.total();
      cost.moves.reduce = reduce(weights, plan_.zero >= 1);
    }
    return cost;
  }

  /// Layers that stand one behind the other and cost the same.
  struct Run {
    const LayerCost* layer;
    std::int64_t layers;
  };
  /// All layers in the order in which a micro-batch meets them, the ends among them.
  void line_up(const ModelLayers& layers) {
    tables_.reserve(stages_.size());
    for (const Stage& stage : stages_) {
      begins_.push_back(line_.size());
      const auto add = [&](const LayerCost& layer, std::int64_t count) {
        if (line_.size() > begins_.back() && line_.back().layer == &layer) {
          line_.back().layers += count;
        } else {
          line_.push_back({.layer = &layer, .layers = count});
        }
      };
      if (stage.embeds) {
        add(first_, 1);
      }
      for (std::int64_t i = stage.first; i < stage.first + stage.layers; ++i) {
        add(kinds_[layers.kind_of[static_cast<std::size_t>(i)]], 1);
      }
      if (stage.predictions > 0) {
        add(predict_, static_cast<std::int64_t>(stage.predictions));
      }
      if (stage.ends) {
        add(last_, 1);
      }
      if (const std::int64_t tables =
              tables_copied(stage, request_.model->tied_embeddings, first_.weights, last_.weights);
          tables > 0) {
        static const LayerPasses none;
        add(tables_.emplace_back(layer_cost(none, {.dense = tables}, nullptr)), 1);
      }
    }
    begins_.push_back(line_.size());
  }
  /// Those of a virtual stage.
  [[nodiscard]] std::span<const Run> layers_of(std::size_t stage) const {
    return std::span(line_).subspan(begins_[stage], begins_[stage + 1] - begins_[stage]);
  }
  [[nodiscard]] std::size_t stage_of(int rank, int chunk) const {
    return static_cast<std::size_t>(shape_.virtual_stage(rank, chunk));
  }

  void chunks() {
    forward_.reserve(stages_.size());
    backward_.reserve(stages_.size());
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      PassTime forward;
      PassTime backward;
      double moved = 0;
      for (const auto& [layer, layers] : layers_of(s)) {
        forward += real_of(layers) * layer->forward;
        backward += real_of(layers) * layer->backward;
        moved += real_of(layers) * layer->moved;
      }
      const double host = practice_.host_micro_batch.value.count();
      // A layer's copies run beside the next one's kernels.
      forward.parts[StepPart::launch] += host / 2 + std::max(0.0, moved - forward.total());
      backward.parts[StepPart::launch] += host / 2 + std::max(0.0, moved - backward.total());
      if (sharded_layers()) {
        const Sharded sharded = gather_and_reduce(work_of(s));
        const auto beside = [&](double exposed, double hidden, PassTime& pass) {
          pass.parts[StepPart::dp] += exposed;
          pass.parts[StepPart::gemm] += practice_.slowdown.value * hidden;
          pass.hidden += hidden;
        };
        beside(sharded.forward_exposed, sharded.forward_hidden, forward);
        beside(sharded.backward_exposed, sharded.backward_hidden, backward);
      }
      backward.parts[StepPart::launch] += added_on_host(s);
      forward_.push_back(forward);
      backward_.push_back(backward);
    }
  }
  [[nodiscard]] std::vector<LayerWork> work_of(std::size_t stage) const {
    std::vector<LayerWork> work;
    for (const auto& [layer, layers] : layers_of(stage)) {
      work.insert(work.end(), static_cast<std::size_t>(layers),
                  {.forward = {.seconds = layer->forward_time, .links = layer->forward.links},
                   .backward = {.seconds = layer->backward_time, .links = layer->backward.links},
                   .weights = layer->moves});
    }
    return work;
  }

  /// Gradients that lie with an offloaded optimizer: what each micro-batch gives is added there.
  /// Under a pipeline they add up whole, on the GPU.
  [[nodiscard]] double added_on_host(std::size_t stage) const {
    if (!moves_optimizer(plan_.offload) || plan_.zero < 2 || plan_.pipeline > 1 ||
        plan_.micro_batches == 1) {
      return 0;
    }
    HeldWeights weights;
    for (const auto& [layer, layers] : layers_of(stage)) {
      weights += layers * layer->weights;
    }
    return on_host(real_of(weights.dense) / plan_.shards() +
                       real_of(weights.experts) / real_of(plan_.expert_replicas()),
                   practice_.host_add.value);
  }
  [[nodiscard]] double on_host(double numbers, Seconds each) const {
    return time_on_host(*request_.cluster, plan_.world(), numbers, each).count();
  }

  /// In which what such a layer keeps goes to the host, if it does.
  [[nodiscard]] double on_bus(const TensorOps& ops, const AttentionCost& attention) const {
    if (!moves_activations(plan_.offload)) {
      return 0;
    }
    const ActivationBytes bytes = activation_bytes(ops, local_, plan_.recompute, practice_);
    const Bytes beside = kept_of(attention, ops, plan_.recompute);
    return plan_.offloaded * (bytes.kept + beside.as_double()) / host_rate_;
  }

  /// FSDP: weights come and go layer by layer in every micro-batch.
  [[nodiscard]] bool sharded_layers() const {
    return plan_.zero == 3 && plan_.pipeline == 1 && plan_.can_shard(*request_.model);
  }

  [[nodiscard]] WeightTransfer gather(const HeldWeights& held, double pieces) const {
    const ParameterBytes bytes = parameters_of(held);
    WeightTransfer all = in_pieces(StepAxis::weights, CommKind::all_gather, bytes.dense, pieces);
    all += in_pieces(StepAxis::expert_weights, CommKind::all_gather, bytes.experts, pieces);
    return all;
  }
  [[nodiscard]] ParameterBytes parameters_of(const HeldWeights& held) const {
    return parameter_bytes(held, plan_.format, request_.kind, practice_);
  }
  /// Of a layer.
  [[nodiscard]] WeightTransfer reduce(const HeldWeights& held, bool scatter) const {
    const double bytes = practice_.gradient_bytes.value;
    const double bucket = practice_.gradient_bucket.value.as_double();
    const double pieces =
        scatter && plan_.zero < 3 && practice_.zero_pieces.value > 0 ? practice_.zero_pieces.value
        : bucket > 0 ? std::max(1.0, std::round(real_of(held.all()) * bytes / bucket))
                     : 1;
    const CommKind kind = scatter ? CommKind::reduce_scatter : CommKind::all_reduce;
    const double dense = real_of(held.dense) * bytes;
    WeightTransfer all = in_pieces(StepAxis::weights, kind, dense, pieces);
    all += in_pieces(StepAxis::expert_weights, kind, real_of(held.experts) * bytes, pieces);
    const double shards = all.seconds;
    const WeightTransfer copies =
        in_pieces(StepAxis::replicas, CommKind::all_reduce, dense / plan_.shards(), pieces);
    all += copies;
    if (plan_.zero >= 2) {
      // Shards of one layer are summed over their copies, on a stream of its own, while the next
      // one's are reduced (FSDPCommContext in PyTorch's fully_shard).
      all.seconds = std::max(shards, copies.seconds);
    }
    return all;
  }
  /// A collective in pieces, one after the other.
  [[nodiscard]] WeightTransfer in_pieces(StepAxis axis, CommKind kind, double bytes,
                                         double pieces) const {
    const Bytes piece(static_cast<std::int64_t>(bytes / pieces));
    return {.seconds = pieces * links_.collective(axis, kind, piece).count(),
            .links = pieces * links_.taken(axis, kind, piece)};
  }

  /// Whether the embedding's table is on a second stage, too, with which the first one all-reduces
  /// its gradient before anybody updates (_allreduce_word_embedding_grads in Megatron-Core's
  /// finalize_model_grads.py).
  [[nodiscard]] bool shares_tables() const { return !tables_.empty(); }
  /// What each of two ranks sends: half of it there and half of it back.
  [[nodiscard]] Bytes table_gradient() const {
    const bool part = plan_.zero >= 1 && practice_.whole_tables.value == 0;
    return Bytes(std::llround(real_of(first_.weights.dense) * practice_.gradient_bytes.value /
                              (part ? plan_.shards() : 1)));
  }
  [[nodiscard]] bool shares_tables(int rank) const {
    for (int c = 0; shares_tables() && c < plan_.virtual_stages; ++c) {
      const std::size_t s = stage_of(rank, c);
      const auto is_copy = [&](const Run& run) {
        return std::ranges::any_of(tables_,
                                   [&](const LayerCost& tables) { return run.layer == &tables; });
      };
      if (stages_[s].embeds || std::ranges::any_of(layers_of(s), is_copy)) {
        return true;
      }
    }
    return false;
  }

  PipelineTimes times() {
    PipelineTimes times{.overlap = order_.overlaps && practice_.messages_hidden.value > 0};
    for (int stage = 0; stage < plan_.pipeline; ++stage) {
      times.messages.push_back(message_time(stage) + practice_.host_message.value.count());
      times.across.push_back(links_.crosses_nodes(stage));
      if (plan_.pipeline > 1) {
        times.cards.push_back(links_.card(stage));
      }
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const double backward = backward_[s].total();
      const double weights = std::min(backward, backward_[s].weight_gradients);
      times.stages.push_back({.forward = forward_[s].total(),
                              .input_gradient = backward - weights,
                              .weight_gradient = weights});
    }
    return times;
  }

  /// Hidden states of a micro-batch, whole, of all residual streams.
  [[nodiscard]] Bytes hidden_bytes() const {
    return Bytes(local_.rows() * request_.model->stream_width() * size_of(request_.dtype));
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
  /// From a stage to the next one.
  [[nodiscard]] double message_time(int stage) const {
    const Seconds gathered =
        gathers_messages()
            ? links_.collective(StepAxis::tensor, CommKind::all_gather, hidden_bytes())
            : Seconds(0);
    return (links_.message(message_bytes(), stage) + gathered).count();
  }

  /// The slowest rank's work, and what it waits, for its first prompt or for the last one's end:
  /// one chunk of each other rank, as there are as many prompts as ranks where it has several.
  StepCost prefill() {
    std::vector<PassTime> ranks(static_cast<std::size_t>(plan_.pipeline));
    double through = 0;
    for (std::size_t s = 0; s < forward_.size(); ++s) {
      ranks[s % ranks.size()] += forward_[s];
      through += forward_[s].total();
    }
    const auto slowest = std::ranges::max_element(ranks, {}, &PassTime::total);
    const PassTime work = real_of(plan_.micro_batches) * *slowest;
    cost_.parts = work.parts;
    cost_.hidden = work.hidden;
    cost_.slowest = static_cast<int>(slowest - ranks.begin());
    cost_.parts[StepPart::bubble] +=
        std::max(0.0, through - slowest->total()) / plan_.virtual_stages;
    double longest = 0;  // of a rank's messages of one prompt
    for (int s = 0; s + 1 < shape_.virtual_stages(); ++s) {
      const double message = message_time(s % plan_.pipeline);
      cost_.parts[StepPart::pp] += message;
      longest = std::max(longest, plan_.virtual_stages * message);
    }
    // Prompts behind the first one come no faster than messages pass.
    cost_.parts[StepPart::pp] +=
        real_of(plan_.micro_batches - 1) * std::max(0.0, longest - slowest->total());
    return cost_;
  }

  /// What a rank's layers send in all its micro-batches.
  [[nodiscard]] SentBytes sent_by_layers(int rank) const {
    SentBytes sent;
    for (int c = 0; c < plan_.virtual_stages; ++c) {
      for (const auto& [layer, layers] : layers_of(stage_of(rank, c))) {
        const std::int64_t times = layers * plan_.micro_batches;
        for (const PassAround* pass :
             {&layer->passes->forward, &layer->passes->again, &layer->passes->backward}) {
          sent += times * pass->sent_with(layer->attention);
        }
      }
    }
    return sent;
  }

  /// All micro-batches through the virtual stages of a rank, and on to the next rank's.
  void add_sent_forward(int rank) {
    if (sharded_layers()) {
      add_sent_gathers(held_by(rank), real_of(plan_.micro_batches));
    }
    for (int c = 0; c < plan_.virtual_stages; ++c) {
      const std::size_t s = stage_of(rank, c);
      if (s > 0 && gathers_messages()) {
        sent_.at(StepAxis::tensor, CommKind::all_gather) +=
            Bytes(plan_.micro_batches *
                  links_.sent(StepAxis::tensor, CommKind::all_gather, hidden_bytes()).value());
      }
      if (stages_.size() > 1) {  // the last one gets what the one before it sends
        sent_.at(StepAxis::stages, CommKind::send_recv) +=
            Bytes(plan_.micro_batches * message_bytes().value());
      }
    }
  }

  /// The backwards of a rank, of one micro-batch.
  [[nodiscard]] LayerPass backwards_of(int rank) const {
    PassTime all;
    for (int c = 0; c < plan_.virtual_stages; ++c) {
      all += backward_[stage_of(rank, c)];
    }
    return {.seconds = all.total(), .links = all.links};
  }
  /// A rank behind its last micro-batch: what of its gradients nothing hides, and what they slow.
  struct Finish {
    double end = 0, exposed = 0, slowed = 0, beside = 0;
  };
  Finish finish(int rank, const PipelineRank& walked) {
    reductions_.clear();
    double all = 0;
    if (!sharded_layers()) {
      for (std::size_t i = first_giving(walked); i < walked.ops.size(); ++i) {
        if (gives_gradients(walked.ops[i].op)) {
          add_reductions(rank, walked.ops[i], all);
        }
      }
    }
    const double behind = practice_.gradients_hidden.value;
    const double left = move_gradients(reductions_, behind > 0 ? 0 : walked.end(), walked.end(),
                                       backwards_of(rank));
    if (timeline_ != nullptr) {
      record(rank, walked);
    }
    const double exposed = behind * left + (1 - behind) * all;
    const double beside = std::max(0.0, all - exposed);
    const double slowed = practice_.slowdown.value * beside;
    return {.end = walked.end() + exposed + slowed,
            .exposed = exposed,
            .slowed = slowed,
            .beside = beside};
  }

  /// The parts are those of the rank that works longest, of equal ones of that which ends last;
  /// what it waits until all have ended is the pipeline's bubble.
  void add_slowest(std::span<const Finish> finishes, const PipelineWalk& walked) {
    int slowest = 0;
    const auto works = [&](int r) {
      const PipelineRank& rank = walked.ranks[static_cast<std::size_t>(r)];
      return rank.busy + rank.sending;
    };
    constexpr double equal = 1e-9;
    for (int r = 1; r < plan_.pipeline; ++r) {
      const double more = works(r) - works(slowest);
      const bool later = finishes[static_cast<std::size_t>(r)].end >
                         finishes[static_cast<std::size_t>(slowest)].end;
      if (more > equal * works(slowest) || (more >= -equal * works(slowest) && later)) {
        slowest = r;
      }
    }
    PassTime work;
    for (int c = 0; c < plan_.virtual_stages; ++c) {
      work += real_of(plan_.micro_batches) * forward_[stage_of(slowest, c)];
      work += real_of(plan_.micro_batches) * backward_[stage_of(slowest, c)];
    }
    const Finish& own = finishes[static_cast<std::size_t>(slowest)];
    const PipelineRank& rank = walked.ranks[static_cast<std::size_t>(slowest)];
    cost_ = {.parts = work.parts, .hidden = work.hidden + own.beside, .slowest = slowest};
    cost_.parts[StepPart::dp] += own.exposed;
    cost_.parts[StepPart::gemm] += own.slowed;
    const double waits = std::max(0.0, ends_ - own.exposed - own.slowed - rank.busy - rank.sending);
    const double for_messages = std::min(waits, late_by_messages(walked));
    cost_.parts[StepPart::pp] += rank.sending + for_messages;
    cost_.parts[StepPart::bubble] += waits - for_messages;
  }

  /// By how much stages end later for messages that wait for each other on shared cards. Elsewhere
  /// they are short, and what stages wait for is each other.
  [[nodiscard]] double late_by_messages(const PipelineWalk& walked) {
    PipelineTimes free = times();
    if (!free.share_cards() || !free.overlap) {
      return 0;
    }
    free.cards.clear();
    std::ranges::fill(free.messages, 0.0);
    return std::max(0.0, walked.end() - walk_ends(order_, shape_, free).end());
  }

  void record(int rank, const PipelineRank& walked) {
    const auto parts = [&](const StageOp& op) {
      const std::size_t s = stage_of(rank, op.chunk);
      return op.work == StageWork::forward    ? forward_[s].parts
             : op.work == StageWork::backward ? backward_[s].parts
                                              : StepSeconds();
    };
    timeline_->add(shape_, rank, walked, times(), parts);
    timeline_->add(rank, reductions_);
  }
  /// Gradients leave when the backward of their layer in the last micro-batch ends (shards of them
  /// under stage 2 without a pipeline: in every one).
  [[nodiscard]] bool gives_gradients(const StageOp& op) const {
    return (op.work == StageWork::backward || op.work == StageWork::weight_gradient) &&
           (op.micro_batch + 1 == plan_.micro_batches || reduces_each_time());
  }
  /// Under a pipeline micro-batches' gradients add up whole.
  [[nodiscard]] bool reduces_each_time() const {
    return plan_.zero == 2 && plan_.pipeline == 1 && plan_.can_shard(*request_.model);
  }
  /// No op of a rank before this one gives any: of the last micro-batch each chunk gives once.
  [[nodiscard]] std::size_t first_giving(const PipelineRank& walked) const {
    std::size_t first = reduces_each_time() ? 0 : walked.ops.size();
    for (int left = plan_.virtual_stages; left > 0 && first > 0;) {
      left -= gives_gradients(walked.ops[--first].op) ? 1 : 0;
    }
    return first;
  }
  void add_reductions(int rank, const StageInterval& interval, double& all) {
    const std::span<const Run> layers = layers_of(stage_of(rank, interval.op.chunk));
    double total = 0;
    for (const Run& run : layers) {
      total += real_of(run.layers) * run.layer->backward_time;
    }
    double at = interval.begin;
    for (std::size_t i = layers.size(); i-- > 0;) {
      const LayerCost& layer = *layers[i].layer;
      const double takes =
          total > 0 ? layer.backward_time / total * (interval.end - interval.begin) : 0;
      for (std::int64_t left = layers[i].layers; left > 0; --left) {
        at += takes;
        reductions_.push_back({.ready = at, .transfer = layer.moves.reduce});
        all += layer.moves.reduce.seconds;
      }
    }
  }

  [[nodiscard]] double layers_on(int rank) const {
    double layers = 0;
    for (int c = 0; c < plan_.virtual_stages; ++c) {
      layers += real_of(stages_[stage_of(rank, c)].layers);
    }
    return layers;
  }

  [[nodiscard]] HeldWeights held_by(int rank) const {
    HeldWeights held;
    for (int c = 0; c < plan_.virtual_stages; ++c) {
      for (const auto& [layer, layers] : layers_of(stage_of(rank, c))) {
        held += layers * layer->weights;
      }
    }
    return held;
  }

  /// What the backward of a sharded step gathers again: the last layer's weights are still there.
  [[nodiscard]] HeldWeights before_last() const {
    HeldWeights held;
    for (const Run& run : line_) {
      held += (run.layers - (&run == &line_.back() ? 1 : 0)) * run.layer->weights;
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
      longest = std::max(
          longest,
          moves_optimizer(plan_.offload)
              ? host_optimizer_time(updated, gradients)
              : crowd_ * update_time(*request_.kernels, practice_, updated, gradients).count());
      const double by_rank = practice_.zero_by_rank.value * plan_.shards();
      const double pieces = std::max({1.0, practice_.zero_pieces.value * layers_on(r), by_rank});
      const bool once =
          plan_.zero == 1 || plan_.zero == 2 || (plan_.zero == 3 && !sharded_layers());
      gathered = std::max(gathered, once ? gather(held, pieces).seconds : 0);
    }
    cost_.parts[StepPart::optimizer] += longest;
    return gathered;
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
    sent_.at(axis, kind) += Bytes(static_cast<std::int64_t>(
        times * links_.sent(axis, kind, Bytes(static_cast<std::int64_t>(bytes))).as_double()));
  }
  /// Parameters that are gathered so many times.
  void add_sent_gathers(const HeldWeights& held, double times) {
    const ParameterBytes bytes = parameters_of(held);
    add_sent(StepAxis::weights, CommKind::all_gather, bytes.dense, times);
    add_sent(StepAxis::expert_weights, CommKind::all_gather, bytes.experts, times);
  }

  /// What weights and hidden states move from a rank.
  void add_sent(int rank) {
    const HeldWeights held = held_by(rank);
    const double micro_batches = real_of(plan_.micro_batches);
    const double reductions = sharded_layers() || reduces_each_time() ? micro_batches : 1;
    const CommKind reduction = plan_.zero >= 1 ? CommKind::reduce_scatter : CommKind::all_reduce;
    const double bytes = practice_.gradient_bytes.value;
    add_sent(StepAxis::weights, reduction, real_of(held.dense) * bytes, reductions);
    add_sent(StepAxis::expert_weights, reduction, real_of(held.experts) * bytes, reductions);
    add_sent(StepAxis::replicas, CommKind::all_reduce, real_of(held.dense / plan_.shards()) * bytes,
             reductions);
    if (sharded_layers()) {
      add_sent_gathers(held, micro_batches);
      add_sent_gathers(before_last(), micro_batches);
    } else if (plan_.zero >= 1) {
      add_sent_gathers(held, 1);
    }
    if (shares_tables(rank)) {
      sent_.at(StepAxis::stages, CommKind::all_reduce) += table_gradient();
    }
    if (plan_.pipeline > 1) {  // forward to the next stage, gradients to the one before
      const int at_end = rank == 0 || rank == plan_.pipeline - 1 ? 1 : 0;
      const double messages = real_of(plan_.micro_batches * (2 * plan_.virtual_stages - at_end));
      sent_.at(StepAxis::stages, CommKind::send_recv) +=
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
  double crowd_;      // kernels that all ranks run at once take longer by this
  double host_rate_;  // bytes a second
  LocalTokens local_;
  PipelineShape shape_;
  const Pipeline& order_;
  const std::vector<Stage>& stages_;
  std::vector<LayerCost> kinds_;
  LayerCost first_, last_, predict_;
  std::vector<LayerCost> tables_;  // that stages have copies of
  std::vector<Run> line_;
  std::vector<std::size_t> begins_;           // in line_, of each virtual stage
  std::vector<PassTime> forward_, backward_;  // by virtual stage, of a micro-batch
  std::vector<Reduction> reductions_;         // of the rank at hand
  double ends_ = 0;
  StepCost cost_;
  SentBytes sent_;
  StepTimeline* timeline_ = nullptr;
};

}  // namespace

StepCost step_cost(StepCommon& common, const StepPlan& plan, std::int64_t seq,
                   AttentionCosts attention) {
  return StepClock(common, plan, seq, attention).run();
}

SentBytes step_sent(StepCommon& common, const StepPlan& plan, std::int64_t seq,
                    AttentionCosts attention, int stage) {
  return StepClock(common, plan, seq, attention).sent(stage);
}

StepTimeline step_timeline(StepCommon& common, const StepPlan& plan, std::int64_t seq,
                           AttentionCosts attention) {
  ensure(common.request().kind == StepKind::train, "a training step");
  StepTimeline timeline;
  StepClock(common, plan, seq, attention).run(&timeline);
  return timeline;
}

}  // namespace spp
