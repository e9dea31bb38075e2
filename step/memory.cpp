#include "step/memory.hpp"

#include "base/error.hpp"
#include "parallel/pipeline/walk.hpp"
#include "step/cost.hpp"
#include "transformer/activations.hpp"
#include "transformer/layer_kernels.hpp"

#include <algorithm>
#include <numeric>
#include <set>

namespace spp {
namespace {

/// Sizes of absurd requests would overflow; 10^18 bytes fit nowhere, and eight of them add up.
Bytes capped(double bytes) {
  constexpr double most = 1e18;
  return Bytes(static_cast<std::int64_t>(std::min(most, bytes)));
}

struct LayerMemory {
  LayerBytes bytes;
  HeldWeights weights;
};

class StepMemory {
 public:
  StepMemory(StepCommon& common, const StepPlan& plan, std::int64_t seq, AttentionCosts attention)
      : request_(common.request()),
        layers_(common.layers(plan.to_experts)),
        plan_(plan),
        practice_(*request_.practice),
        local_(local_tokens(request_, plan, seq)),
        stages_(common.stages(plan)) {
    const ByLayer<LayerBytes>& bytes = common.bytes(plan, local_);
    const ByLayer<HeldWeights>& weights = common.weights(plan);
    for (std::size_t k = 0; k < layers_.runs.size(); ++k) {
      kinds_.push_back({.bytes = bytes.kinds[k], .weights = weights.kinds[k]});
    }
    first_ = {.bytes = bytes.first, .weights = weights.first};
    last_ = {.bytes = bytes.last, .weights = weights.last};
    last_.bytes.working = std::max(0.0, last_.bytes.working - logit_gradients_spared());
    last_.bytes.cut = std::max(0.0, last_.bytes.cut - logit_gradients_spared());
    predict_ = {.bytes = bytes.predict, .weights = weights.predict};
    for (std::size_t k = 0; k < attention.size(); ++k) {
      const Bytes kept = kept_of(attention[k], layers_.runs[k].ops, plan.recompute);
      kinds_[k].bytes.kept += kept.as_double();
      buffers_ = std::max(buffers_, attention[k].buffers - kept);
    }
    if (layers_.predictions > 0 && !attention.empty()) {
      predict_.bytes.kept +=
          kept_of(attention[layers_.predict_kind], layers_.predict, plan.recompute).as_double();
    }
  }

  std::vector<MemoryBytes> run() const {
    std::vector<MemoryBytes> stages;
    for (int r = 0; r < plan_.pipeline; ++r) {
      stages.push_back(of_rank(r));
    }
    return stages;
  }

 private:
  /// What a chunk holds of a micro-batch; adds its weights, and its largest layers or sums, to
  /// `most`.
  HeldByChunk held_by(const Stage& stage, LayerMemory& most) const {
    HeldByChunk held;
    double sums = 0;
    const auto add = [&](const LayerMemory& layer) {
      held.forward += layer.bytes.kept;
      held.input_gradient += layer.bytes.cut;
      sums += layer.bytes.sums;
      most.bytes.working = std::max(most.bytes.working, layer.bytes.working);
      most.bytes.forward = std::max(most.bytes.forward, layer.bytes.forward);
      most.bytes.cached += layer.bytes.cached;
      most.weights += layer.weights;
    };
    if (stage.embeds) {
      add(first_);
    }
    for (std::int64_t i = stage.first; i < stage.first + stage.layers; ++i) {
      add(kinds_[layers_.kind_of[static_cast<std::size_t>(i)]]);
    }
    for (std::size_t i = 0; i < stage.predictions; ++i) {
      LayerMemory predict = predict_;
      predict.bytes.kept -= logits_kept();
      add(predict);
    }
    if (stage.ends) {
      LayerMemory last = last_;
      last.bytes.kept -= logits_kept();
      add(last);
    }
    most.weights.dense +=
        tables_copied(stage, request_.model->tied_embeddings, first_.weights, last_.weights);
    most.bytes.sums = std::max(most.bytes.sums, sums);
    return held;
  }

