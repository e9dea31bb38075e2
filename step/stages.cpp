#include "step/stages.hpp"

#include <algorithm>
#include <span>

namespace spp {

namespace {

/// Layers of each virtual stage as Megatron-Core deals them out (transformer_block.py): equally,
/// with what counts as a layer beside them; else the first ones have one more.
std::vector<std::int64_t> dealt(std::int64_t layers, std::int64_t stages) {
  std::vector<std::int64_t> dealt(static_cast<std::size_t>(stages));
  const CountedEnds ends = counted_ends(layers, stages);
  for (std::int64_t s = 0; s < stages; ++s) {
    const std::int64_t all = layers + ends.layers();
    dealt[static_cast<std::size_t>(s)] = all / stages + (s < all % stages ? 1 : 0);
  }
  dealt.back() -= ends.loss ? 1 : 0;
  dealt.front() -= ends.embedding ? 1 : 0;
  return dealt;
}

/// With a head that takes as long as `head` layers: as many on the last stage as make the longest
/// stage shortest.
std::vector<std::int64_t> balanced(std::int64_t layers, std::int64_t stages, double head) {
  std::int64_t last = 0;
  double least = real_of(layers) + head;
  for (std::int64_t x = 0; stages > 1 && x <= layers - (stages - 1); ++x) {
    const double others = real_of((layers - x + stages - 2) / (stages - 1));
    const double longest = std::max(real_of(x) + head, others);
    if (longest < least) {
      least = longest;
      last = x;
    }
  }
  if (stages == 1) {
    return {layers};
  }
  std::vector<std::int64_t> dealt(static_cast<std::size_t>(stages), 0);
  for (std::int64_t s = 0; s + 1 < stages; ++s) {
    dealt[static_cast<std::size_t>(s)] =
        (layers - last) / (stages - 1) + (s < (layers - last) % (stages - 1) ? 1 : 0);
  }
  dealt.back() = last;
  return dealt;
}

/// Forward FLOPs of a layer, without attention: of the last kind; of a hybrid model the mean.
double layer_flops(const Model& model, const LocalTokens& tokens) {
  const std::vector<LayerRun> runs = layer_runs(model);
  const auto of = [&](const LayerRun& run) {
    return flops_of(forward_ops(run.ops, tokens)).value();
  };
  if (model.blocks.empty()) {
    return of(runs.back());
  }
  double all = 0;
  for (const LayerRun& run : runs) {
    all += real_of(run.layers) * of(run);
  }
  return all / real_of(model.layers);
}

/// Forward FLOPs of a list over those of a layer.
double in_layers(const Model& model, const TensorOps& ops) {
  const LocalTokens one{.tokens = 1};
  const double layer = layer_flops(model, one);
  return layer > 0 ? flops_of(forward_ops(ops, one)).value() / layer : 0;
}

/// What the longest stage takes, in layers, if the last one has `ends` beside its own.
double longest_of(std::span<const std::int64_t> layers, double ends) {
  double longest = real_of(layers.back()) + ends;
  for (const std::int64_t own : layers) {
    longest = std::max(longest, real_of(own));
  }
  return longest;
}

}  // namespace

bool can_stage(const Model& model, std::int64_t stages, StepKind kind) {
  if (kind == StepKind::prefill) {
    return stages <= model.layers;
  }
  const auto divides = [&](std::int64_t ends) { return (model.layers + ends) % stages == 0; };
  return stages == 1 || (stages <= model.layers + 2 &&
                         (model.predict_layers > 0 || divides(0) || divides(1) || divides(2)));
}

CountedEnds counted_ends(std::int64_t layers, std::int64_t stages) {
  const bool uneven = layers % stages != 0;
  const bool both = uneven && (layers + 2) % stages == 0;
  return {.embedding = both, .loss = both || (uneven && (layers + 1) % stages == 0)};
}

std::vector<Stage> stages_of(const Model& model, const StepPlan& plan, bool even_times,
                             std::size_t predictions) {
  const std::int64_t count = std::int64_t{plan.pipeline} * plan.virtual_stages;
  const bool by_time = even_times || predictions > 0;
  const double head = by_time ? in_layers(model, last_of(model, StepKind::train)) : 0;
  const double predict =
      predictions > 0 ? static_cast<double>(predictions) * in_layers(model, predict_of(model)) : 0;
  std::vector<std::int64_t> layers =
      by_time ? balanced(model.layers, count, head + predict) : dealt(model.layers, count);
  std::size_t predicts = layers.size() - 1;
  if (predictions > 0 && count > 2) {
    std::vector<std::int64_t> before = balanced(model.layers, count - 1, predict);
    if (std::max(longest_of(before, predict), head) < longest_of(layers, head + predict)) {
      layers = std::move(before);
      layers.push_back(0);
      --predicts;
    }
  }
  std::vector<Stage> stages(static_cast<std::size_t>(count));
  std::int64_t next = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    stages[s].first = next;
    stages[s].layers = layers[s];
    next += layers[s];
  }
  stages.front().embeds = true;
  stages.back().ends = true;
  stages[predicts].predictions = predictions;
  return stages;
}

HeldWeights held_weights(const TensorOps& ops, const LayerSplit& split) {
  HeldWeights held;
  for (const TensorOp& op : ops.ops) {
    const auto* linear = std::get_if<Linear>(&op.work);
    const bool routed = linear != nullptr && linear->experts > 0;
    const std::int64_t weights = weights_of(op, ops, split);
    (routed ? held.experts : held.dense) += weights;
    held.narrow += linear != nullptr && !routed && !linear->stays_wide(false) ? weights : 0;
  }
  return held;
}

std::int64_t tables_copied(const Stage& stage, bool tied, const HeldWeights& first,
                           const HeldWeights& last) {
  const bool embedding = !stage.embeds && (stage.predictions > 0 || (tied && stage.ends));
  const bool head = !stage.ends && stage.predictions > 0 && !tied;
  return (embedding ? first.dense : 0) + (head ? last.dense : 0);
}

ParameterBytes parameter_bytes(const HeldWeights& held, GemmFormat format, StepKind kind,
                               const StepPractice& practice) {
  const double wide = practice.state_parameter.value;
  const auto in_format = [&] {
    switch (format) {
      case GemmFormat::plain:
        return wide;
      case GemmFormat::fp8:
        return 1.0;
      case GemmFormat::fp8_block:
        return 1 + 4.0 / (128 * 128);
      case GemmFormat::mxfp8:
        return 1 + 1.0 / 32;
      case GemmFormat::nvfp4:
        return 0.5 + 1.0 / 16;
    }
    throw InternalError("no such GemmFormat");
  };
  const double narrow = kind == StepKind::prefill ? in_format() : wide;
  return {.dense = real_of(held.dense - held.narrow) * wide + real_of(held.narrow) * narrow,
          .experts = real_of(held.experts) * narrow};
}

}  // namespace spp
