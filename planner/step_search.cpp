// One class in one file: the heap, and the answer that is read off what it leaves.
#include "planner/step_search.hpp"

#include "planner/evaluator.hpp"
#include "planner/framework.hpp"
#include "planner/search.hpp"
#include "planner/step_reasons.hpp"
#include "planner/step_trials.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>

namespace spp {
namespace {

/// What is next: a point whose attention is not searched yet, or is not for a leaner plan, or one
/// with a plan of it.
struct Entry {
  std::size_t point = 0;
  std::optional<AttentionChoice> choice;
  bool leaner = false;
  double bound = 0;
  Bytes memory{};
};

class StepSearch {
 public:
  StepSearch(const Request& request, const Watch& watch)
      : request_(request), trials_(request, watch) {}

  PlanResult run() {
    result_.searched = static_cast<std::int64_t>(points().size());
    for (std::size_t i = 0; i < points().size(); ++i) {
      if (points()[i].memory <= request_.memory) {
        push(entry_of(i));
      }
    }
    do {
      go_through();
    } while (look_deeper());
    finish();
    result_.simulated = std::ssize(trials_.evaluated());
    std::ranges::move(trials_.rejected(), std::back_inserter(result_.rejected));
    result_.spent = trials_.spent();
    return std::move(result_);
  }

 private:
  [[nodiscard]] const std::vector<StepPoint>& points() const { return trials_.points(); }
  [[nodiscard]] Entry entry_of(std::size_t i) const {
    return {.point = i, .choice = {}, .bound = trials_.bound(i), .memory = points()[i].memory};
  }
  [[nodiscard]] Entry entry_with(const Entry& entry, const AttentionChoice& choice) const {
    return {.point = entry.point,
            .choice = choice,
            .bound = std::max(entry.bound, trials_.bound_with(entry.point, choice.takes)),
            .memory = points()[entry.point].memory};
  }
  [[nodiscard]] bool settled(const Entry& next) {
    return (trials_.by_memory() ? next.memory.as_double() : next.bound) > trials_.limit();
  }
  void push(Entry entry) {
    heap_.push_back(std::move(entry));
    std::ranges::push_heap(heap_, later_);
  }

  // ---- the search
  void go_through() {
    while (!heap_.empty() && trials_.go_on() && !settled(heap_.front())) {
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
  }
  void expand(const Entry& entry) {
    if (!trials_.fits_around_attention(entry.point)) {
      return;
    }
    const StepPoint& point = points()[entry.point];
    StepAttention& attention = trials_.attention();
    const bool first = !attention.knows(point);
    const std::vector<AttentionChoice>& choices = attention.choices_of(point).plans;
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
    if (choices.empty()) {
      return;
    }
    if (const auto takes = attention.leaner_takes(point, is_short(entry.point))) {
      Entry next = entry_with(entry, {.plan = {}, .takes = *takes});
      next.choice.reset();
      next.leaner = true;
      push(std::move(next));
    }
  }
  /// Its fastest attention does not fit, or a prefill's not without gathering weights.
  [[nodiscard]] bool is_short(std::size_t i) {
    if (trials_.by_memory() || trials_.too_long(i)) {
      return false;
    }
    const StepPoint& point = points()[i];
    const AttentionChoice& fastest = trials_.attention().choices_of(point).plans.front();
    const bool trains = request_.phase == StepPhase::train;
    return trials_.fits_from(i, fastest) >= (trains ? zero_stages(request_, point).size() : 1);
  }
  void expand_leaner(const Entry& entry) {
    StepAttention& attention = trials_.attention();
    const StepPoint& point = points()[entry.point];
    const auto& leanest = attention.leaner_of(point);
    if (leanest) {
      push(entry_with(entry, *leanest));
    }
    // Where the fastest one does not do, one that needs a little more than the leanest may.
    if (is_short(entry.point) &&
        (!leanest ||
         trials_.fits_from(entry.point, *leanest) <
             trials_.fits_from(entry.point, attention.choices_of(point).plans.front()))) {
      for (const AttentionChoice& choice : attention.between_of(point)) {
        push(entry_with(entry, choice));
      }
    }
  }
  void evaluate(const Entry& entry) {
    const SequencePlan& attention = entry.choice->plan;
    const Found* shown = trials_.best_like(plan_of(request_, points()[entry.point], attention, 0));
    if (!trials_.by_memory() && shown != nullptr &&
        shown->seconds * (1 - least_gain) <= entry.bound) {
      return;  // a variant of a plan that is as fast
    }
    if (trials_.too_long(entry.point)) {
      skipped_.push_back(entry);
    }
    trials_.evaluate(entry.point, attention);
  }

  /// Attention of a shape is searched with a part of what may be spent, or has the plans of another
  /// micro-batch. With half of what is left that of the fastest plan is searched once more, for
  /// itself; then of the plan that promises most of those whose search has ended early. Whether one
  /// was.
  bool look_deeper() {
    if (trials_.by_memory() || trials_.best().empty() || !trials_.go_on()) {
      return false;
    }
    const double ops = trials_.left() / 2;
    std::vector<std::size_t> order = unsettled_attention();
    std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(trials_.bound(i), i); });
    order.insert(order.begin(), trials_.fastest().point);
    const auto next = std::ranges::find_if(order, [&](std::size_t i) {
      return trials_.attention().may_search_again(points()[i], ops);
    });
    if (next == order.end()) {
      return false;
    }
    search_again(points()[*next], ops);
    return true;
  }
  void search_again(const StepPoint& of, double ops) {
    StepAttention& attention = trials_.attention();
    const std::vector<AttentionChoice> choices = attention.search_again(of, ops).plans;
    for (std::size_t i = 0; i < points().size(); ++i) {
      if (attention.same_shape(points()[i], of) && points()[i].memory <= request_.memory) {
        for (const AttentionChoice& choice : choices) {
          push(entry_with(entry_of(i), choice));
        }
      }
    }
  }
  /// Points that have been evaluated with what a search found that ended early, and that may be
  /// among the first with other plans.
  [[nodiscard]] std::vector<std::size_t> unsettled_attention() {
    std::vector<std::size_t> unsettled;
    std::ranges::copy_if(trials_.evaluated(), std::back_inserter(unsettled), [&](std::size_t i) {
      return !trials_.attention().choices_of(points()[i]).settled && !settled(entry_of(i));
    });
    return unsettled;
  }

