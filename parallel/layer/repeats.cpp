#include "parallel/layer/repeats.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

namespace spp {
namespace {

/// How many steps each micro-batch has, if all have the same, and each kind of step is done in
/// their order: then whichever comes behind the pattern and before the last finds what the pattern
/// found. Else 0.
std::size_t alike_steps(const std::vector<StageStep>& steps, int micro_batches) {
  struct Kind {
    StageStep step;
    int last = -1;  // micro-batch
  };
  std::vector<Kind> kinds;
  std::vector<std::vector<StageStep>> of_each(static_cast<std::size_t>(micro_batches));
  for (const StageStep& step : steps) {
    StageStep kind = step;
    kind.op.micro_batch = 0;
    of_each[static_cast<std::size_t>(step.op.micro_batch)].push_back(kind);
    auto known = std::ranges::find(kinds, kind, &Kind::step);
    if (known == kinds.end()) {
      kinds.push_back({.step = kind});
      known = std::prev(kinds.end());
    }
    if (std::exchange(known->last, step.op.micro_batch) >= step.op.micro_batch) {
      return 0;
    }
  }
  const bool all = std::ranges::all_of(
      of_each, [&](const std::vector<StageStep>& own) { return own == of_each.front(); });
  return all ? of_each.front().size() : 0;
}

/// Whether parameters come and go with each micro-batch (RankWeights::enter): then what one finds
/// depends on what was done right before it.
bool lets_parameters_go(const LayerPlan& plan) {
  return plan.zero == 3 && plan.pipeline.stages == 1;
}

/// Whether the same tokens of each micro-batch go to the same experts.
bool routes_alike(const LayerParts& parts) {
  const Routing& routing = parts.layer.graph.routing;
  return routing.empty() || parts.problem.seq % routing.period == 0;
}

}  // namespace

bool micro_batches_repeat(const LayerParts& parts) {
  return parts.is_step() && !lets_parameters_go(parts.plan) && routes_alike(parts);
}

StepRepeats::StepRepeats(const LayerParts& parts, const LayerRank& at, RankWeights& weights,
                         ProgramBuilder& program)
    : parts_(parts),
      weights_(weights),
      b_(program),
      steps_of_each_(micro_batches_repeat(parts) && parts.plan.micro_batches() > pattern + 2
                         ? alike_steps(parts.steps[static_cast<std::size_t>(at.stage)],
                                       parts.plan.micro_batches())
                         : 0),
      distances_(1 + steps_of_each_),
      begins_(static_cast<std::size_t>(parts.plan.micro_batches())),
      buffers_(std::make_shared<std::vector<RepeatedBuffer>>()) {}

void StepRepeats::keep(ProgramBuilder::Place begin, ProgramBuilder::Place end) {
  Step& step = steps_.emplace_back(
      Step{.begin = begin, .end = end, .journal = weights_.take_journal(), .added = {}});
  const auto number = [](std::size_t distance) {
    ensure(distance <= std::numeric_limits<std::uint16_t>::max(), "a micro-batch of many steps");
    return static_cast<std::uint16_t>(distance);
  };
  const std::size_t known = buffers_->size();
  buffers_->resize(end.buffers);
  for (std::size_t i = known; i < end.buffers; ++i) {
    (*buffers_)[i] = {.distance = number(i < begin.buffers ? 0 : steps_.size()),
                      .of_param = is_param(b_.buffer(BufferId(i)).tensor)};
  }
  for (const RankWeights::Journal::Event& event : step.journal.events) {
    if (event.gave) {
      step.added.push_back(0);
      continue;
    }
    RepeatedBuffer& shard = (*buffers_)[event.waiting.index()];
    shard.distance = shard.distance == 0 ? number(distances_++) : shard.distance;
    step.added.push_back(shard.distance);
  }
  if (steps_.size() == steps_of_each_) {
    const auto to_come = static_cast<std::size_t>(parts_.plan.micro_batches() - pattern);
    b_.reserve(end.buffers + to_come * buffers_of_each());
  }
}

std::size_t StepRepeats::buffers_of_each() const {
  std::size_t buffers = 0;
  for (const Step& step : steps_) {
    buffers += step.end.buffers - step.begin.buffers;
  }
  return buffers;
}

bool StepRepeats::repeat(const StageStep& wanted) {
  const int m = wanted.op.micro_batch;
  if (steps_of_each_ == 0 || m <= pattern || m + 1 == parts_.plan.micro_batches()) {
    return false;
  }
  std::vector<std::size_t>& begins = begins_[static_cast<std::size_t>(m)];
  ensure(begins.size() < steps_.size(), "a micro-batch is ahead of the one that it repeats");
  const Step& step = steps_[begins.size()];
  begins.push_back(b_.place().buffers);
  declare(step, m);
  Repetition again{.buffers = buffers_,
                   .distances = std::vector<std::int32_t>(distances_),
                   .tokens = tokens_behind(m)};
  for (std::size_t i = 0; i < begins.size(); ++i) {
    again.distances[1 + i] = static_cast<std::int32_t>(begins[i] - steps_[i].begin.buffers);
  }
  for (std::size_t i = 0; i < step.added.size(); ++i) {
    const RankWeights::Journal::Event& event = step.journal.events[i];
    if (event.gave) {
      weights_.give_again(event.label,
                          event.waiting.valid() ? again.moved(event.waiting) : BufferId());
    } else {
      again.distances[step.added[i]] = weights_.add_again(event.label).value - event.waiting.value;
    }
  }
  spp::repeat(b_, step.begin, step.end, std::move(again));
  return true;
}

/// The buffers that the step declares.
void StepRepeats::declare(const Step& step, int micro_batch) {
  const std::size_t prefix = prefix_of(parts_.plan, pattern).size();
  const std::string own = prefix_of(parts_.plan, micro_batch);
  auto named = step.journal.named.begin();
  for (std::size_t i = step.begin.buffers; i < step.end.buffers; ++i) {
    const BufferId id(i);
    std::string name;
    if (named != step.journal.named.end() && named->buffer == id) {
      name = weights_.next_name(*named->name);
      ++named;
    } else {
      const std::string_view behind = std::string_view(b_.buffer(id).name).substr(prefix);
      name.reserve(own.size() + behind.size());
      name.append(own).append(behind);
    }
    b_.push_like(id, std::move(name), tokens_behind(micro_batch));
  }
}

}  // namespace spp
