#include "planner/framework.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "planner/step.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace spp {
namespace {

template <class T>
std::string names_of(std::span<const T> values) {
  std::vector<std::string> names;
  for (const T& value : values) {
    names.emplace_back(to_string(value));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

Cannot because(std::string_view rule, std::string what, std::string_view source) {
  return {.rule = std::string(rule), .what = std::move(what), .source = std::string(source)};
}

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
  if (plan.layout == Layout::document_zigzag && layouts.empty()) {
    lacks("layout", "layout that cuts each document");
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
  if (way.unit > 0 && plan.ranks() > 1 && plan.layout != Layout::document_zigzag &&
      problem.seq % (std::int64_t{way.unit} * plan.ranks()) != 0) {
    reasons.push_back(
        because("sequence",
                fmt::format("{} wants sequences of a multiple of {} x {} tokens for {}: {}", f.name,
                            way.unit, plan.ranks(), way.name, problem.seq),
                way.source));
  }
  return reasons;
}

/// The way that the plan is, or comes nearest to, and what keeps it from it.
struct Match {
  const Way* way = nullptr;
  std::vector<Cannot> reasons;
};

Match match(const Framework& f, const SequencePlan& plan, const Problem& problem,
            const AttentionTraits& traits) {
  Match best;
  for (const Way& way : f.ways) {
    if (way.strategy != plan.strategy) {
      continue;
    }
    std::vector<Cannot> reasons = cannot(f, way, plan, problem, traits);
    if (best.way == nullptr || reasons.size() < best.reasons.size()) {
      best = {.way = &way, .reasons = std::move(reasons)};
    }
  }
  return best;
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

std::optional<Cannot> cannot_zero(const Framework& f, int zero) {
  if (f.zero.has(zero)) {
    return std::nullopt;
  }
  return because(
      "zero",
      fmt::format("{} has no ZeRO {} here, but {}", f.name, zero, fmt::join(f.zero.values, ", ")),
      f.zero.source);
}

std::optional<Cannot> cannot_recompute(const Framework& f, Recompute recompute) {
  if (f.recompute.has(recompute)) {
    return std::nullopt;
  }
  return because("recompute",
                 fmt::format("{} has no {} recomputation as planned here, but {}", f.name,
                             to_string(recompute), names_of(f.recompute.values)),
                 f.recompute.source);
}

/// Degrees around attention.
void add_axes(const Framework& f, const StepPlan& plan, std::vector<Cannot>& reasons) {
  const auto refuse = [&](std::string_view rule, std::string_view what, int degree) {
    reasons.push_back(
        because(rule, fmt::format("{} has no {} here: {}", f.name, what, degree), f.checked));
  };
  if (plan.tensor > 1 && !f.axes.tensor) {
    refuse("tensor", "tensor parallelism", plan.tensor);
  }
  if (plan.pipeline > 1 && !f.axes.pipeline) {
    refuse("pipeline", "pipeline parallelism", plan.pipeline);
  }
  if (plan.guided && plan.data > 1 && !f.axes.guidance) {
    reasons.push_back(because(
        "guidance", fmt::format("{} computes both branches of guidance on the same GPUs", f.name),
        f.checked));
  }
  if (plan.expert > 1 && !f.axes.expert) {
    refuse("expert", "expert parallelism", plan.expert);
  }
  const int all = plan.tensor * plan.attention.ranks() * plan.data;
  if (plan.expert > 1 && f.axes.expert_over_all && plan.expert != all) {
    reasons.push_back(because("expert",
                              fmt::format("{} splits experts over tensor x sequence x data ranks, "
                                          "{} here, or not at all: not {}",
                                          f.name, all, plan.expert),
                              f.checked));
  }
  if (plan.pipeline > 1 && plan.order == "zero-bubble" && !f.axes.cut_backward) {
    reasons.push_back(
        because("pipeline", fmt::format("{} has no zero-bubble pipeline", f.name), f.checked));
  }
}

void add(std::vector<Cannot>& reasons, std::optional<Cannot> reason) {
  if (reason) {
    reasons.push_back(std::move(*reason));
  }
}

}  // namespace

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

std::vector<Cannot> cannot(const Framework& f, const SequencePlan& plan, const Problem& problem,
                           const AttentionTraits& traits) {
  Match found = match(f, plan, problem, traits);
  std::vector<Cannot> reasons = std::move(found.reasons);
  if (found.way == nullptr) {
    reasons.push_back(
        because("framework", fmt::format("{} has no {}, but {}", f.name, plan.strategy, ways_of(f)),
                f.checked));
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
  if (!f.masks.has(request.problem.mask.kind)) {
    reasons.push_back(because("mask",
                              fmt::format("{} has no {} mask", f.name,
                                          to_string(Mask{.kind = request.problem.mask.kind})),
                              f.masks.source));
  }
  if (request.phase == StepPhase::train && request.step.zero) {
    add(reasons, cannot_zero(f, *request.step.zero));
  }
  if (request.phase == StepPhase::train && request.step.recompute) {
    add(reasons, cannot_recompute(f, *request.step.recompute));
  }
  return reasons;
}

std::vector<Cannot> cannot(const Framework& f, const Request& request, const Candidate& candidate) {
  Request open = request;  // the candidate says what the step is
  open.step.zero.reset();
  open.step.recompute.reset();
  const StepPlan& plan = candidate.plan;
  std::vector<Cannot> reasons = cannot(f, open);
  add_axes(f, plan, reasons);
  for (Cannot& reason :
       cannot(f, plan.attention, attention_problem(request, plan, request.problem.mask),
              traits_of(request))) {
    reasons.push_back(std::move(reason));
  }
  if (request.phase == StepPhase::train) {
    add(reasons, cannot_zero(f, plan.zero));
    add(reasons, cannot_recompute(f, plan.recompute.kind));
  }
  return reasons;
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
  if (launch.attention.layout != Layout::document_zigzag) {
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
    const Match found = match(f, result.shown->plan.attention,
                              attention_problem(request, result.shown->plan, request.problem.mask),
                              traits_of(request));
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