  /// Gradients of logits that a chunked loss never holds at once.
  [[nodiscard]] double logit_gradients_spared() const {
    return (1 - practice_.logit_part.value) * static_cast<double>(size_of(request_.dtype)) *
           real_of(local_.rows()) * vocabulary_part();
  }
  /// fp32 probabilities, which `logits` counts.
  [[nodiscard]] double logits_kept() const {
    return request_.model->vocab > 0
               ? practice_.kept.value * 4.0 * real_of(local_.rows()) * vocabulary_part()
               : 0;
  }
  /// What the loss of a micro-batch leaves for its backward, of what `logits` counts; one in parts
  /// leaves nothing.
  [[nodiscard]] double logits_waiting() const {
    const bool whole = practice_.logit_part.value == 1;
    return whole ? practice_.logit_kept.value * real_of(local_.rows()) * vocabulary_part() : 0;
  }
  [[nodiscard]] double vocabulary_part() const {
    return real_of((request_.model->vocab + plan_.tensor - 1) / plan_.tensor);
  }

  [[nodiscard]] MemoryBytes of_rank(int rank) const {
    MemoryBytes bytes;
    LayerMemory most;
    std::vector<HeldByChunk> held;
    std::vector<HeldByChunk> logits;
    bool ends = false;
    bool has_head = false;
    std::int64_t table = 0;  // weights of the largest one
    for (int c = 0; c < plan_.virtual_stages; ++c) {
      const Stage& stage = stage_of(rank, c);
      const std::size_t heads = (stage.ends ? 1 : 0) + stage.predictions;
      held.push_back(held_by(stage, most));
      logits.push_back({.forward = static_cast<double>(heads) * logits_waiting()});
      ends = ends || stage.ends;
      has_head = has_head || heads > 0;
      table = std::max(
          {table, stage.embeds ? first_.weights.all() : 0, heads > 0 ? last_.weights.all() : 0});
    }
    add_states(most.weights, real_of(table), bytes);
    bytes.attention_buffers = buffers_;
    const double rows = real_of(request_.kind == StepKind::train ? local_.rows() : local_.batch);
    if (has_head) {
      // Those of one micro-batch and head at the peak, and what the others leave.
      const double others =
          request_.kind == StepKind::train ? most_in_flight(rank, logits) - logits_waiting() : 0;
      bytes.logits = capped(others + rows * vocabulary_part() * practice_.logit_bytes.value *
                                         practice_.logit_part.value);
    }
    if (request_.kind == StepKind::train) {
      const double room = practice_.stage_buffers.value * plan_.pipeline;
      double waiting = most_in_flight(rank, held);
      if (room > 0 && plan_.pipeline > 1 && !ends) {
        waiting = 0;
        for (const HeldByChunk& chunk : held) {
          waiting += room * chunk.forward;
        }
      }
      if (moves_activations(plan_.offload)) {
        const double moving = 2 * real_of(most_layers_kept());  // one in use, one on its way
        waiting = plan_.offloaded * std::min(moving, waiting) + (1 - plan_.offloaded) * waiting;
      }
      bytes.activations = capped(waiting + most.bytes.working);
      bytes.communication += capped(practice_.kept_outputs.value * outputs_of(rank));
      if (practice_.dummy_gradients.value > 0) {
        bytes.gradients += capped(dummies(ends));
      }
    } else {
      // Keys and values stay of all prompts.
      bytes.activations =
          capped(most.bytes.forward + real_of(plan_.micro_batches) * most.bytes.cached);
    }
    const double tensors = bytes.total().as_double();
    double beside = practice_.slack.value * tensors;
    if (ends && request_.kind == StepKind::train) {  // no message parts forward and backward
      beside += practice_.held_sums.value * most.bytes.sums;
    }
    bytes.process = practice_.context.value + practice_.communicator.value * communicators();
    // An allocator that finds no more gives fragments back, and waits for transfers.
    const Bytes left = request_.cluster->machine().gpu.memory.value - bytes.total();
    bytes.allocator = std::min(capped(beside), std::max(left, Bytes(0)));
    bytes.process += bytes.allocator;
    return bytes;
  }

