// From a plan to the text that a framework takes: what a launch says, the nearest plan that can be
// run, its snippet.
#include "base/error.hpp"
#include "planner/framework.hpp"
#include "planner/framework_match.hpp"
#include "planner/step.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace spp {

Launch launch_of(const Request& request, const Candidate& candidate) {
  const StepPlan& plan = candidate.plan;
  // By name, all of them: what a plan says more does not compile until it is said here, too.
  const auto& [attention, tensor, tensor_sequence, data, guided, expert, expert_tensor, to_experts,
               pipeline, virtual_stages, order, micro_batch, micro_batches, zero, zero_group,
               recompute, offload, offloaded, format, wide_attention] = plan;
  Launch launch{.attention = attention,
                .tp = tensor,
                .pp = pipeline,
                .dp = plan.dp(),
                .ep = expert,
                .etp = expert_tensor,
                .to_experts = to_experts,
                .cfg = plan.cfg(),
                .virtual_stages = virtual_stages,
                .order = order,
                .micro_batches = guided ? 1 : micro_batches,
                .tensor_sequence = tensor_sequence,
                .zero = zero,
                .shard_copies = zero > 0 && zero_group > 0 ? plan.replicas() / zero_group : 1,
                .recompute = request.phase == StepPhase::train ? recompute : Recomputation{},
                .offload = offload,
                .offloaded = offloaded,
                .format = format,
                .wide_attention = wide_attention,
                .phase = request.phase,
                .problem = request.problem,
                .traits = traits_of(request),
                .model = request.model ? &*request.model : nullptr};
  // Pipelines of guided models compute both branches of an image themselves.
  launch.problem.batch = guided ? request.problem.batch : micro_batch;
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

/// Of steps of as many sequences as the wanted plan's. What the request fixes is let go in turn:
/// attention's own degrees, all degrees, at last what a step does with them.
std::optional<Candidate> nearest(const Framework& f, const Request& request,
                                 const Candidate& wanted, const Watch& watch) {
  if (request.cluster == nullptr) {
    return std::nullopt;
  }
  Request restricted = request;
  restricted.framework = &f;
  if (request.phase == StepPhase::train) {
    restricted.step.global_batch = wanted.plan.global_batch();
  }
  const StepChoices wanted_step = restricted.step;
  const auto let_attention_go = [](Request& r) { r.fixed = {}; };
  const auto let_degrees_go = [](Request& r) {
    StepChoices& step = r.step;
    step.tensor = step.pipeline = step.data = step.expert = step.expert_tensor =
        step.virtual_stages = step.zero_group = std::nullopt;
    step.order.reset();
    step.to_experts.reset();
  };
  const auto let_step_go = [&](Request& r) {
    r.step = {.micro_batch = wanted_step.micro_batch,
              .global_batch = wanted_step.global_batch,
              .format = wanted_step.format,
              .guidance = wanted_step.guidance};
  };
  std::optional<Candidate> found = fastest(restricted, watch);
  for (const std::function<void(Request&)>& let_go :
       {std::function<void(Request&)>(let_attention_go), {let_degrees_go}, {let_step_go}}) {
    if (found) {
      break;
    }
    let_go(restricted);
    found = fastest(restricted, watch);
  }
  return found;
}

/// What the request fixes of a step and the plan has otherwise: "recomputation none instead of
/// full". Its degrees are in its name.
std::vector<std::string> given_up(const StepChoices& wanted, const StepPlan& shown) {
  std::vector<std::string> all;
  const auto tell = [&](std::string_view what, const auto& asked, const auto& has,
                        const auto& text) {
    if (asked && *asked != has) {
      all.push_back(fmt::format("{} {} instead of {}", what, text(has), text(*asked)));
    }
  };
  const auto number = [](auto n) { return fmt::format("{}", n); };
  const auto word = [](auto value) { return std::string(to_string(value)); };
  tell("recomputation", wanted.recompute, shown.recompute.kind, word);
  tell("offload", wanted.offload, shown.offload, word);
  tell("ZeRO", wanted.zero, shown.zero, number);
  tell("ZeRO groups of", wanted.zero_group, shown.zero_group, number);
  tell("micro-batch", wanted.micro_batch, shown.micro_batch, number);
  return all;
}

/// Who cuts and pads each document is the caller's data pipeline, whatever the framework.
void note_documents(Snippet& snippet, const Launch& launch) {
  if (!deals_documents(launch.attention.layout)) {
    return;
  }
  const int ranks = launch.context();
  const bool from_both_ends = launch.attention.layout == Layout::document_zigzag;
  const int pieces = (from_both_ends ? 2 : 1) * launch.attention.ring;
  snippet.notes.push_back(fmt::format(
      "Packed documents are yours to cut (THD): each is padded to a multiple of {}{} tokens, {} "
      "more in all, and of its {} pieces rank r of the ring has {}.",
      from_both_ends ? "2 x " : "", ranks,
      padded(launch.problem, launch.attention).seq - launch.problem.seq, pieces,
      from_both_ends ? fmt::format("pieces r and {} - r", pieces - 1) : "piece r"));
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
    result.shown = nearest(f, request, wanted, watch);
    if (result.shown && wanted.simulated && wanted.predicted.fits) {
      result.loss = result.shown->predicted.step / wanted.predicted.step - 1;
    }
  }
  if (result.shown) {
    const FrameworkMatch found =
        match(f, result.shown->plan.attention,
              attention_problem(request, result.shown->plan, request.problem), traits_of(request));
    ensure(found.way != nullptr, "a plan without a way");
    Launch launch = launch_of(request, *result.shown);
    const bool says_no_step = !request.whole_step() && f.trains;
    if (says_no_step && !f.zero.has(launch.zero)) {
      launch.zero = f.zero.values.front();
    }
    result.snippet = f.emit(launch, *found.way);
    note_documents(result.snippet, launch);
    if (const auto otherwise = result.cannot.empty() ? std::vector<std::string>()
                                                     : given_up(request.step, result.shown->plan);
        !otherwise.empty()) {
      result.snippet.notes.push_back(
          fmt::format("Not as asked for: {}.", fmt::join(otherwise, ", ")));
    }
    if (const auto rest = unsaid(launch, result.snippet.says); !rest.empty()) {
      result.snippet.notes.push_back(
          fmt::format("Not in this text, and yours to see to: {}.", fmt::join(rest, ", ")));
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
