// From a plan to the text that a framework takes: what a launch says, the nearest plan that can be
// run, its snippet.
#include "base/error.hpp"
#include "planner/framework.hpp"
#include "planner/framework_match.hpp"
#include "planner/step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace spp {

Launch launch_of(const Request& request, const Candidate& candidate) {
  const bool train = request.phase == StepPhase::train;
  const StepPlan& plan = candidate.plan;
  Launch launch{.attention = plan.attention,
                .tp = plan.tensor,
                .pp = plan.pipeline,
                .dp = plan.guided ? 1 : plan.data,
                .ep = plan.expert,
                .etp = plan.expert_tensor,
                .cfg = plan.guided ? plan.data : 1,
                .virtual_stages = plan.virtual_stages,
                .order = plan.order,
                .micro_batches = plan.micro_batches,
                .tensor_sequence = plan.tensor_sequence,
                .zero = train ? plan.zero : 0,
                .shard_copies = train && plan.zero > 0 ? plan.replicas() / plan.shards() : 1,
                .recompute = train ? plan.recompute.kind : Recompute::none,
                .offload = plan.offload,
                .format = plan.format,
                .phase = request.phase,
                .problem = request.problem,
                .model = request.model ? &*request.model : nullptr};
  launch.problem.batch = plan.micro_batch;
  launch.nodes = request.cluster != nullptr ? request.cluster->nodes() : 1;
  launch.gpus_per_node = request.cluster != nullptr && launch.nodes > 1
                             ? request.cluster->gpus_per_node()
                             : launch.world();
  return launch;
}

namespace {

std::optional<Candidate> fastest(const Request& request, const Watch& watch) {
  PlanResult result = plan(request, watch);
  if (result.candidates.empty() || !result.any_fits) {
    return std::nullopt;
  }
  return std::move(result.candidates.front());
}

std::optional<Candidate> nearest(const Framework& f, const Request& request, const Watch& watch) {
  if (request.cluster == nullptr) {
    return std::nullopt;
  }
  Request restricted = request;
  restricted.framework = &f;
  std::optional<Candidate> found = fastest(restricted, watch);
  if (!found) {
    restricted.fixed = {};
    restricted.step = {.micro_batch = request.step.micro_batch,
                       .global_batch = request.step.global_batch};
    found = fastest(restricted, watch);
  }
  return found;
}

/// Who cuts and pads each document is the caller's data pipeline, whatever the framework.
void note_documents(Snippet& snippet, const Launch& launch) {
  if (!deals_documents(launch.attention.layout)) {
    return;
  }
  const int ranks = launch.context();
  const int pieces = 2 * launch.attention.ring;
  snippet.notes.push_back(fmt::format(
      "Packed documents are yours to cut (THD): each is padded to a multiple of 2 x {} tokens, {} "
      "more in all, and of its {} pieces rank r of the ring has pieces r and {} - r.",
      ranks, padded(launch.problem, launch.attention).seq - launch.problem.seq, pieces,
      pieces - 1));
}

void set_environment(Snippet& snippet) {
  const auto bash = std::ranges::find(snippet.blocks, "bash", &Block::language);
  if (bash == snippet.blocks.end()) {
    return;
  }
  std::string lines;
  for (const Variable& v : snippet.environment) {
    lines += v.value.empty() ? fmt::format("unset {}\n", v.name)
                             : fmt::format("export {}={}\n", v.name, v.value);
  }
  bash->text = lines + bash->text;
}

}  // namespace

Exported exported(const Framework& f, const Request& request, const Candidate& wanted,
                  const Watch& watch) {
  Exported result{.framework = &f, .cannot = cannot(f, request, wanted)};
  if (result.cannot.empty()) {
    result.shown = wanted;
  } else {
    result.shown = nearest(f, request, watch);
    if (result.shown && wanted.simulated && wanted.predicted.step.count() > 0) {
      result.loss = result.shown->predicted.step / wanted.predicted.step - 1;
    }
  }
  if (result.shown) {
    const FrameworkMatch found =
        match(f, result.shown->plan.attention,
              attention_problem(request, result.shown->plan, request.problem), traits_of(request));
    ensure(found.way != nullptr, "a plan without a way");
    Launch launch = launch_of(request, *result.shown);
    const bool says_no_step = request.phase != StepPhase::train && f.trains;
    if (says_no_step && !f.zero.has(launch.zero)) {
      launch.zero = f.zero.values.front();
    }
    result.snippet = f.emit(launch, *found.way);
    note_documents(result.snippet, launch);
    if (launch.format != GemmFormat::plain && !f.axes.narrow_gemms) {
      result.snippet.notes.push_back(fmt::format(
          "GEMMs in {} are yours to switch on: this text does not.", to_string(launch.format)));
    }
    if (says_no_step) {
      result.snippet.notes.emplace_back(
          "The plan is of attention alone: ZeRO stage and recomputation are not from it.");
    }
    set_environment(result.snippet);
  }
  return result;
}

}  // namespace spp
