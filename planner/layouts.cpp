#include "planner/layouts.hpp"

#include "parallel/attention/attention_mesh.hpp"
#include "planner/evaluator.hpp"
#include "planner/step.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

namespace spp {
namespace {

constexpr std::array compared{Layout::balanced, Layout::whole_documents, Layout::document_zigzag,
                              Layout::zigzag,   Layout::striped,         Layout::contiguous};

constexpr double most_looked_at = 1e7;  // documents times ring ranks; blocks of a simulation

/// By ring rank; StarTrail: by team.
std::vector<std::int64_t> pairs_of(const Problem& problem, const SequencePlan& plan) {
  const Problem whole = padded(problem, plan);
  const AttentionMesh mesh(plan, whole);
  const TokenSet all({.begin = 0, .count = whole.seq});
  std::vector<std::int64_t> pairs;
  for (int team = 0; team < mesh.teams(); ++team) {
    pairs.push_back(allowed_pairs(mesh.team_tokens(whole, team), all, whole.mask));
  }
  return pairs;
}

/// What simulating the plan looks at: ops, striped with every document in each block.
double looks_of(const Request& request, const StepPlan& plan) {
  const auto documents = static_cast<double>(request.problem.mask.document_ends.size());
  return effort_of(request, plan).ops * (plan.attention.layout == Layout::striped ? documents : 1);
}

double imbalance_of(const std::vector<std::int64_t>& pairs) {
  const double sum = std::accumulate(pairs.begin(), pairs.end(), 0.0);
  const auto most = static_cast<double>(*std::ranges::max_element(pairs));
  return std::max(0.0, most / (sum / static_cast<double>(pairs.size())) - 1);
}

/// A layout under the degrees and the places of a reference plan, by whichever strategies have it.
class Rivals {
 public:
  Rivals(const Request& request, const StepPlan& reference)
      : request_(request),
        reference_(reference),
        question_(attention_question(request, reference, request.problem)) {
    const SequencePlan& plan = reference.attention;
    question_.request.fixed = {.ulysses = plan.ulysses,
                               .ring = plan.ring,
                               .order = plan.order,
                               .heads = plan.heads,
                               .rank_order = plan.rank_order};
  }

  /// The fastest of a few that promise most; without a step the one that promises most, if a
  /// simulation would take too much. Nothing: no strategy has the layout.
  std::optional<LayoutWork> best(Layout layout) {
    question_.request.fixed.layout = layout;
    const Evaluator evaluator(question_.request);
    struct Promising {
      double bound = 0;
      const Strategy* strategy = nullptr;
      StepPlan plan;
    };
    std::vector<Promising> promising;
    for (SequencePlan& plan : legal_plans(question_.request, nullptr)) {
      const Strategy& strategy = strategies::by_name(plan.strategy, "plan");
      const double bound = evaluator.lower_bound(plan, strategy);
      StepPlan step = reference_;
      step.attention = std::move(plan);
      if (!request_.whole_step() || why_not(*request_.model, step).legal()) {
        promising.push_back({.bound = bound, .strategy = &strategy, .plan = std::move(step)});
      }
    }
    if (promising.empty()) {
      return std::nullopt;
    }
    std::ranges::stable_sort(promising, {}, &Promising::bound);
    constexpr std::size_t most = 4;
    promising.resize(std::min(most, promising.size()));
    std::optional<LayoutWork> best;
    double least = std::numeric_limits<double>::infinity();
    for (Promising& one : promising) {
      if (one.bound >= least || looks_of(request_, one.plan) > most_looked_at) {
        continue;
      }
      const auto found = evaluator.evaluate(one.plan.attention, *one.strategy, {}, least);
      if (found && found->candidate.predicted.step.count() < least) {
        const Seconds step = found->candidate.predicted.step;
        least = step.count();
        best = LayoutWork{.plan = std::move(one.plan), .step = step};
      }
    }
    if (!best) {
      return LayoutWork{.plan = std::move(promising.front().plan)};
    }
    if (request_.whole_step()) {
      best->step = evaluate(request_, best->plan).candidate.predicted.step;
    }
    return best;
  }

 private:
  const Request& request_;
  const StepPlan& reference_;
  AttentionQuestion question_;
};

}  // namespace

std::vector<LayoutWork> compare_layouts(const Request& request, const PlanResult& result) {
  const Mask& mask = request.problem.mask;
  const auto reference = std::ranges::find_if(
      result.candidates, [](const Candidate& c) { return c.plan.attention.ring > 1; });
  if (mask.document_ends.empty() || reference == result.candidates.end() ||
      static_cast<double>(mask.document_ends.size()) * reference->plan.attention.ring >
          most_looked_at) {
    return {};
  }
  Rivals rivals(request, reference->plan);
  std::vector<LayoutWork> layouts;
  for (const Layout layout : compared) {
    const bool own = layout == reference->plan.attention.layout && reference->simulated;
    std::optional<LayoutWork> work =
        own ? LayoutWork{.plan = reference->plan, .step = reference->predicted.step}
            : rivals.best(layout);
    if (!work) {
      continue;
    }
    const Problem problem = attention_problem(request, work->plan, request.problem);
    work->padding_tokens = padded(problem, work->plan.attention).seq - problem.seq;
    work->pairs = pairs_of(problem, work->plan.attention);
    work->imbalance = imbalance_of(work->pairs);
    layouts.push_back(std::move(*work));
  }
  std::ranges::stable_sort(layouts, [](const LayoutWork& a, const LayoutWork& b) {
    return a.step && (!b.step || *a.step < *b.step);
  });
  return layouts;
}

std::optional<double> gain_of(const std::vector<LayoutWork>& layouts) {
  if (layouts.size() < 2 || !layouts[1].step) {
    return std::nullopt;
  }
  return *layouts[1].step / *layouts[0].step - 1;
}

}  // namespace spp