  [[nodiscard]] const Stage& stage_of(int rank, int chunk) const {
    return stages_[static_cast<std::size_t>(chunk) * static_cast<std::size_t>(plan_.pipeline) +
                   static_cast<std::size_t>(rank)];
  }

  /// What all micro-batches leave the rank's stages with, and room for what they and their
  /// gradients come with (torch.distributed.pipelining stage.py: output_chunks, args_recv_info).
  [[nodiscard]] double outputs_of(int rank) const {
    if (plan_.pipeline == 1) {
      return 0;
    }
    const double rows = real_of(local_.rows()) * static_cast<double>(size_of(request_.dtype));
    const double hidden =
        rows * real_of(request_.model->stream_width()) / (plan_.tensor_sequence ? plan_.tensor : 1);
    double bytes = 0;
    for (int c = 0; c < plan_.virtual_stages; ++c) {
      const Stage& stage = stage_of(rank, c);
      bytes += stage.embeds ? 0 : hidden;
      bytes += stage.ends ? rows * vocabulary_part() : 2 * hidden;
    }
    return real_of(plan_.micro_batches) * bytes;
  }

  /// Bytes of a 16 bit gradient of each shape of weight; of experts, of one.
  [[nodiscard]] double dummies(bool ends) const {
    std::set<std::int64_t> shapes;
    const auto add = [&](const TensorOps& ops) {
      for (const TensorOp& op : ops.ops) {
        const auto* linear = std::get_if<Linear>(&op.work);
        if (linear != nullptr) {
          const std::int64_t all = weights_of(op, ops, plan_.split());
          const std::int64_t here = std::max<std::int64_t>(1, linear->experts / plan_.expert);
          shapes.insert(linear->experts > 0 ? all / here : all);
        }
      }
    };
    for (const LayerRun& run : layers_.runs) {
      add(run.ops);
    }
    if (ends) {
      add(layers_.last);
    }
    return 2 * real_of(std::accumulate(shapes.begin(), shapes.end(), std::int64_t{0}));
  }

  [[nodiscard]] std::int64_t most_layers_kept() const {
    double most = 0;
    for (const LayerMemory& kind : kinds_) {
      most = std::max(most, kind.bytes.kept);
    }
    return static_cast<std::int64_t>(most);
  }

  [[nodiscard]] double most_in_flight(int rank, std::span<const HeldByChunk> held) const {
    return most_held(plan_.pipeline_order(), plan_.pipeline_shape(), rank, held);
  }

  [[nodiscard]] ParameterBytes parameter_bytes(const HeldWeights& held) const {
    return spp::parameter_bytes(held, plan_.format, request_.kind, practice_);
  }

  /// `table`: weights of the largest vocabulary table.
  void add_states(const HeldWeights& held, double table, MemoryBytes& bytes) const {
    const double shards = real_of(plan_.shards());
    const double whole = real_of(held.all());
    const double part =
        real_of(held.dense) / shards + real_of(held.experts) / real_of(plan_.expert_replicas());
    const bool gathered = plan_.zero < 3 || plan_.pipeline > 1;  // whole all through the step
    const ParameterBytes parameters = parameter_bytes(held);
    bytes.parameters = capped(gathered ? parameters.all()
                                       : parameters.dense / shards +
                                             parameters.experts / real_of(plan_.expert_replicas()));
    double largest = table;
    double layer_bytes = 0;
    for (const LayerMemory& kind : kinds_) {
      largest = std::max(largest, real_of(kind.weights.all()));
      layer_bytes = std::max(layer_bytes, parameter_bytes(kind.weights).all());
    }
    const bool shared = plan_.can_shard(*request_.model);
    if (plan_.zero == 3 && shared && !gathered) {
      // Gathered at once: a layer and, prefetched, the next one or a vocabulary table.
      bytes.communication +=
          capped(layer_bytes + std::max({layer_bytes, parameter_bytes(first_.weights).all(),
                                         parameter_bytes(last_.weights).all()}));
    }
    if (request_.kind != StepKind::train) {
      return;
    }
    // Under a pipeline micro-batches' gradients add up whole.
    const bool cut = plan_.zero >= 2 && plan_.pipeline == 1;
    const bool on_host = cut && moves_optimizer(plan_.offload);  // they lie with the optimizer
    bytes.gradients = capped(
        on_host ? 0
                : (cut ? part : whole) * added_gradient(practice_, request_.dtype == DType::bf16));
    const double updated = plan_.zero >= 1 ? part : whole;
    if (!moves_optimizer(plan_.offload)) {
      bytes.optimizer = capped(updated * practice_.state_optimizer.value);
      bytes.communication += capped(updated * practice_.state_update.value);
    }
    if (plan_.zero >= 2 && shared) {  // a layer's whole gradients until reduced, or to be reduced
      bytes.communication += capped(largest * practice_.gradient_bytes.value);
    }
  }