  // ---- the answer
  void finish() {
    reject_too_large();
    std::optional<StepEvaluation> leanest;
    if (trials_.best().empty()) {
      leanest = try_leanest();
    }
    if (!trials_.best().empty()) {
      recommend();
    }
    const std::vector<Entry> left = count_unsettled();
    if (leanest) {
      nothing_fits(*leanest);
      return;
    }
    add_bounded(result_, request_, bounded(left));
    if (result_.candidates.empty() && !points().empty()) {
      nothing_fits();
    }
  }
  /// Reasons look at plans that the search left out: where one of these comes first, it is
  /// recommended.
  void recommend() {
    rank_found();
    std::vector<std::string> decisions = reasons_of(result_.candidates.front(), trials_);
    constexpr int most_times = 4;
    for (int times = 0; times < most_times; ++times) {
      const StepPlan explained = result_.candidates.front().plan;
      rank_found();
      if (result_.candidates.front().plan == explained) {
        break;
      }
      decisions = reasons_of(result_.candidates.front(), trials_);
    }
    for (Candidate& c : result_.candidates) {
      c.predicted.max_seq = trials_.evaluator().longest(c.plan);
    }
    Candidate& winner = result_.candidates.front();
    for (const std::string& decision : decisions) {
      winner.why += "; " + decision;
    }
    winner.decisions = std::move(decisions);
  }
  void rank_found() {
    count_unsettled();
    result_.candidates.clear();
    for (const auto& [key, i] : trials_.best()) {
      result_.candidates.push_back(trials_.evaluator().candidate(trials_.found()[i].evaluation));
    }
    rank(result_, request_, trials_.fastest().evaluation.spreads);
    if (static_cast<int>(result_.candidates.size()) > request_.top) {
      result_.candidates.resize(static_cast<std::size_t>(request_.top));
    }
  }
  /// What is left that may be among the first: not looked at, or with attention whose search ended
  /// early. The former.
  std::vector<Entry> count_unsettled() {
    std::vector<Entry> left = skipped_;
    left.insert(left.end(), heap_.begin(), heap_.end());
    std::erase_if(left, [&](const Entry& e) { return settled(e); });
    std::set<std::size_t> unsettled;
    for (const Entry& e : left) {
      unsettled.insert(e.point);
    }
    std::ranges::copy(unsettled_attention(), std::inserter(unsettled, unsettled.end()));
    result_.unsettled = std::ssize(unsettled);
    return left;
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
    const StepPoint& point = points()[entry.point];
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
    if (!trials_.runs(c.plan)) {
      return std::nullopt;
    }
    Prediction& p = c.predicted;
    const double least = entry.bound * trials_.prompts_of(point);
    p.step = p.low = p.high = Seconds(least);
    p.parts_s[StepPart::gemm] = least;
    p.memory.activations = point.memory;
    p.by_stage.assign(static_cast<std::size_t>(point.pipeline), p.memory);
    p.fits = point.memory <= request_.memory;
    const std::int64_t batch = c.plan.global_batch();
    p.tflops_per_gpu = counted_flops(request_, batch).value() / least / c.plan.world() / 1e12;
    p.mfu = p.tflops_per_gpu * 1e12 /
            matrix_rate(trials_.evaluator().kernels().gpu(), c.plan.format, request_.problem.dtype,
                        "--dtype")
                .value();
    p.tokens_per_s = static_cast<double>(request_.problem.seq * batch) / least;
    c.bound_by = "not simulated";
    return c;
  }

