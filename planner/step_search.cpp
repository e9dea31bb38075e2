// One class in one file: the heap, what has been evaluated and what may still be spent are one
// state.
#include "planner/step_search.hpp"

#include "planner/decisions.hpp"
#include "planner/evaluator.hpp"
#include "planner/framework.hpp"
#include "planner/search.hpp"
#include "planner/step_attention.hpp"
#include "planner/step_space.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>

namespace spp {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

/// What is next: a point whose attention is not searched yet, or is not for a leaner plan, or one
/// with a plan of it.
struct Entry {
  std::size_t point = 0;
  std::optional<AttentionChoice> choice;
  bool leaner = false;
  double bound = 0;
  Bytes memory{};
};

/// An evaluated plan, with its ZeRO stage.
struct Found {
  StepEvaluation evaluation;
  std::size_t point = 0;
  double prompts = 1;  // that replicas work on side by side, where these count
  [[nodiscard]] double seconds() const { return evaluation.step().count() / prompts; }
  [[nodiscard]] Bytes memory() const { return fullest(evaluation.memory).tensors(); }
};

/// Plans with the same key differ in what a plan's degrees do not say: one of them is shown.
std::string key_of(const StepPlan& plan) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}", plan.tensor, plan.data, plan.pipeline, plan.expert,
                     plan.expert_tensor, plan.attention.ulysses, plan.attention.ring);
}

/// Of a step: below what any run repeats to.
constexpr double least_gain = 0.005;

class StepSearch {
 public:
  StepSearch(const Request& request, const Watch& watch)
      : request_(request), watch_(watch), evaluator_(request) {}

