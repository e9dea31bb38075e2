#include "planner/step_reasons.hpp"

#include "planner/decisions.hpp"
#include "planner/search.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string_view>

namespace spp {
namespace {

enum class Decided : std::uint8_t {
  branches,
  tensor,
  sequence,
  pipeline,
  expert,
  dispatcher,
  micro_batch,
  recomputation
};
std::string number(std::int64_t value) { return fmt::format("{}", value); }
struct DegreeAxis {
  Decided what;
  std::string_view name;
  std::optional<std::int64_t> (*of)(const StepPoint&);  // nothing: it has none
  std::string (*text)(std::int64_t) = number;
  [[nodiscard]] bool is_degree() const { return is_inside_layer() || is_outside(); }
  [[nodiscard]] bool is_inside_layer() const {
    return what == Decided::tensor || what == Decided::sequence;
  }
  [[nodiscard]] bool is_outside() const {
    return what == Decided::pipeline || what == Decided::expert;
  }
};
/// With guidance, groups of GPUs for its branches: what sequence and batch are follows.
constexpr DegreeAxis branches{Decided::branches, "cfg", [](const StepPoint& p) {
                                return std::optional<std::int64_t>(p.data);
                              }};
constexpr std::array<DegreeAxis, 7> degree_axes{{
    {Decided::tensor, "TP",
     [](const StepPoint& p) { return std::optional<std::int64_t>(p.tensor); }},
    {Decided::sequence, "sequence",
     [](const StepPoint& p) { return std::optional<std::int64_t>(p.sequence); }},
    {Decided::pipeline, "pipeline",
     [](const StepPoint& p) { return std::optional<std::int64_t>(p.pipeline); }},
    {Decided::expert, "EP",
     [](const StepPoint& p) { return std::optional<std::int64_t>(p.expert); }},
    {Decided::dispatcher, "dispatcher",
     [](const StepPoint& p) {
       return p.sends_to_experts ? std::optional(static_cast<std::int64_t>(p.to_experts))
                                 : std::nullopt;
     },
     [](std::int64_t value) { return std::string(to_string(static_cast<Dispatcher>(value))); }},
    {Decided::micro_batch, "micro-batch",
     [](const StepPoint& p) { return std::optional(p.micro_batch); }},
    {Decided::recomputation, "recomputation",
     [](const StepPoint& p) { return std::optional(static_cast<std::int64_t>(p.recompute)); },
     [](std::int64_t value) { return std::string(to_string(static_cast<Recompute>(value))); }},
}};

constexpr double most_ops_of_reason = 2e5;  // a fortieth of the usual budget

class Reasons {
 public:
  explicit Reasons(StepTrials& trials) : trials_(trials), request_(trials.request()) {}

  std::vector<std::string> decisions_of(const Candidate& winner) {
    const auto at = std::ranges::find_if(trials_.found(), [&](const Found& f) {
      return key_of(f.evaluation.plan) == key_of(winner.plan) &&
             f.evaluation.step() == winner.predicted.step;
    });
    if (at == trials_.found().end()) {
      return {};
    }
    const std::size_t point = at->point;
    const StepPoint chosen = trials_.points()[point];
    std::vector<DegreeAxis> decided(degree_axes.begin(), degree_axes.end());
    // Of an inference micro-batches follow from the rest, of guidance sequences, too.
    std::erase_if(decided, [&](const DegreeAxis& axis) {
      return !axis.of(chosen) ||
             (axis.what == Decided::micro_batch && request_.phase != StepPhase::train) ||
             (axis.what == Decided::sequence && winner.plan.guided);
    });
    if (winner.plan.guided) {
      decided.insert(decided.begin(), branches);
    }
    if (chosen.sends_to_experts) {
      try_other_dispatchers(chosen, winner.plan.attention);
    }
    std::vector<std::string> decisions;
    for (const DegreeAxis& axis : decided) {
      if (const auto best = alternative(axis, chosen, winner.predicted)) {
        decisions.push_back(to_string(*best, winner.predicted));
      }
    }
    if (const auto stage = zero_alternative(point, winner)) {
      decisions.push_back(to_string(*stage, winner.predicted));
    }
    return decisions;
  }

