#include "planner/framework.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "planner/framework_match.hpp"
#include "planner/step.hpp"
#include "transformer/diffusion_family.hpp"

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
  if (deals_documents(plan.layout) && layouts.empty()) {
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

std::string_view words_of(ModelKind kind) {
  return kind == ModelKind::llm ? "language models" : "diffusion transformers";
}

const FrameworkFamily* family_of(const Framework& f, const Model& model) {
  const DiffusionFamily* const own = model.diffusion.family;
  const auto at = std::ranges::find_if(f.families, [&](const FrameworkFamily& one) {
    return own != nullptr && one.name == own->name;
  });
  return at == f.families.end() ? nullptr : &*at;
}

std::optional<Cannot> cannot_zero(const Framework& f, const Request& request, int zero) {
  const FrameworkFamily* const family = request.model ? family_of(f, *request.model) : nullptr;
  const bool whole = zero > 0 && family != nullptr && !family->shards;
  if (f.has_zero(zero, request.phase) && !whole) {
    return std::nullopt;
  }
  if (whole || f.zero.values.empty()) {
    return because("zero",
                   fmt::format("{} has whole weights{} on every GPU, not ZeRO {}", f.name,
                               family != nullptr ? fmt::format(" of {}", family->name) : "", zero),
                   f.checked);
  }
  return because(
      "zero",
      fmt::format("{} has no ZeRO {} here, but {}", f.name, zero, fmt::join(f.zero.values, ", ")),
      f.zero.source);
}

std::optional<Cannot> cannot_recompute(const Framework& f, const Recomputation& how) {
  if (f.recomputes(how)) {
    return std::nullopt;
  }
  if (f.recompute.has(how.kind)) {  // not of these modules
    return because("recompute",
                   fmt::format("{} has no {} recomputation, but {}", f.name, to_string(how),
                               to_string(Recomputation{.kind = how.kind, .modules = f.modules})),
                   f.recompute.source);
  }
  return because("recompute",
                 fmt::format("{} has no {} recomputation as planned here, but {}", f.name,
                             to_string(how.kind), names_of(f.recompute.values)),
                 f.recompute.source);
}

/// Models that the framework does not have, or that the text written for it has no words for.
void add_model(const Framework& f, const Model& m, std::vector<Cannot>& reasons) {
  const auto refuse = [&](std::string_view rule, std::string what) {
    reasons.push_back(because(rule, std::move(what), f.checked));
  };
  if (f.models && m.kind != *f.models) {
    refuse(
        "model",
        fmt::format("what is written for {} is for {}, and {} is a {}", f.name, words_of(*f.models),
                    m.name, m.kind == ModelKind::llm ? "language model" : "diffusion transformer"));
  } else if (m.kind == ModelKind::dit && !f.families.empty() && family_of(f, m) == nullptr) {
    std::vector<std::string_view> names;
    std::ranges::transform(f.families, std::back_inserter(names), &FrameworkFamily::name);
    refuse("model", fmt::format("{} has no {}, but {}", f.name, m.name, fmt::join(names, ", ")));
  }
  if (!f.loads_models && (m.linear || m.indexer)) {
    refuse(m.linear ? "linear" : "sparse",
           fmt::format("the text written for {} has no layers of {} attention, and {} has them",
                       f.name, m.linear ? "linear" : "sparse", m.name));
  }
  if (f.writes_heads && m.narrow_heads) {
    refuse("heads", fmt::format("the text written for {} says one shape of heads, and {} has two",
                                f.name, m.name));
  }
}

/// Degrees around attention of which a framework has none.
void add_axes(const Framework& f, const Request& request, const StepPlan& plan,
              std::vector<Cannot>& reasons) {
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
  if (!plan.guided && plan.data > 1 && !f.axes.data) {
    refuse("data", "data parallelism", plan.data);
  }
  const FrameworkFamily* const family = request.model ? family_of(f, *request.model) : nullptr;
  const bool apart = f.axes.guidance && (family == nullptr || family->guidance);
  if (plan.guided && plan.data > 1 && !apart) {
    reasons.push_back(
        because("guidance",
                fmt::format("{} computes both branches of {}guidance on the same GPUs", f.name,
                            f.axes.guidance ? fmt::format("{}'s ", family->name) : ""),
                f.checked));
  }
  if (plan.expert > 1 && !f.axes.expert) {
    refuse("expert", "expert parallelism", plan.expert);
  }
  if (plan.expert_tensor > 1 && !f.axes.expert) {
    refuse("expert", "tensor parallelism of experts", plan.expert_tensor);
  }
  if (request.phase == StepPhase::train && plan.pipeline > 1 && f.axes.pipeline &&
      !f.axes.has_order(plan.order)) {
    reasons.push_back(because("pipeline",
                              fmt::format("{} has no {} pipeline, but {}", f.name, plan.order,
                                          fmt::join(f.axes.orders, ", ")),
                              f.checked));
  }
}

/// Experts over other ranks than those that a framework splits them over.
void add_experts(const Framework& f, const Request& request, const StepPlan& plan,
                 std::vector<Cannot>& reasons) {
  const int ranks = f.axes.expert_ranks_of(plan.tensor, plan.sequence(), plan.data);
  if (request.model && request.model->experts.count > 0 && ranks > 0 &&
      plan.expert * plan.expert_tensor != ranks) {
    reasons.push_back(because(
        "expert",
        fmt::format("{} splits experts over tensor x sequence{} ranks, {} here, not over {}",
                    f.name, f.axes.expert_ranks == ExpertRanks::stage ? " x data" : "", ranks,
                    plan.expert * plan.expert_tensor),
        f.checked));
  } else if (f.axes.expert_ranks == ExpertRanks::stage && plan.expert > 1 &&
             plan.expert_tensor > 1) {
    reasons.push_back(
        because("expert", fmt::format("{} splits experts whole or each of them, not both", f.name),
                f.checked));
  }
}

/// As far as the degrees around attention are given.
StepPlan given_around(const StepChoices& given) {
  return {.tensor = given.tensor.value_or(1),
          .data = given.data.value_or(1),
          .guided = given.guidance != Guidance::none,
          .expert = given.expert.value_or(1),
          .pipeline = given.pipeline.value_or(1),
          .order = given.order.value_or("1f1b")};
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

namespace {

/// Tensor ranks beside a way that has none.
void add_tensor(const Framework& f, const Way* way, const StepPlan& plan,
                std::vector<Cannot>& reasons) {
  if (plan.tensor > 1 && plan.sequence() > 1 && way != nullptr && way->no_tensor) {
    reasons.push_back(because(
        "tensor",
        fmt::format("{} has no tensor parallelism beside {}: {}", f.name, way->name, plan.tensor),
        way->source));
  }
}

/// Tokens that do not fill all ranks that have some of them, where no way's rule said so.
void add_unit(const Framework& f, const Request& request, const StepPlan& plan,
              std::vector<Cannot>& reasons) {
  const int ranks = plan.sequence() * (plan.tensor_sequence ? plan.tensor : 1);
  const Problem& problem = request.problem;
  const std::int64_t tokens =
      deals_documents(plan.attention.layout) ? padded(problem, plan.attention).seq : problem.seq;
  if (f.unit.tokens > 0 && tokens % (std::int64_t{f.unit.tokens} * ranks) != 0 &&
      std::ranges::find(reasons, "sequence", &Cannot::rule) == reasons.end()) {
    reasons.push_back(because("sequence",
                              fmt::format("{} wants sequences of a multiple of {} x {} tokens "
                                          "(tensor x sequence ranks): {}",
                                          f.name, f.unit.tokens, ranks, tokens),
                              f.unit.source));
  }
}

/// Shards over some of the ranks that hold the same weights.
void add_shards(const Framework& f, const Way* way, const Request& request, const StepPlan& plan,
                std::vector<Cannot>& reasons) {
  if (plan.zero == 0 || plan.shards() == plan.replicas()) {
    return;
  }
  const auto refuse = [&](std::string what) {
    reasons.push_back(
        because("zero-group", std::move(what), f.zero.source.empty() ? f.checked : f.zero.source));
  };
  if (!f.axes.shard_copies || (way != nullptr && way->no_shard_copies)) {
    refuse(
        fmt::format("the text written for {} cuts shards over all {} sequence x data ranks, "
                    "not over {}",
                    f.name, plan.replicas(), plan.shards()));
  } else if (plan.shards() % plan.sequence() != 0) {
    refuse(
        fmt::format("{} cuts shards over whole data ranks, and {} ranks are no multiple of the "
                    "sequence's {}",
                    f.name, plan.shards(), plan.sequence()));
  } else if (request.model && request.model->experts.count > 0) {
    refuse(
        fmt::format("{} cuts experts into as many copies as all other weights, and plans cut "
                    "them over all ranks that have them",
                    f.name));
  }
}

}  // namespace

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
  add_tensor(f, way, plan, reasons);
  for (Cannot& reason : cannot(f, plan.attention, problem, traits)) {
    reasons.push_back(std::move(reason));
  }
  if (request.whole_step()) {
    add_unit(f, request, plan, reasons);
    add(reasons, cannot_zero(f, request, plan.zero));
    add_shards(f, way, request, plan, reasons);
  }
  if (request.phase == StepPhase::train) {
    add(reasons, cannot_recompute(f, plan.recompute));
  }
  return reasons;
}

}  // namespace spp
