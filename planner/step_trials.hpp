// The points of a step's question, and what was found when they were evaluated with plans of
// attention: what the search and its reasons share. What is evaluated once is not again, and all of
// it is charged to Request::most.
#pragma once

#include "planner/step_attention.hpp"
#include "planner/step_space.hpp"

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace spp {

/// An evaluated plan, with its ZeRO stage.
struct Found {
  /// `prompts`: that replicas work on side by side, where these count.
  Found(StepEvaluation evaluated, std::size_t of, double prompts);
  StepEvaluation evaluation;
  std::size_t point = 0;
  double seconds = 0;  // of one prompt
  Bytes memory{};
};

/// Plans with the same key differ in what a plan's degrees do not say: one of them is shown.
std::string key_of(const StepPlan& plan);

class StepTrials {
 public:
  /// Both must outlive this.
  StepTrials(const Request& request, const Watch& watch);
  StepTrials(const StepTrials&) = delete;
  StepTrials& operator=(const StepTrials&) = delete;

  [[nodiscard]] const Request& request() const { return request_; }
  [[nodiscard]] StepEvaluator& evaluator() { return evaluator_; }
  [[nodiscard]] StepAttention& attention() { return attention_; }
  /// Of the space, those that could not be legal, and then of the framework that is asked for.
  [[nodiscard]] std::vector<Rejected>& rejected() { return space_.rejected; }

  // ---- points
  [[nodiscard]] const std::vector<StepPoint>& points() const { return space_.points; }
  /// One that the space left out, of which no bound is known. Its number.
  std::size_t add(StepPoint point);
  [[nodiscard]] bool by_memory() const { return request_.objective == Objective::memory; }
  [[nodiscard]] double prompts_of(const StepPoint& point) const {
    return request_.counts_replicas() ? point.data : 1;
  }
  /// Seconds, of one prompt where replicas count.
  [[nodiscard]] double bound(std::size_t point) const {
    return points()[point].bound() / prompts_of(points()[point]);
  }
  /// If attention takes so long.
  [[nodiscard]] double bound_with(std::size_t point, const AttentionSeconds& takes) const {
    return points()[point].bound_with(takes) / prompts_of(points()[point]);
  }
  /// Whether it does before anything is known of its attention. Its memory is exact around that
  /// from then on.
  bool fits_around_attention(std::size_t i);
  /// Its pipeline is too long to be walked.
  [[nodiscard]] bool too_long(std::size_t point) const;

  // ---- plans
  /// The first of its ZeRO stages with which it does, of a plan of attention whose call is known;
  /// how many stages there are: with none.
  std::size_t fits_from(std::size_t i, const AttentionChoice& choice);
  /// The point with that plan of attention and the ZeRO stage that is the fastest of those that
  /// fit. Not of a point that is too long.
  void evaluate(std::size_t i, const SequencePlan& attention);
  /// A legal plan of the point, whether it fits or not.
  [[nodiscard]] StepEvaluation evaluate_anyway(std::size_t point, const StepPlan& plan);
  /// Whether the framework that is asked for runs it; if not, why is listed, once.
  [[nodiscard]] bool runs(const StepPlan& plan);
  void keep(Found found);
  [[nodiscard]] const std::vector<Found>& found() const { return found_; }
  /// What counts of it.
  [[nodiscard]] double value_of(const Found& found) const {
    return by_memory() ? found.memory.as_double() : found.seconds;
  }
  /// The best with the same degrees; nullptr: none.
  [[nodiscard]] const Found* best_like(const StepPlan& plan) const;
  /// Of each key the best, in found().
  [[nodiscard]] const std::map<std::string, std::size_t>& best() const { return best_; }
  [[nodiscard]] const Found& fastest() const;
  /// What the last of the first `top` plans has, or a plan that may tie with the fastest; infinite
  /// until there are as many.
  [[nodiscard]] double limit();
  /// Points that plans were made of.
  [[nodiscard]] const std::set<std::size_t>& evaluated() const { return evaluated_; }
  /// What the point needs, if it was evaluated and does not fit.
  [[nodiscard]] std::optional<Bytes> needed(std::size_t point) const;

  // ---- effort
  [[nodiscard]] double spent() const { return spent_; }
  [[nodiscard]] double left() const { return request_.most.ops - spent_; }
  /// Whether there is something left to spend, and nobody gives up.
  bool go_on();

 private:
  [[nodiscard]] double limit_now() const;

  const Request& request_;
  const Watch& watch_;
  StepEvaluator evaluator_;
  StepSpace space_;
  std::vector<bool> weighed_;  // points whose memory is exact around attention
  std::set<std::size_t> evaluated_;
  std::set<std::pair<std::size_t, SequencePlan>> tried_;
  std::vector<Found> found_;
  std::map<std::string, std::size_t> best_;
  std::optional<double> limit_;  // until best_ changes
  std::map<std::size_t, Bytes> needed_;
  std::set<std::string> refused_;  // what the framework does not run
  double spent_ = 0;
  StepAttention attention_{request_, evaluator_, spent_};
  bool given_up_ = false;
};

}  // namespace spp