  PlanResult run() {
    space_ = step_space(request_, evaluator_);
    weighed_.assign(space_.points.size(), false);
    result_.rejected = std::move(space_.rejected);
    result_.searched = static_cast<std::int64_t>(space_.points.size());
    for (std::size_t i = 0; i < space_.points.size(); ++i) {
      const StepPoint& point = space_.points[i];
      if (point.memory <= request_.memory) {
        push({.point = i, .bound = bound(i), .memory = point.memory});
      }
    }
    while (!heap_.empty() && go_on() && !settled(heap_.front())) {
      std::ranges::pop_heap(heap_, later_);
      const Entry entry = std::move(heap_.back());
      heap_.pop_back();
      if (entry.choice) {
        evaluate(entry);
      } else if (entry.leaner) {
        expand_leaner(entry);
      } else {
        expand(entry);
      }
    }
    result_.spent = spent_;
    finish();
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool by_memory() const { return request_.objective == Objective::memory; }
  [[nodiscard]] double prompts_of(const StepPoint& point) const {
    return request_.counts_replicas() ? point.data : 1;
  }
  /// Seconds, of one prompt where replicas count.
  [[nodiscard]] double bound(std::size_t point) const {
    return space_.points[point].bound() / prompts_of(space_.points[point]);
  }
  void push(Entry entry) {
    heap_.push_back(std::move(entry));
    std::ranges::push_heap(heap_, later_);
  }
  bool go_on() {
    const bool left = spent_ < request_.most.ops;
    const bool limited = std::isfinite(request_.most.ops);
    if (watch_ && !given_up_) {
      given_up_ = !watch_(
          limited ? std::min(spent_, request_.most.ops) : static_cast<double>(result_.simulated),
          limited ? request_.most.ops : static_cast<double>(result_.searched));
    }
    return left && !given_up_;
  }

  /// What the last of the first `top` plans has, or a plan that may tie with the fastest; infinite
  /// until there are as many.
  [[nodiscard]] double limit() const {
    std::vector<double> values;
    for (const auto& [key, i] : best_) {
      values.push_back(by_memory() ? found_[i].memory().as_double() : found_[i].seconds());
    }
    const auto top = static_cast<std::size_t>(request_.top);
    if (values.size() < top) {
      return infinite;
    }
    std::ranges::nth_element(values, values.begin() + (request_.top - 1));
    return by_memory() ? values[top - 1]
                       : std::max(values[top - 1], (1 + most_slower) * std::ranges::min(values));
  }
  [[nodiscard]] bool settled(const Entry& next) const {
    return (by_memory() ? next.memory.as_double() : next.bound) > limit();
  }

  // ---- points
  /// Whether it does before anything is known of its attention.
  bool fits_around_attention(std::size_t i) {
    StepPoint& point = space_.points[i];
    if (!weighed_[i] && ops_of(point) <= most_ops) {
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
  void expand(const Entry& entry) {
    if (!fits_around_attention(entry.point)) {
      return;
    }
    const StepPoint& point = space_.points[entry.point];
    const bool first = !attention_.knows(point);
    const std::vector<AttentionChoice>& choices = attention_.choices_of(point);
    if (choices.empty()) {
      skipped_.push_back(entry);
    }
    for (std::size_t i = 0; i < choices.size(); ++i) {
      // Points whose attention is but bounded may stay in front until nothing is left to spend.
      if (first && i == 0) {
        evaluate(entry_with(entry, choices[i]));
      } else {
        push(entry_with(entry, choices[i]));
      }
    }
    if (const auto takes = attention_.leaner_takes(point)) {
      Entry next = entry_with(entry, {.plan = {}, .takes = *takes});
      next.choice.reset();
      next.leaner = true;
      push(std::move(next));
    }
  }
  [[nodiscard]] Entry entry_with(const Entry& entry, const AttentionChoice& choice) const {
    const StepPoint& point = space_.points[entry.point];
    return {.point = entry.point,
            .choice = choice,
            .bound = std::max(entry.bound, point.bound_with(choice.takes) / prompts_of(point)),
            .memory = point.memory};
  }
  void expand_leaner(const Entry& entry) {
    if (const auto& choice = attention_.leaner_of(space_.points[entry.point])) {
      push(entry_with(entry, *choice));
    }
  }

  // ---- plans
  static constexpr double most_ops = 2e6;  // of a pipeline's walk
  /// In ops: what a plan's time takes beside its attention, and what its memory does
  /// (bench/step_search_bench.cpp measures both).
  [[nodiscard]] static double ops_of(const StepPoint& point) { return 320 + 0.05 * walked(point); }
  [[nodiscard]] static double ops_of_memory(const StepPoint& point) {
    return 60 + 0.012 * walked(point);
  }
  /// What a pipeline's ranks do for micro-batches, one direction.
  [[nodiscard]] static double walked(const StepPoint& point) {
    return real_of(point.micro_batches) * point.pipeline * point.virtual_stages;
  }
  /// With the ZeRO stage that is the fastest of those that fit.
  void evaluate(const Entry& entry) {
    const StepPoint& point = space_.points[entry.point];
    const auto shown = best_.find(key_of(plan_of(request_, point, entry.choice->plan, 0)));
    if (!by_memory() && shown != best_.end() &&
        found_[shown->second].seconds() * (1 - least_gain) <= entry.bound) {
      return;  // a variant of a plan that is as fast
    }
    try_stages(entry);
  }
  void try_stages(const Entry& entry) {
    const StepPoint& point = space_.points[entry.point];
    if (ops_of(point) > most_ops) {
      skipped_.push_back(entry);
      return;
    }
    if (!tried_.emplace(entry.point, entry.choice->plan).second) {
      return;
    }
    evaluated_.insert(entry.point);
    result_.simulated = static_cast<std::int64_t>(evaluated_.size());
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
      const StepPlan plan = plan_of(request_, point, entry.choice->plan, zero);
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
      Found found{.evaluation = evaluator_.timed(plan, std::move(memory)),
                  .point = entry.point,
                  .prompts = prompts_of(point)};
      if (!best || by_memory() || found.seconds() < best->seconds()) {
        best = std::move(found);
      }
    }
    if (best) {
      keep(std::move(*best));
    } else if (least < Bytes(INT64_MAX)) {  // else none is legal
      const auto [at, fresh] = beyond_.try_emplace(entry.point, least);
      at->second = std::min(at->second, least);
    }
  }
  /// Whether the framework that is asked for runs it; if not, why is listed, once.
  [[nodiscard]] bool runs(const StepPlan& plan) {
    if (request_.framework == nullptr) {
      return true;
    }
    const std::vector<Cannot> reasons = cannot(*request_.framework, request_, {.plan = plan});
    for (const Cannot& reason : reasons) {
      if (refused_.insert(reason.what).second) {
        result_.rejected.push_back({.plan = plan,
                                    .rule = reason.rule,
                                    .detail = fmt::format("{} ({})", reason.what, reason.source)});
      }
    }
    return reasons.empty();
  }
  void keep(Found found) {
    const std::string key = key_of(found.evaluation.plan);
    const auto at = best_.find(key);
    found_.push_back(std::move(found));
    const std::size_t i = found_.size() - 1;
    const auto better = [&](std::size_t a, std::size_t b) {
      return by_memory() && found_[a].memory() != found_[b].memory()
                 ? found_[a].memory() < found_[b].memory()
                 : found_[a].seconds() < found_[b].seconds();
    };
    if (at == best_.end()) {
      best_.emplace(key, i);
    } else if (better(i, at->second)) {
      at->second = i;
    }
  }

  // ---- the answer
  void finish() {
    reject_too_large();
    std::vector<Entry> left = std::move(skipped_);
    left.insert(left.end(), heap_.begin(), heap_.end());
    std::erase_if(left, [&](const Entry& e) { return settled(e); });
    std::set<std::size_t> unsettled;
    for (const Entry& e : left) {
      unsettled.insert(e.point);
    }
    result_.unsettled = std::ssize(unsettled);
    std::optional<StepEvaluation> leanest;
    if (best_.empty()) {
      leanest = try_leanest();
    }
    if (!best_.empty()) {
      for (const auto& [key, i] : best_) {
        result_.candidates.push_back(evaluator_.candidate(found_[i].evaluation));
      }
      const auto fastest =
          std::ranges::min_element(found_, {}, [](const Found& found) { return found.seconds(); });
      rank(result_, request_, fastest->evaluation.spreads);
      if (static_cast<int>(result_.candidates.size()) > request_.top) {
        result_.candidates.resize(static_cast<std::size_t>(request_.top));
      }
      explain(result_.candidates.front());
      for (Candidate& c : result_.candidates) {
        c.predicted.max_seq = evaluator_.longest(c.plan);
      }
    }
    if (leanest) {
      nothing_fits(*leanest);
      return;
    }
    add_bounded(result_, request_, bounded(left));
    if (result_.candidates.empty() && !space_.points.empty()) {
      nothing_fits();
    }
  }

  [[nodiscard]] std::vector<Candidate> bounded(std::vector<Entry> left) {
    std::ranges::stable_sort(left, [&](const Entry& a, const Entry& b) { return later_(b, a); });
    std::vector<Candidate> candidates;
    std::set<std::string> shown;
    for (const Entry& entry : left) {
      if (static_cast<int>(candidates.size()) == request_.top) {
        break;
      }
      if (auto c = bounded(entry); c && shown.insert(key_of(c->plan)).second) {
        candidates.push_back(std::move(*c));
      }
    }
    return candidates;
  }
  /// What no run can beat; nothing where no plan of attention is legal.
  [[nodiscard]] std::optional<Candidate> bounded(const Entry& entry) {
    const StepPoint& point = space_.points[entry.point];
    const AttentionQuestion question = attention_of(request_, point);
    SequencePlan attention;
    if (entry.choice) {
      attention = entry.choice->plan;
    } else {
      const std::vector<SequencePlan> legal = legal_plans(question.request, nullptr);
      if (legal.empty()) {
        return std::nullopt;
      }
      attention = legal.front();
    }
    Candidate c{.plan = plan_of(request_, point, attention, zero_stages(request_, point).back()),
                .strategy = &strategies::by_name(attention.strategy, "strategy"),
                .simulated = false};
    if (!runs(c.plan)) {
      return std::nullopt;
    }
    Prediction& p = c.predicted;
    const double least = entry.bound * prompts_of(point);
    p.step = p.low = p.high = Seconds(least);
    p.parts_s[StepPart::gemm] = least;
    p.memory.activations = point.memory;
    p.by_stage.assign(static_cast<std::size_t>(point.pipeline), p.memory);
    p.fits = point.memory <= request_.memory;
    const std::int64_t batch = c.plan.global_batch();
    p.tflops_per_gpu = counted_flops(request_, batch).value() / least / c.plan.world() / 1e12;
    p.mfu =
        p.tflops_per_gpu * 1e12 /
        matrix_rate(evaluator_.kernels().gpu(), c.plan.format, request_.problem.dtype, "--dtype")
            .value();
    p.tokens_per_s = static_cast<double>(request_.problem.seq * batch) / least;
    c.bound_by = "not simulated";
    return c;
  }

  /// The few points that need least, least first.
  [[nodiscard]] std::vector<std::size_t> leanest_points(std::size_t few) {
    const auto more = [&](std::size_t a, std::size_t b) {
      return std::pair(space_.points[a].memory, a) > std::pair(space_.points[b].memory, b);
    };
    std::vector<std::size_t> heap(space_.points.size());
    std::iota(heap.begin(), heap.end(), std::size_t{0});
    std::ranges::make_heap(heap, more);
    std::vector<std::size_t> leanest;
    while (!heap.empty() && leanest.size() < few) {
      std::ranges::pop_heap(heap, more);
      if (const Bytes bound = space_.points[heap.back()].memory;
          !fits_around_attention(heap.back()) && space_.points[heap.back()].memory > bound) {
        std::ranges::push_heap(heap, more);  // needs more than it was sorted by
        continue;
      }
      leanest.push_back(heap.back());
      heap.pop_back();
    }
    return leanest;
  }
  /// Where nothing was found, as nothing fits or as there was no time: of the leanest few points,
  /// with all that saves memory, the first that fits is found. Else that which needs least; nothing
  /// if they are too large to be evaluated.
  std::optional<StepEvaluation> try_leanest() {
    constexpr std::size_t few = 8;
    constexpr double enough_ops = 5e5;
    std::optional<StepEvaluation> leanest;
    for (const std::size_t i : leanest_points(few)) {
      const StepPoint& point = space_.points[i];
      std::vector<AttentionChoice> choices = attention_.choices_of(point);
      if (const auto lean = choices.empty() ? attention_.leanest_of(point, enough_ops)
                                            : attention_.leaner_of(point)) {
        choices.push_back(*lean);
      }
      for (const AttentionChoice& choice : choices) {
        const StepPlan plan =
            plan_of(request_, point, choice.plan, zero_stages(request_, point).back());
        if (ops_of(point) > most_ops || !why_not(*request_.model, plan).legal() || !runs(plan)) {
          continue;
        }
        StepEvaluation e = evaluator_.evaluate(plan);
        evaluated_.insert(i);
        result_.simulated = static_cast<std::int64_t>(evaluated_.size());
        if (e.fits) {
          keep({.evaluation = std::move(e), .point = i, .prompts = prompts_of(point)});
          return std::nullopt;
        }
        if (!leanest || fullest(e.memory).tensors() < fullest(leanest->memory).tensors()) {
          leanest = std::move(e);
        }
      }
    }
    return leanest;
  }

  void nothing_fits(const StepEvaluation& leanest) {
    result_.any_fits = false;
    Candidate c = evaluator_.candidate(leanest);
    c.predicted.max_seq = evaluator_.longest(c.plan);
    c.why = "needs least memory";
    result_.candidates.push_back(std::move(c));
  }
  /// Nothing could be evaluated, either.
  void nothing_fits() {
    result_.any_fits = false;
    const std::size_t least = leanest_points(1).front();
    if (auto c = bounded(
            Entry{.point = least, .bound = bound(least), .memory = space_.points[least].memory})) {
      result_.candidates.push_back(std::move(*c));
    }
  }

  /// One for each combination of tensor, sequence, pipeline, data and expert degrees none of whose
  /// variants fits.
  void reject_too_large() {
    struct Least {
      std::size_t point;
      Bytes memory;
    };
    std::map<std::array<int, 5>, Least> least;
    for (std::size_t i = 0; i < space_.points.size(); ++i) {
      const StepPoint& p = space_.points[i];
      const auto [at, fresh] = least.try_emplace(
          {p.tensor, p.sequence, p.pipeline, p.data, p.expert}, Least{i, p.memory});
      if (!fresh && p.memory < at->second.memory) {
        at->second = {i, p.memory};
      }
    }
    for (const auto& [degrees, at] : least) {
      if (at.memory > request_.memory) {
        const StepPoint& p = space_.points[at.point];
        result_.rejected.push_back(
            {.plan = plan_of(request_, p, {.ring = p.sequence}, zero_stages(request_, p).back()),
             .rule = "memory",
             .detail =
                 fmt::format("needs at least {:.1f} GB of the {:.1f} GB that one GPU offers",
                             at.memory.as_double() / 1e9, request_.memory.as_double() / 1e9)});
      }
    }
  }

  // ---- why
  struct Axis {
    std::string_view name;
    std::optional<std::int64_t> (*of)(const StepPoint&);  // nothing: it has none
  };
  /// With guidance, groups of GPUs for its branches: what sequence and batch are follows.
  static constexpr Axis branches{
      "cfg", [](const StepPoint& p) { return std::optional<std::int64_t>(p.data); }};
  static constexpr std::array<Axis, 7> axes{{
      {"TP", [](const StepPoint& p) { return std::optional<std::int64_t>(p.tensor); }},
      {"sequence", [](const StepPoint& p) { return std::optional<std::int64_t>(p.sequence); }},
      {"pipeline", [](const StepPoint& p) { return std::optional<std::int64_t>(p.pipeline); }},
      {"EP", [](const StepPoint& p) { return std::optional<std::int64_t>(p.expert); }},
      {"dispatcher",
       [](const StepPoint& p) {
         return p.sends_to_experts ? std::optional(static_cast<std::int64_t>(p.to_experts))
                                   : std::nullopt;
       }},
      {"micro-batch", [](const StepPoint& p) { return std::optional(p.micro_batch); }},
      {"recomputation",
       [](const StepPoint& p) { return std::optional(static_cast<std::int64_t>(p.recompute)); }},
  }};
  /// TP to EP.
  static bool is_degree(const Axis& axis) {
    return std::ranges::any_of(std::span(axes).first<4>(),
                               [&](const Axis& degree) { return degree.name == axis.name; });
  }
  static std::string value_of(const Axis& axis, std::int64_t value) {
    return axis.name == "recomputation" ? std::string(to_string(static_cast<Recompute>(value)))
           : axis.name == "dispatcher"  ? std::string(to_string(static_cast<Dispatcher>(value)))
                                        : fmt::format("{}", value);
  }

  void explain(Candidate& winner) {
    const auto at = std::ranges::find_if(found_, [&](const Found& f) {
      return key_of(f.evaluation.plan) == key_of(winner.plan) &&
             f.evaluation.step() == winner.predicted.step;
    });
    if (at == found_.end()) {
      return;
    }
    const StepPoint chosen = space_.points[at->point];
    std::string text;
    std::vector<Axis> decided(axes.begin(), axes.end());
    // Of an inference micro-batches follow from the rest, of guidance sequences, too.
    std::erase_if(decided, [&](const Axis& axis) {
      return !axis.of(chosen) ||
             (axis.name == "micro-batch" && request_.phase != StepPhase::train) ||
             (axis.name == "sequence" && winner.plan.guided);
    });
    if (winner.plan.guided) {
      decided.insert(decided.begin(), branches);
    }
    for (const Axis& axis : decided) {
      if (const auto best = alternative(axis, chosen, winner.predicted)) {
        winner.decisions.push_back(to_string(*best, winner.predicted));
        text += "; " + winner.decisions.back();
      }
    }
    winner.why += text;
  }

  /// Of the values next to the chosen one, that of the plan that comes nearest.
  std::optional<Alternative> alternative(const Axis& axis, const StepPoint& chosen,
                                         const Prediction& winner) {
    std::set<std::int64_t> all;
    for (const StepPoint& p : space_.points) {
      if (const auto value = axis.of(p)) {
        all.insert(*value);
      }
    }
    const std::vector<std::int64_t> values(all.begin(), all.end());
    const std::int64_t own = *axis.of(chosen);
    std::optional<Alternative> nearest;
    for (const std::int64_t value : neighbours(std::span<const std::int64_t>(values), own)) {
      Alternative a{.chosen = fmt::format("{} {}", axis.name, value_of(axis, own)),
                    .other = value_of(axis, value),
                    .by_memory = by_memory()};
      fill(a, axis, value, chosen, winner);
      const bool known = a.best.has_value() || a.beyond > Bytes(0);
      const bool nearer =
          !nearest || (a.best && (!nearest->best || comes_nearer(*a.best, *nearest->best)));
      if (known && nearer) {
        nearest = std::move(a);
      }
    }
    return nearest;
  }

  [[nodiscard]] bool comes_nearer(const Prediction& a, const Prediction& b) const {
    return by_memory() ? a.memory.tensors() < b.memory.tensors() : a.tokens_per_s > b.tokens_per_s;
  }

  void fill(Alternative& a, const Axis& axis, std::int64_t value, const StepPoint& chosen,
            const Prediction& winner) {
    a.at_most = !evaluate_best(axis, value);
    if (const Found* best = best_with(axis, value)) {
      a.best = evaluator_.candidate(best->evaluation).predicted;
      a.tie = !by_memory() && !request_.counts_replicas() &&
              within_reach(winner, *a.best, best->evaluation.spreads);
      a.best_name = short_name(best->evaluation.plan);
      const StepPoint& other = space_.points[best->point];
      // Of degrees around attention one less is one more of another: no news.
      const std::span<const Axis> apart =
          is_degree(axis) ? std::span(axes).subspan(2, 2) : std::span(axes).first<4>();
      if (std::ranges::any_of(apart, [&](const Axis& degree) {
            return degree.name != axis.name && degree.of(other) != degree.of(chosen);
          })) {
        a.degrees = degrees_of(best->evaluation.plan);
      }
      return;
    }
    Bytes least(INT64_MAX);
    for (std::size_t i = 0; i < space_.points.size(); ++i) {
      if (axis.of(space_.points[i]) == value) {
        const auto seen = beyond_.find(i);
        const Bytes needed = seen == beyond_.end() ? space_.points[i].memory : seen->second;
        if (needed < least) {
          least = needed;
          a.at_least = seen == beyond_.end();
          a.bound = Seconds(bound(i) * prompts_of(chosen));
        }
      }
    }
    a.beyond = std::max(Bytes(0), least - request_.memory);
  }
  [[nodiscard]] const Found* best_with(const Axis& axis, std::int64_t value) const {
    const Found* best = nullptr;
    for (const Found& f : found_) {
      const auto better = [&] {
        return by_memory() ? f.memory() < best->memory() : f.seconds() < best->seconds();
      };
      if (axis.of(space_.points[f.point]) == value && (best == nullptr || better())) {
        best = &f;
      }
    }
    return best;
  }
  static constexpr double most_ops_of_reason = 2e5;  // a fortieth of the usual budget
  /// Points that have the value, of the smallest bounds first, until none that is left can be the
  /// fastest of these: the search left out what is no faster than the plan that it recommends.
  /// Whether it came so far with what one reason may take.
  bool evaluate_best(const Axis& axis, std::int64_t value) {
    const auto least = [&](std::size_t i) {
      return by_memory() ? space_.points[i].memory.as_double() : bound(i);
    };
    const auto later = [&](std::size_t a, std::size_t b) {
      return std::pair(least(a), a) > std::pair(least(b), b);
    };
    std::vector<std::size_t> heap;
    for (std::size_t i = 0; i < space_.points.size(); ++i) {
      if (axis.of(space_.points[i]) == value && space_.points[i].memory <= request_.memory) {
        heap.push_back(i);
      }
    }
    std::ranges::make_heap(heap, later);
    const auto may_gain = [&](double bound) {
      const Found* best = best_with(axis, value);
      return best == nullptr ||
             bound < (by_memory() ? best->memory().as_double() : best->seconds());
    };
    const double enough = spent_ + most_ops_of_reason;
    bool all = true;
    while (!heap.empty() && may_gain(least(heap.front()))) {
      if (spent_ >= enough || !go_on()) {
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
    if (!fits_around_attention(i)) {
      return true;
    }
    const StepPoint& point = space_.points[i];
    const Entry entry{.point = i, .bound = bound(i), .memory = point.memory};
    const auto try_one = [&](const AttentionChoice& choice) {
      const Entry next = entry_with(entry, choice);
      if (by_memory() || may_gain(next.bound)) {
        try_stages(next);
      }
    };
    const std::vector<AttentionChoice>& choices = attention_.choices_of(point);
    std::ranges::for_each(choices, try_one);
    const auto takes = attention_.leaner_takes(point);
    if (takes && (by_memory() || may_gain(point.bound_with(*takes) / prompts_of(point)))) {
      if (const auto& leaner = attention_.leaner_of(point)) {
        try_one(*leaner);
      }
    }
    return !choices.empty() && ops_of(point) <= most_ops;
  }

  const Request& request_;
  const Watch& watch_;
  StepEvaluator evaluator_;
  StepSpace space_;
  PlanResult result_;
  std::vector<bool> weighed_;  // points whose memory is exact around attention
  std::vector<Entry> heap_, skipped_;
  std::function<bool(const Entry&, const Entry&)> later_ = [this](const Entry& a, const Entry& b) {
    if (by_memory() && a.memory != b.memory) {
      return a.memory > b.memory;
    }
    return a.bound != b.bound ? a.bound > b.bound : a.point > b.point;
  };
  std::set<std::size_t> evaluated_;
  std::set<std::pair<std::size_t, SequencePlan>> tried_;  // points with plans of attention
  std::vector<Found> found_;
  std::map<std::string, std::size_t> best_;  // by key, in found_
  std::map<std::size_t, Bytes> beyond_;      // points that did not fit, and what they need
  std::set<std::string> refused_;            // what the framework does not run
  double spent_ = 0;
  StepAttention attention_{request_, evaluator_, spent_};
  bool given_up_ = false;
};

}  // namespace

PlanResult plan_step(const Request& request, const Watch& watch) {
  if (const std::string why = not_planned(*request.model); !why.empty()) {
    throw InputError(fmt::format("model '{}'", request.model->name), why);
  }
  PlanResult result;
  if (request.framework != nullptr) {
    for (const Cannot& reason : cannot(*request.framework, request)) {
      result.rejected.push_back({.plan = default_step(request),
                                 .rule = reason.rule,
                                 .detail = fmt::format("{} ({})", reason.what, reason.source)});
    }
    if (!result.rejected.empty()) {
      return result;
    }
  }
  return StepSearch(request, watch).run();
}

}  // namespace spp
