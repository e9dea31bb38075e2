#include "planner/layouts.hpp"

#include "parallel/attention/attention_mesh.hpp"
#include "planner/framework.hpp"
#include "planner/step.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace spp {
namespace {

constexpr std::array compared{Layout::balanced, Layout::whole_documents, Layout::document_zigzag,
                              Layout::zigzag,   Layout::striped,         Layout::contiguous};

bool takes(const Strategy& strategy, Layout layout) {
  return std::ranges::find(strategy.layouts, layout) != strategy.layouts.end();
}

/// The plan with another layout: of its own strategy, else of one made for documents that has it
/// first, else of the simplest.
SequencePlan with_layout(SequencePlan plan, Layout layout) {
  plan.layout = layout;
  if (takes(strategies::by_name(plan.strategy, "plan"), layout)) {
    return plan;
  }
  plan.own = {};
  const auto made_for_it = [&](const Strategy* s) {
    return by_work(layout) && s->for_sparse_masks && takes(*s, layout);
  };
  const auto made = std::ranges::find_if(strategies::all(), made_for_it);
  const Strategy* other = made != strategies::all().end() ? *made : strategies::simplest(plan);
  plan.strategy = other != nullptr ? other->name : plan.strategy;
  return plan;
}

bool can_run(const Request& request, const Problem& problem, const StepPlan& step) {
  const SequencePlan& plan = step.attention;
  return why_not(strategies::by_name(plan.strategy, "plan"), problem, plan).legal() &&
         (!request.whole_step() || why_not(*request.model, step).legal()) &&
         (request.framework == nullptr ||
          cannot(*request.framework, plan, problem, request.traits).empty());
}

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

}  // namespace

std::vector<LayoutWork> compare_layouts(const Request& request, const PlanResult& result) {
  constexpr double most_looked_at = 1e7;  // documents times ring ranks; blocks of a simulation
  const Mask& mask = request.problem.mask;
  const auto reference = std::ranges::find_if(
      result.candidates, [](const Candidate& c) { return c.plan.attention.ring > 1; });
  if (mask.document_ends.empty() || reference == result.candidates.end() ||
      static_cast<double>(mask.document_ends.size()) * reference->plan.attention.ring >
          most_looked_at) {
    return {};
  }
  std::vector<LayoutWork> layouts;
  for (const Layout layout : compared) {
    LayoutWork work{.plan = reference->plan};
    work.plan.attention = with_layout(reference->plan.attention, layout);
    const Problem problem = attention_problem(request, work.plan, request.problem);
    if (!can_run(request, problem, work.plan)) {
      continue;
    }
    work.padding_tokens = padded(problem, work.plan.attention).seq - problem.seq;
    work.pairs = pairs_of(problem, work.plan.attention);
    work.imbalance = imbalance_of(work.pairs);
    if (work.plan == reference->plan && reference->simulated) {
      work.step = reference->predicted.step;
    } else if (looks_of(request, work.plan) <= most_looked_at) {
      work.step = evaluate(request, work.plan).candidate.predicted.step;
    }
    layouts.push_back(std::move(work));
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
