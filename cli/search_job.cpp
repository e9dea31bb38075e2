#include "cli/search_job.hpp"

#include "base/error.hpp"
#include "cli/framework.hpp"
#include "cli/human.hpp"
#include "cli/limits.hpp"

#include <algorithm>

namespace spp::cli {

std::string nothing_fits(const Request& request, const PlanResult& result) {
  const Candidate& least = result.candidates.front();
  const Prediction& p = least.predicted;
  const bool train = request.phase == StepPhase::train;
  std::string text = fmt::format(
      "nothing fits: the smallest of {}, {}{}, needs {} of {} usable a GPU, {} too much",
      human_count(result.searched, "plan"), short_name(least.plan),
      train
          ? fmt::format(" with ZeRO {} and {}", least.plan.zero,
                        least.plan.recompute.kind == Recompute::none
                            ? "without recomputation"
                            : fmt::format("{} recomputation", to_string(least.plan.recompute.kind)))
      : least.plan.zero > 0 ? fmt::format(" with ZeRO {}", least.plan.zero)
                            : "",
      human(p.memory.tensors()), human(request.memory), human(p.memory.tensors() - request.memory));
  if (p.max_seq > 0) {
    text += fmt::format("; that plan fits up to {} tokens", human_count(p.max_seq));
  } else {
    text += ", at any length";
  }
  // Lengths that do not divide bar plans that may need less.
  const auto of_length = [](const Rejected& r) { return r.rule == "sequence"; };
  const auto barred = std::ranges::find_if(result.rejected, of_length);
  if (barred != result.rejected.end()) {
    text += fmt::format("; {} more are barred by the length, the first ({}): {}",
                        std::ranges::count_if(result.rejected, of_length), short_name(barred->plan),
                        barred->detail);
  }
  return text;
}

std::string no_legal_plan(const Request& request, const PlanResult& result) {
  std::string text = "no legal plan for " + human_count(request.gpus, "GPU");
  if (result.rejected.empty()) {
    return text + ": no strategy uses these degrees";
  }
  // That a framework lacks a strategy, a strategy the phase, or a plan the stages that --pipeline
  // means, says less than why the others will not do.
  const auto told = std::ranges::find_if(result.rejected, [](const Rejected& r) {
    const bool without_stages = r.rule == "pipeline" && r.plan.pipeline == 1;
    return r.rule != "framework" && r.rule != "phase" && !without_stages;
  });
  const Rejected& one = told != result.rejected.end() ? *told : result.rejected.front();
  return text + fmt::format(": {} rejected, {} ({}) because of {}: {}", result.rejected.size(),
                            &one == &result.rejected.front() ? "the first" : "one of them",
                            short_name(one.plan), one.rule, one.detail);
}

Job read_search(Arguments arguments, int top) {
  const Framework* framework = framework_of(arguments);
  std::vector<Assumption> assumed;
  if (framework != nullptr) {
    assumed = adopt_framework(arguments, *framework);
  }
  Job job = read_job(arguments);
  job.assumptions.insert(job.assumptions.end(), assumed.begin(), assumed.end());
  job.request.framework = framework;
  job.request.top = top;
  job.request.objective = parse_objective(arguments.get("objective", "time"), "--objective");
  job.request.most = search_limit(seconds(arguments, "budget", fmt::format("{}", search_seconds)));
  const Request& r = job.request;
  if (r.phase == StepPhase::train && r.gpus > 1 && !r.step.global_batch && !r.step.data &&
      !r.counts_replicas()) {
    job.assumptions.push_back(
        {.what = "dp",
         .value =
             "1: all GPUs work on one micro-batch (replicas are searched for a --global-batch, "
             "or by --objective tokens_per_s)",
         .source = "no --global-batch"});
  }
  const bool within_nodes = r.whole_step() && !r.step.tensor && r.cluster != nullptr &&
                            r.gpus > r.cluster->gpus_per_node() &&
                            (framework == nullptr || framework->axes.tensor);
  if (within_nodes) {
    job.assumptions.push_back(
        {.what = "tp",
         .value = fmt::format("up to {}, the GPUs of a node: beyond that on request (--tp) alone",
                              r.cluster->gpus_per_node()),
         .source = "default, as frameworks lay tensor ranks out"});
  }
  job.resolved["framework"] = framework != nullptr ? Json(framework->name) : Json();
  job.resolved["objective"] = to_string(job.request.objective);
  job.resolved["top"] = job.request.top;
  return job;
}

}  // namespace spp::cli
