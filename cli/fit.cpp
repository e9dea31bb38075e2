#include "cli/fit.hpp"

#include "base/error.hpp"
#include "cli/human.hpp"
#include "planner/step.hpp"

#include <algorithm>
#include <utility>

namespace spp::cli {
namespace {

bool can_run(const Framework& framework, const Request& request, const StepPlan& plan) {
  Candidate candidate;
  candidate.plan = plan;
  candidate.strategy = &strategies::by_name(plan.attention.strategy, "--strategy");
  return cannot(framework, request, candidate).empty();
}

/// What saves memory, the least change first: the first with which a training step fits; else what
/// saves most of what is needed.
std::string what_would_fit(const Job& job, const StepPlan& plan, Bytes needed_now,
                           const Framework* framework) {
  if (job.request.phase != StepPhase::train) {
    return "";
  }
  StepEvaluator evaluator(job.request);
  std::string most_saved;
  Bytes least = needed_now;
  for (const auto& [zero, recompute] :
       {std::pair(plan.zero, Recompute::selective), std::pair(plan.zero, Recompute::full),
        std::pair(3, plan.recompute.kind), std::pair(3, Recompute::full)}) {
    StepPlan saving = plan;
    saving.zero = std::max(plan.zero, zero);
    if (plan.recompute.kind < recompute) {
      saving.recompute = {.kind = recompute};
    }
    if (saving.zero == plan.zero && saving.recompute == plan.recompute) {
      continue;
    }
    if (framework != nullptr && !can_run(*framework, job.request, saving)) {
      continue;
    }
    std::string options;
    if (saving.zero != plan.zero) {
      options = fmt::format(" --zero {}", saving.zero);
    }
    if (saving.recompute != plan.recompute) {
      options += fmt::format(" --recompute {}", to_string(saving.recompute));
    }
    try {
      const StepEvaluation e = evaluator.evaluate(saving);
      Bytes needed{};
      for (const MemoryBytes& stage : e.memory) {
        needed = std::max(needed, stage.tensors());
      }
      if (e.fits) {
        return fmt::format("; with{} it fits ({})", options, human(needed));
      }
      if (needed < least) {
        least = needed;
        most_saved = fmt::format("; even with{} it needs {}", options, human(needed));
      }
    } catch (const InputError&) {
      continue;  // these degrees, or this stack, cannot
    }
  }
  return most_saved;
}

}  // namespace

std::string does_not_fit(const Job& job, const StepPlan& plan, const Prediction& p,
                         const Framework* framework) {
  return fmt::format(
      "{} does not fit: it needs {} of {} usable a GPU; the longest sequence that fits is {} "
      "tokens{}",
      short_name(plan), human(p.memory.tensors()), human(job.request.memory),
      human_count(p.max_seq), what_would_fit(job, plan, p.memory.tensors(), framework));
}

}  // namespace spp::cli