 private:
  /// The plan with every other way to experts, which the space leaves out where it loses.
  void try_other_dispatchers(const StepPoint& chosen, const SequencePlan& attention) {
    for (const Dispatcher way : dispatchers_of(request_)) {
      if (way != chosen.to_experts) {
        StepPoint other = chosen;
        other.to_experts = way;
        trials_.evaluate(trials_.add(other), attention);
      }
    }
  }

  /// Of the values next to the chosen one, that of the plan that comes nearest.
  std::optional<Alternative> alternative(const DegreeAxis& axis, const StepPoint& chosen,
                                         const Prediction& winner) {
    std::set<std::int64_t> all;
    for (const StepPoint& p : trials_.points()) {
      if (const auto value = axis.of(p)) {
        all.insert(*value);
      }
    }
    const std::vector<std::int64_t> values(all.begin(), all.end());
    const std::int64_t own = *axis.of(chosen);
    std::optional<Alternative> nearest;
    for (const std::int64_t value : neighbours(std::span<const std::int64_t>(values), own)) {
      Alternative a{.chosen = fmt::format("{} {}", axis.name, axis.text(own)),
                    .other = axis.text(value),
                    .by_memory = trials_.by_memory()};
      fill(a, axis, value, chosen, winner);
      keep_nearer(nearest, std::move(a));
    }
    return nearest;
  }
  void keep_nearer(std::optional<Alternative>& nearest, Alternative a) const {
    const bool known = a.best.has_value() || a.beyond > Bytes(0);
    const bool nearer =
        !nearest || (a.best && (!nearest->best || comes_nearer(*a.best, *nearest->best)));
    if (known && nearer) {
      nearest = std::move(a);
    }
  }

  /// The same plan with the ZeRO stages next to its own, where there is a choice.
  std::optional<Alternative> zero_alternative(std::size_t point, const Candidate& winner) {
    if (request_.phase != StepPhase::train || request_.step.zero) {
      return std::nullopt;
    }
    const std::vector<int> stages = zero_stages(request_, trials_.points()[point]);
    std::optional<Alternative> nearest;
    for (const int stage : neighbours(std::span<const int>(stages), winner.plan.zero)) {
      StepPlan plan = winner.plan;
      plan.zero = stage;
      const StepEvaluation e = trials_.evaluate_anyway(point, plan);
      Alternative a{.chosen = fmt::format("ZeRO {}", winner.plan.zero),
                    .other = fmt::format("{} in the same plan", stage),
                    .by_memory = trials_.by_memory()};
      if (e.fits) {
        a.best = trials_.evaluator().candidate(e).predicted;
        a.tie = !trials_.by_memory() && within_reach(winner.predicted, *a.best, e.spreads);
      } else {
        a.beyond = fullest(e.memory).tensors() - request_.memory;
      }
      keep_nearer(nearest, std::move(a));
    }
    return nearest;
  }

  [[nodiscard]] bool comes_nearer(const Prediction& a, const Prediction& b) const {
    return trials_.by_memory() ? a.memory.tensors() < b.memory.tensors()
                               : a.tokens_per_s > b.tokens_per_s;
  }