  /// The few points that need least, least first.
  [[nodiscard]] std::vector<std::size_t> leanest_points(std::size_t few) {
    const auto more = [&](std::size_t a, std::size_t b) {
      return std::pair(points()[a].memory, a) > std::pair(points()[b].memory, b);
    };
    std::vector<std::size_t> heap(points().size());
    std::iota(heap.begin(), heap.end(), std::size_t{0});
    std::ranges::make_heap(heap, more);
    std::vector<std::size_t> leanest;
    while (!heap.empty() && leanest.size() < few) {
      std::ranges::pop_heap(heap, more);
      if (const Bytes bound = points()[heap.back()].memory;
          !trials_.fits_around_attention(heap.back()) && points()[heap.back()].memory > bound) {
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
      const StepPoint& point = points()[i];
      StepAttention& attention = trials_.attention();
      std::vector<AttentionChoice> choices = attention.choices_of(point).plans;
      if (const auto lean = choices.empty() ? attention.leanest_of(point, enough_ops)
                                            : attention.leaner_of(point)) {
        choices.push_back(*lean);
      }
      for (const AttentionChoice& choice : choices) {
        const StepPlan plan =
            plan_of(request_, point, choice.plan, zero_stages(request_, point).back());
        if (trials_.too_long(i) || !why_not(*request_.model, plan).legal() || !trials_.runs(plan)) {
          continue;
        }
        StepEvaluation e = trials_.evaluate_anyway(i, plan);
        if (e.fits) {
          trials_.keep(Found(std::move(e), i, trials_.prompts_of(point)));
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
    Candidate c = trials_.evaluator().candidate(leanest);
    c.predicted.max_seq = trials_.evaluator().longest(c.plan);
    c.why = "needs least memory";
    result_.candidates.push_back(std::move(c));
  }
  /// Nothing could be evaluated, either.
  void nothing_fits() {
    result_.any_fits = false;
    if (auto c = bounded(entry_of(leanest_points(1).front()))) {
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
    for (std::size_t i = 0; i < points().size(); ++i) {
      const StepPoint& p = points()[i];
      const auto [at, fresh] = least.try_emplace(
          {p.tensor, p.sequence, p.pipeline, p.data, p.expert}, Least{i, p.memory});
      if (!fresh && p.memory < at->second.memory) {
        at->second = {i, p.memory};
      }
    }
    for (const auto& [degrees, at] : least) {
      if (at.memory > request_.memory) {
        const StepPoint& p = points()[at.point];
        trials_.rejected().push_back(
            {.plan = plan_of(request_, p, {.ring = p.sequence}, zero_stages(request_, p).back()),
             .rule = "memory",
             .detail =
                 fmt::format("needs at least {:.1f} GB of the {:.1f} GB that one GPU offers",
                             at.memory.as_double() / 1e9, request_.memory.as_double() / 1e9)});
      }
    }
  }

  const Request& request_;
  StepTrials trials_;
  PlanResult result_;
  std::vector<Entry> heap_, skipped_;
  std::function<bool(const Entry&, const Entry&)> later_ = [this](const Entry& a, const Entry& b) {
    if (trials_.by_memory() && a.memory != b.memory) {
      return a.memory > b.memory;
    }
    return a.bound != b.bound ? a.bound > b.bound : a.point > b.point;
  };
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
