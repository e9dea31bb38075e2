#include "planner/framework.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"
#include "base/suggest.hpp"
#include "planner/framework_match.hpp"
#include "planner/framework_step.hpp"
#include "planner/step.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace spp {
namespace {

bool has_both(const SequencePlan& plan) { return plan.ulysses > 1 && plan.ring > 1; }

/// Of the two, which one the plan puts inside.
Inner inner_of(const SequencePlan& plan) {
  return axes_of(plan).front() == Axis::ulysses ? Inner::ulysses : Inner::ring;
}

std::string_view to_string(Inner inner) { return inner == Inner::ulysses ? "ulysses" : "ring"; }

/// What keeps a plan of the way's strategy from being this way.
std::vector<Cannot> cannot(const Framework& f, const Way& way, const SequencePlan& plan,
                           const Problem& problem, const AttentionTraits& traits) {
  std::vector<Cannot> reasons;
  const auto lacks = [&](std::string_view rule, std::string_view what) {
    reasons.push_back(
        because(rule, fmt::format("{} has no {} for {}", f.name, what, way.name), way.source));
  };
  if (plan.ranks() > 1 && way.no_sinks && traits.sinks) {
    lacks("sinks", "attention sinks");
  }
  if (plan.ranks() > 1 && way.no_windows &&
      (traits.windows || problem.mask.kind == MaskKind::window)) {
    lacks("window", "sliding windows");
  }
  if (plan.ranks() > 1 && way.no_windows && traits.chunks) {
    lacks("window", "attention in chunks");
  }
  if (plan.ranks() > 1 && !f.half_attention.empty() && problem.dtype == DType::fp32) {
    reasons.push_back(
        because("dtype",
                fmt::format("{} has attention between ranks in 16 bits alone, not in fp32", f.name),
                f.half_attention));
  }
  if (plan.ranks() > 1 && way.one_width && (problem.v_dim() != problem.head_dim || traits.shapes)) {
    lacks("heads", "heads of several widths");
  }
  if (plan.ranks() > 1 && traits.linear) {
    lacks("linear", "layers of linear attention between sequence ranks");
  }
  if (plan.ranks() > 1 && traits.picks) {
    lacks("sparse", "attention to picked keys between sequence ranks");
  }
  const bool packed = !problem.mask.document_ends.empty();
  if (plan.ranks() > 1 && way.no_documents && packed) {
    lacks("documents", "packed documents");
  }
  if (!way.both && has_both(plan)) {
    reasons.push_back(because("axes",
                              fmt::format("{} has no Ulysses x ring for {}: U{}xR{}", f.name,
                                          way.name, plan.ulysses, plan.ring),
                              way.source));
  }
  const auto layouts = packed && !way.packed.empty() ? way.packed : way.layouts;
  if (needs_documents(plan.layout) && layouts.empty()) {
    lacks("layout", "layout that deals out documents by themselves");
  }
  if ((problem.mask.kind != MaskKind::full || packed) && !layouts.empty() && plan.ranks() > 1 &&
      std::ranges::find(layouts, plan.layout) == layouts.end()) {
    reasons.push_back(because("layout",
                              fmt::format("{} deals {} out {} for {}, not {}", f.name,
                                          packed ? "packed documents" : "tokens", names_of(layouts),
                                          way.name, to_string(plan.layout)),
                              way.source));
  }
  if (way.inner != Inner::any && has_both(plan) && inner_of(plan) != way.inner) {
    reasons.push_back(because("order",
                              fmt::format("{} puts {} inside for {}: its groups are adjacent ranks",
                                          f.name, to_string(way.inner), way.name),
                              way.source));
  }
  if (way.unit > 0 && plan.ranks() > 1 && !deals_documents(plan.layout) &&
      problem.seq % (std::int64_t{way.unit} * plan.ranks()) != 0) {
    reasons.push_back(
        because("sequence",
                fmt::format("{} wants sequences of a multiple of {} x {} tokens for {}: {}", f.name,
                            way.unit, plan.ranks(), way.name, problem.seq),
                way.source));
  }
  return reasons;
}

std::string ways_of(const Framework& f) {
  std::vector<std::string> names;
  for (const Way& way : f.ways) {
    if (std::ranges::find(names, way.strategy) == names.end()) {
      names.emplace_back(way.strategy);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// As far as the degrees around attention are given.
StepPlan given_around(const StepChoices& given) {
  return {.tensor = given.tensor.value_or(1),
          .data = given.data.value_or(1),
          .guided = given.guidance != Guidance::none,
          .expert = given.expert.value_or(1),
          .pipeline = given.pipeline.value_or(1),
          .order = given.order.value_or(std::string(pipelines::usual(1).name))};
}

void add(std::vector<Cannot>& reasons, std::optional<Cannot> reason) {
  if (reason) {
    reasons.push_back(std::move(*reason));
  }
}

}  // namespace

FrameworkMatch match(const Framework& f, const SequencePlan& plan, const Problem& problem,
                     const AttentionTraits& traits) {
  FrameworkMatch best;
  for (const Way& way : f.ways) {
    if (way.strategy != plan.strategy && plan.ranks() > 1) {  // on one rank all do the same
      continue;
    }
    std::vector<Cannot> reasons = cannot(f, way, plan, problem, traits);
    if (best.way == nullptr || reasons.size() < best.reasons.size()) {
      best = {.way = &way, .reasons = std::move(reasons)};
    }
  }
  return best;
}

namespace frameworks {

const Framework& by_name(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  const std::string wanted = in_lower_case(name);
  for (const Framework* f : all()) {
    if (f->name == wanted || std::ranges::find(f->aliases, wanted) != f->aliases.end()) {
      return *f;
    }
    names.emplace_back(f->name);
  }
  std::vector<std::string> near = names;
  for (const Framework* f : all()) {
    near.insert(near.end(), f->aliases.begin(), f->aliases.end());
  }
  const bool typing_error = !nearest_name(wanted, near).empty();
  throw InputError(where, fmt::format("unknown framework '{}'{}", name,
                                      did_you_mean(wanted, typing_error ? near : names)));
}

}  // namespace frameworks

Cannot no_way(const Framework& f, std::string_view strategy) {
  return because("framework", fmt::format("{} has no {}, but {}", f.name, strategy, ways_of(f)),
                 f.checked);
}

std::vector<Cannot> cannot(const Framework& f, const SequencePlan& plan, const Problem& problem,
                           const AttentionTraits& traits) {
  FrameworkMatch found = match(f, plan, problem, traits);
  std::vector<Cannot> reasons = std::move(found.reasons);
  if (found.way == nullptr) {
    reasons.push_back(no_way(f, plan.strategy));
  }
  if (plan.ulysses > 1 && !f.heads.has(plan.heads)) {
    const std::string why = HeadSplit::why_not(problem, plan.ulysses, f.heads.values.front());
    reasons.push_back(
        because("heads",
                fmt::format("{} {}{}{}", f.name,
                            plan.heads == HeadPolicy::replicate ? "does not replicate KV heads"
                            : plan.heads == HeadPolicy::pad     ? "does not pad heads"
                            : plan.heads == HeadPolicy::uneven  ? "does not deal heads out unevenly"
                                                                : "does not deal heads out evenly",
                            why.empty() ? "" : ": ", why),
                f.heads.source));
  }
  if (plan.rank_order == RankOrder::cyclic && !f.places_ranks) {
    reasons.push_back(because(
        "rank-order", fmt::format("{} numbers ranks node by node, as its launcher does", f.name),
        "https://docs.pytorch.org/docs/stable/elastic/run.html"));
  }
  if (f.also != nullptr && found.way != nullptr) {
    if (Cannot own = f.also(plan, problem); !own.what.empty()) {
      reasons.push_back(std::move(own));
    }
  }
  return reasons;
}

std::vector<Cannot> cannot(const Framework& f, const Request& request) {
  std::vector<Cannot> reasons;
  const bool trains = request.phase == StepPhase::train || request.phase == StepPhase::backward ||
                      request.phase == StepPhase::forward_backward;
  const bool infers = request.phase == StepPhase::prefill;
  if ((trains && !f.trains) || (infers && !f.infers)) {
    reasons.push_back(
        because("phase",
                fmt::format("{} {}, and --phase is {}", f.name,
                            f.trains ? "trains" : "runs inference only", to_string(request.phase)),
                f.checked));
  }
  if (request.model) {
    add_model(f, *request.model, reasons);
  }
  if (request.cluster != nullptr) {
    add_nodes(f, *request.cluster, reasons);
  }
  if (request.problem.cached > 0 && !(f.infers && f.loads_models)) {
    reasons.push_back(because(
        "cached", fmt::format("the text written for {} meets no cached keys", f.name), f.checked));
  }
  if (!f.masks.has(request.problem.mask.kind)) {
    reasons.push_back(because("mask",
                              fmt::format("{} has no {} mask", f.name,
                                          to_string(Mask{.kind = request.problem.mask.kind,
                                                         .window = request.problem.mask.window})),
                              f.masks.source));
  }
  if (request.whole_step()) {
    add_axes(f, request, given_around(request.step), reasons);
  }
  if (request.whole_step() && request.step.zero) {
    add(reasons, cannot_zero(f, request, *request.step.zero));
  }
  if (request.phase == StepPhase::train && request.step.recompute) {
    add(reasons, cannot_recompute(f, recomputation_of(request, *request.step.recompute)));
  }
  return reasons;
}

std::vector<Cannot> cannot(const Framework& f, const Request& request, const Candidate& candidate) {
  Request open = request;
  open.step = {};  // the candidate says what the step is
  const StepPlan& plan = candidate.plan;
  std::vector<Cannot> reasons = cannot(f, open);
  add_axes(f, request, plan, reasons);
  add_experts(f, request, plan, reasons);
  const Problem problem = attention_problem(request, plan, request.problem);
  const AttentionTraits traits = traits_of(request);
  const Way* way = match(f, plan.attention, problem, traits).way;
  add_tensor(f, way, request, plan, reasons);
  for (Cannot& reason : cannot(f, plan.attention, problem, traits)) {
    reasons.push_back(std::move(reason));
  }
  if (request.whole_step()) {
    add_unit(f, request, plan, reasons);
    if (!f.mlp_over_all.empty()) {
      add_mlp(f, *request.model, plan, reasons);
    }
    add(reasons, cannot_zero(f, request, plan.zero));
    add_shards(f, way, request, plan, reasons);
    if (f.also_step != nullptr) {
      if (Cannot own = f.also_step(request, plan); !own.what.empty()) {
        reasons.push_back(std::move(own));
      }
    }
  }
  if (request.phase == StepPhase::train) {
    add(reasons, cannot_recompute(f, plan.recompute));
  }
  return reasons;
}

}  // namespace spp
