// The degrees of a request, and the one plan that they describe.
#include "base/error.hpp"
#include "cli/request_reader.hpp"

#include <algorithm>
#include <array>

namespace spp::cli {

void Reader::only_one(std::string_view option, std::string_view what) {
  if (const auto degree = count(option, most_ranks); degree && *degree > 1) {
    not_available(fmt::format("--{}", option), fmt::format("{} ({})", what, *degree));
  }
  resolve(option, 1);
}

void Reader::degrees() {
  FixedChoices& f = request().fixed;
  if (const auto name = args_.find("strategy")) {
    f.strategy = std::string(strategies::by_name(*name, "--strategy").name);
  }
  f.ulysses = count("ulysses", most_ranks);
  f.ring = count("ring", most_ranks);
  f.team = count("team", most_ranks);
  f.window = count("window", most_ranks);
  if (const auto v = args_.find("layout")) {
    f.layout = parse_layout(*v, "--layout");
  }
  if (const auto v = args_.find("order")) {
    f.order = parse_order(*v, "--order");
  }
  if (const auto v = args_.find("heads-policy")) {
    f.heads = parse_head_policy(*v, "--heads-policy");
  }
  if (const auto v = args_.find("rank-order")) {
    f.rank_order = parse_rank_order(*v, "--rank-order");
  }
  check_degrees();

  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  resolve("strategy", or_null(f.strategy));
  resolve("ulysses", or_null(f.ulysses));
  resolve("ring", or_null(f.ring));
  resolve("team", or_null(f.team));
  resolve("window", or_null(f.window));
  resolve("layout", f.layout ? Json(to_string(*f.layout)) : Json());
  resolve("order", f.order ? Json(to_string(*f.order)) : Json());
  resolve("heads_policy", f.heads ? Json(to_string(*f.heads)) : Json());
  resolve("rank_order", f.rank_order ? Json(to_string(*f.rank_order)) : Json());
  only_one("tp", "tensor parallelism");
  only_one("dp", "data parallelism");
  only_one("pp", "pipeline parallelism");

  if (const auto v = args_.find("zero")) {
    request().zero = static_cast<int>(parse_int(*v, "--zero", 0, 3));
  }
  if (const auto v = args_.find("recompute")) {
    request().recompute = parse_recompute(*v, "--recompute");
  }
  resolve("zero", or_null(request().zero));
  resolve("recompute", request().recompute ? Json(to_string(*request().recompute)) : Json());
}

/// What no plan can meet, in words of the options.
void Reader::check_degrees() {
  const FixedChoices& f = request().fixed;
  const int gpus = request().gpus;
  if (f.ulysses && f.ring && std::int64_t{*f.ulysses} * *f.ring != gpus) {
    throw InputError("--ulysses",
                     fmt::format("{} x --ring {} = {}, but there are {} GPUs (see --gpus)",
                                 *f.ulysses, *f.ring, std::int64_t{*f.ulysses} * *f.ring, gpus));
  }
  if (f.ulysses && gpus % *f.ulysses != 0) {
    throw InputError("--ulysses", fmt::format("{} does not divide the {} GPUs", *f.ulysses, gpus));
  }
  if (f.ring && gpus % *f.ring != 0) {
    throw InputError("--ring", fmt::format("{} does not divide the {} GPUs", *f.ring, gpus));
  }
  const int ring = f.ring.value_or(f.ulysses ? gpus / *f.ulysses : gpus);
  const bool ring_known = f.ring || f.ulysses;
  if (f.team && (ring_known ? ring % (std::int64_t{*f.team} * *f.team) != 0
                            : gpus % (std::int64_t{*f.team} * *f.team) != 0)) {
    throw InputError("--team",
                     fmt::format("{} squared is {}, which does not divide {} {}", *f.team,
                                 std::int64_t{*f.team} * *f.team,
                                 ring_known ? "the ring degree" : "the number of GPUs,", ring));
  }
  if (f.window && (ring_known ? ring : gpus) % *f.window != 0) {
    throw InputError("--window",
                     fmt::format("{} does not divide {} {}", *f.window,
                                 ring_known ? "the ring degree" : "the number of GPUs,", ring));
  }
  if (f.rank_order == RankOrder::cyclic) {
    const sim::Cluster* cluster = request().cluster;
    if (cluster != nullptr && gpus != cluster->nodes() * cluster->gpus_per_node()) {
      throw InputError("--rank-order",
                       fmt::format("cyclic needs whole nodes; {} GPUs are not {} nodes of {}", gpus,
                                   cluster->nodes(), cluster->gpus_per_node()));
    }
  }
}

namespace {

/// Our name of the option that a rule of why_not() is about.
std::string_view option_of(std::string_view rule) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> options{
      {{"heads", "--ulysses"},
       {"team", "--team"},
       {"window", "--window"},
       {"layout", "--layout"},
       {"sequence", "--seq"},
       {"strategy", "--strategy"}}};
  const auto it =
      std::ranges::find(options, rule, &std::pair<std::string_view, std::string_view>::first);
  return it == options.end() ? "--strategy" : it->second;
}

}  // namespace

SequencePlan read_plan(Job& job) {
  const FixedChoices& given = job.request.fixed;
  const SequencePlan plan = default_plan(job.request);
  const Strategy& strategy = strategies::by_name(plan.strategy, "--strategy");
  if (plan.ranks() != job.request.gpus) {
    throw InputError("--ulysses",
                     fmt::format("{} x --ring {} = {}, but there are {} GPUs (see --gpus)",
                                 plan.ulysses, plan.ring, plan.ranks(), job.request.gpus));
  }
  if (const WhyNot reason = why_not(strategy, job.request.problem, plan); !reason.legal()) {
    throw InputError(option_of(reason.rule),
                     fmt::format("{} is not legal: {}", short_name(plan), reason.detail));
  }
  const auto note = [&](bool was_given, std::string_view what, std::string value) {
    job.resolved[std::string(what)] = value;
    if (!was_given) {
      job.assumptions.push_back(
          {.what = std::string(what), .value = std::move(value), .source = "default"});
    }
  };
  note(given.strategy.has_value(), "strategy", plan.strategy);
  note(given.layout.has_value(), "layout", std::string(to_string(plan.layout)));
  note(given.order.has_value(), "order", to_string(plan.order));
  note(given.heads.has_value(), "heads_policy", std::string(to_string(plan.heads)));
  note(given.rank_order.has_value(), "rank_order", std::string(to_string(plan.rank_order)));
  if (job.request.phase == StepPhase::train) {
    const bool zero_given = job.request.zero.has_value();
    const bool recompute_given = job.request.recompute.has_value();
    job.request.zero = job.request.zero.value_or(1);
    job.request.recompute = job.request.recompute.value_or(Recompute::none);
    note(zero_given, "zero", fmt::format("{}", *job.request.zero));
    note(recompute_given, "recompute", std::string(to_string(*job.request.recompute)));
    job.resolved["zero"] = *job.request.zero;
  }
  job.resolved["ulysses"] = plan.ulysses;
  job.resolved["ring"] = plan.ring;
  job.resolved["team"] = plan.team;
  job.resolved["window"] = plan.window;
  return plan;
}

}  // namespace spp::cli