  void fill(Alternative& a, const DegreeAxis& axis, std::int64_t value, const StepPoint& chosen,
            const Prediction& winner) {
    // Of ways to experts the space leaves out those that lose to others at the same degrees.
    a.at_most = !evaluate_best(axis, value) || axis.what == Decided::dispatcher;
    if (const Found* best = best_with(axis, value)) {
      a.best = trials_.evaluator().candidate(best->evaluation).predicted;
      a.tie = !trials_.by_memory() && !request_.counts_replicas() &&
              within_reach(winner, *a.best, best->evaluation.spreads);
      a.best_name = short_name(best->evaluation.plan);
      const StepPoint& other = trials_.points()[best->point];
      // Of degrees inside a layer one less is one more of the other: no news.
      if (std::ranges::any_of(degree_axes, [&](const DegreeAxis& degree) {
            return (axis.is_degree() ? degree.is_outside() : degree.is_degree()) &&
                   degree.what != axis.what && degree.of(other) != degree.of(chosen);
          })) {
        a.degrees = degrees_of(best->evaluation.plan);
      }
      return;
    }
    Bytes least(INT64_MAX);
    const std::vector<StepPoint>& points = trials_.points();
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (axis.of(points[i]) == value) {
        const std::optional<Bytes> seen = trials_.needed(i);
        const Bytes needed = seen.value_or(points[i].memory);
        if (needed < least) {
          least = needed;
          a.at_least = !seen;
          a.bound = Seconds(trials_.bound(i) * trials_.prompts_of(chosen));
        }
      }
    }
    a.beyond = std::max(Bytes(0), least - request_.memory);
  }
  [[nodiscard]] const Found* best_with(const DegreeAxis& axis, std::int64_t value) const {
    const Found* best = nullptr;
    for (const Found& f : trials_.found()) {
      if (axis.of(trials_.points()[f.point]) == value &&
          (best == nullptr || trials_.value_of(f) < trials_.value_of(*best))) {
        best = &f;
      }
    }
    return best;
  }
  /// Points that have the value, of the smallest bounds first, until none that is left can be the
  /// fastest of these: the search left out what is no faster than the plan that it recommends.
  /// Whether it came so far with what one reason may take.
  bool evaluate_best(const DegreeAxis& axis, std::int64_t value) {
    const std::vector<StepPoint>& points = trials_.points();
    const auto least = [&](std::size_t i) {
      return trials_.by_memory() ? points[i].memory.as_double() : trials_.bound(i);
    };
    const auto later = [&](std::size_t a, std::size_t b) {
      return std::pair(least(a), a) > std::pair(least(b), b);
    };
    std::vector<std::size_t> heap;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (axis.of(points[i]) == value && points[i].memory <= request_.memory) {
        heap.push_back(i);
      }
    }
    std::ranges::make_heap(heap, later);
    double best = std::numeric_limits<double>::infinity();
    std::size_t seen = 0;  // of found plans
    const auto may_gain = [&](double bound) {
      for (; seen < trials_.found().size(); ++seen) {
        if (const Found& f = trials_.found()[seen]; axis.of(points[f.point]) == value) {
          best = std::min(best, trials_.value_of(f));
        }
      }
      return bound < best;
    };
    const double enough = trials_.spent() + most_ops_of_reason;
    bool all = true;
    while (!heap.empty() && may_gain(least(heap.front()))) {
      if (trials_.spent() >= enough || !trials_.go_on()) {
        return false;
      }
      all = try_attention(heap.front(), may_gain) && all;
      std::ranges::pop_heap(heap, later);
      heap.pop_back();
    }
    return all;
  }
  /// The point with each plan of attention by which it may gain. Whether it could be evaluated.
  template <class MayGain>
  bool try_attention(std::size_t i, const MayGain& may_gain) {
    if (!trials_.fits_around_attention(i)) {
      return true;
    }
    const StepPoint& point = trials_.points()[i];
    StepAttention& attention = trials_.attention();
    const auto gains = [&](const AttentionSeconds& takes) {
      return trials_.by_memory() || may_gain(trials_.bound_with(i, takes));
    };
    const auto try_one = [&](const AttentionChoice& choice) {
      if (gains(choice.takes)) {
        trials_.evaluate(i, choice.plan);
      }
    };
    const AttentionChoices& choices = attention.choices_of(point);
    std::ranges::for_each(choices.plans, try_one);
    if (const auto takes = attention.leaner_takes(point, false); takes && gains(*takes)) {
      if (const auto& leaner = attention.leaner_of(point)) {
        try_one(*leaner);
      }
    }
    return choices.settled && !choices.plans.empty() && !trials_.too_long(i);
  }

  StepTrials& trials_;
  const Request& request_;
};

}  // namespace

std::vector<std::string> reasons_of(const Candidate& winner, StepTrials& trials) {
  return Reasons(trials).decisions_of(winner);
}

}  // namespace spp
