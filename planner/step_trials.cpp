#include "planner/step_trials.hpp"

#include "planner/framework.hpp"
#include "planner/search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace spp {
namespace {

constexpr double most_ops = 2e6;  // of a pipeline's walk

/// What a pipeline's ranks do for micro-batches, one direction.
double walked(const StepPoint& point) {
  return real_of(point.micro_batches) * point.pipeline * point.virtual_stages;
}
/// In ops: what a plan's time takes beside its attention, and what its memory does
/// (bench/step_search_bench.cpp measures both).
double ops_of(const StepPoint& point) { return 25 + 0.04 * walked(point); }
double ops_of_memory(const StepPoint& point) { return 8 + 0.015 * walked(point); }

}  // namespace

Found::Found(StepEvaluation evaluated, std::size_t of, double prompts)
    : evaluation(std::move(evaluated)),
      point(of),
      seconds(evaluation.step().count() / prompts),
      memory(fullest(evaluation.memory).tensors()) {}

std::string key_of(const StepPlan& plan) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}", plan.tensor, plan.data, plan.pipeline, plan.expert,
                     plan.expert_tensor, plan.attention.ulysses, plan.attention.ring);
}

StepTrials::StepTrials(const Request& request, const Watch& watch)
    : request_(request),
      watch_(watch),
      evaluator_(request),
      space_(step_space(request, evaluator_)),
      weighed_(space_.points.size(), false) {}

std::size_t StepTrials::add(StepPoint point) {
  point.mean = point.most = point.reduced = {};
  point.issued = 0;
  point.memory = Bytes(0);
  space_.points.push_back(point);
  weighed_.push_back(false);
  return space_.points.size() - 1;
}

bool StepTrials::too_long(std::size_t point) const { return ops_of(points()[point]) > most_ops; }

bool StepTrials::fits_around_attention(std::size_t i) {
  StepPoint& point = space_.points[i];
  if (!weighed_[i] && !too_long(i)) {
    weighed_[i] = true;
    Bytes least(INT64_MAX);
    for (const int zero : zero_stages(request_, point)) {
      spent_ += ops_of_memory(point);
      const StepPlan plan = plan_around_attention(request_, point, zero);
      least = std::min(least, fullest(evaluator_.memory_around_attention(plan)).tensors());
    }
    point.memory = std::max(point.memory, least);
  }
  return point.memory <= request_.memory;
}

std::size_t StepTrials::fits_from(std::size_t i, const AttentionChoice& choice) {
  const StepPoint& point = points()[i];
  const std::vector<int> stages = zero_stages(request_, point);
  const auto fits = [&](int zero) {
    const StepPlan plan = plan_of(request_, point, choice.plan, zero);
    if (!why_not(*request_.model, plan).legal() || !runs(plan)) {
      return false;
    }
    spent_ += ops_of_memory(point);
    return fullest(evaluator_.memory(plan)).tensors() <= request_.memory;
  };
  return static_cast<std::size_t>(std::ranges::find_if(stages, fits) - stages.begin());
}

void StepTrials::evaluate(std::size_t i, const SequencePlan& attention) {
  const StepPoint& point = points()[i];
  if (too_long(i) || !tried_.emplace(i, attention).second) {
    return;
  }
  evaluated_.insert(i);
  std::optional<Found> best;
  Bytes least(INT64_MAX);
  bool lower_fits = false;
  for (const int zero : zero_stages(request_, point)) {
    if (lower_fits && zero == 2 && point.micro_batches > 1 && !by_memory()) {
      continue;  // moves more than 1: the gradients of every micro-batch
    }
    if (best && request_.phase != StepPhase::train && !by_memory()) {
      break;  // weights that fit whole need not be gathered
    }
    const StepPlan plan = plan_of(request_, point, attention, zero);
    if (!why_not(*request_.model, plan).legal() || !runs(plan)) {
      continue;
    }
    spent_ += ops_of_memory(point);
    std::vector<MemoryBytes> memory = evaluator_.memory(plan);
    const Bytes tensors = fullest(memory).tensors();
    const bool leaner = tensors < least;
    least = std::min(least, tensors);
    if (tensors > request_.memory || (by_memory() && !leaner)) {
      continue;
    }
    lower_fits = lower_fits || zero > 0;
    spent_ += ops_of(point);
    Found found(evaluator_.timed(plan, std::move(memory)), i, prompts_of(point));
    if (!best || by_memory() || found.seconds < best->seconds * (1 - least_gain)) {
      best = std::move(found);
    }
  }
  if (best) {
    keep(std::move(*best));
  } else if (least < Bytes(INT64_MAX)) {  // else none is legal
    const auto [at, fresh] = needed_.try_emplace(i, least);
    at->second = std::min(at->second, least);
  }
}

StepEvaluation StepTrials::evaluate_anyway(std::size_t point, const StepPlan& plan) {
  evaluated_.insert(point);
  return evaluator_.evaluate(plan);
}

bool StepTrials::runs(const StepPlan& plan) {
  if (request_.framework == nullptr) {
    return true;
  }
  const std::vector<Cannot> reasons = cannot(*request_.framework, request_, {.plan = plan});
  for (const Cannot& reason : reasons) {
    if (refused_.insert(reason.what).second) {
      rejected().push_back({.plan = plan,
                            .rule = reason.rule,
                            .detail = fmt::format("{} ({})", reason.what, reason.source)});
    }
  }
  return reasons.empty();
}

void StepTrials::keep(Found found) {
  const std::string key = key_of(found.evaluation.plan);
  if (value_of(found) < limit()) {
    limit_.reset();
  }
  found_.push_back(std::move(found));
  const auto order = [&](std::size_t k) {
    const Found& f = found_[k];
    return std::tuple(value_of(f), f.seconds, f.evaluation.plan.attention.order);
  };
  const std::size_t last = found_.size() - 1;
  const auto [at, fresh] = best_.try_emplace(key, last);
  if (!fresh && order(last) < order(at->second)) {
    at->second = last;
  }
}

const Found* StepTrials::best_like(const StepPlan& plan) const {
  const auto at = best_.find(key_of(plan));
  return at == best_.end() ? nullptr : &found_[at->second];
}

const Found& StepTrials::fastest() const {
  return *std::ranges::min_element(found_, {}, &Found::seconds);
}

double StepTrials::limit() {
  if (!limit_) {
    limit_ = limit_now();
  }
  return *limit_;
}

double StepTrials::limit_now() const {
  std::vector<double> values;
  for (const auto& [key, i] : best_) {
    values.push_back(value_of(found_[i]));
  }
  const auto top = static_cast<std::size_t>(request_.top);
  if (values.size() < top) {
    return std::numeric_limits<double>::infinity();
  }
  std::ranges::nth_element(values, values.begin() + (request_.top - 1));
  return by_memory() ? values[top - 1]
                     : std::max(values[top - 1], (1 + most_slower) * std::ranges::min(values));
}

std::optional<Bytes> StepTrials::needed(std::size_t point) const {
  const auto at = needed_.find(point);
  return at == needed_.end() ? std::nullopt : std::optional(at->second);
}

bool StepTrials::go_on() {
  const double most = request_.most.ops;
  if (watch_ && !given_up_) {
    given_up_ = std::isfinite(most) ? !watch_(std::min(spent_, most), most)
                                    : !watch_(static_cast<double>(evaluated_.size()),
                                              static_cast<double>(points().size()));
  }
  return spent_ < most && !given_up_;
}

}  // namespace spp