  /// Groups that talk: each has its own buffers.
  [[nodiscard]] std::int64_t communicators() const {
    return std::int64_t{plan_.tensor > 1} + (plan_.sequence() > 1) + (plan_.replicas() > 1) +
           (plan_.pipeline > 1) + (plan_.expert > 1);
  }

  const StepRequest& request_;
  const ModelLayers& layers_;
  const StepPlan& plan_;
  const StepPractice& practice_;
  LocalTokens local_;
  const std::vector<Stage>& stages_;
  std::vector<LayerMemory> kinds_;
  LayerMemory first_, last_, predict_;
  Bytes buffers_{};
};

}  // namespace

namespace {

/// Without what only an MLP reads and writes.
TensorOps around_mlp(TensorOps ops) {
  const auto in_mlp = [](const TensorOp& op) {
    return op.modules.contains(RecomputeModule::mlp) ||
           op.modules.contains(RecomputeModule::shared_experts);
  };
  std::vector<bool> inside(ops.tensors.size(), false);
  for (const TensorOp& op : ops.ops) {
    for (const LayerTensorId id : op.writes) {
      inside[id.index()] = in_mlp(op);
    }
  }
  for (const TensorOp& op : ops.ops) {
    for (const LayerTensorId id : op.reads) {
      inside[id.index()] = inside[id.index()] && in_mlp(op);
    }
  }
  for (std::size_t i = 0; i < ops.tensors.size(); ++i) {
    ops.tensors[i].outside = ops.tensors[i].outside || inside[i];
  }
  return ops;
}

}  // namespace

ActivationBytes activation_bytes(const TensorOps& ops, const LocalTokens& local,
                                 const Recomputation& recompute, const StepPractice& practice) {
  const bool again = recompute.kind == Recompute::full;
  const double more = practice.kept.value;
  const double tile = practice.mlp_part.value;
  double working = working_bytes(ops, local, recompute).as_double();
  if (tile < 1) {
    working =
        tile * working + (1 - tile) * working_bytes(around_mlp(ops), local, recompute).as_double();
  }
  return {.kept = (again ? 1 : more) * kept_bytes(ops, local, recompute).as_double(),
          .working = (again ? more : 1) * working};
}

std::vector<MemoryBytes> step_memory(StepCommon& common, const StepPlan& plan, std::int64_t seq,
                                     AttentionCosts attention) {
  return StepMemory(common, plan, seq, attention).run();
}

MemoryBytes fullest(std::span<const MemoryBytes> stages) {
  ensure(!stages.empty(), "a step has stages");
  return *std::ranges::max_element(stages, {}, &MemoryBytes::tensors);
}

std::int64_t longest_seq(const std::function<Bytes(std::int64_t seq)>& bytes_at,
                         const SequenceLimits& limits) {
  ensure(limits.unit >= 1, "a unit of tokens is at least one");
  const auto fits = [&](std::int64_t units) {
    return bytes_at(units * limits.unit) <= limits.usable;
  };
  // From below: far beyond what fits, memory of whole rows of weights is no number of bytes.
  const std::int64_t beyond = limits.limit / limits.unit + 1;
  std::int64_t good = 0;  // units that fit
  std::int64_t bad = 1;
  while (bad < beyond && fits(bad)) {
    constexpr std::int64_t steps = 16;
    good = bad;
    bad = std::min(steps * bad, beyond);
  }
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good * limits.unit;
}

}  // namespace spp
