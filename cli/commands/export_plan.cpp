// sp-plan export: a plan as a framework takes it. ("export" is a word of the language.)
#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/fit.hpp"
#include "cli/framework.hpp"
#include "cli/human.hpp"
#include "cli/limits.hpp"
#include "cli/plan_file.hpp"
#include "cli/report_json.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace spp::cli::commands {
namespace {

constexpr std::array export_plan_groups{OptionGroup::work, OptionGroup::machine,
                                        OptionGroup::degrees, OptionGroup::plan_file};
constexpr std::array export_plan_options{
    Option{"framework", "NAME", "megatron, deepspeed, torchtitan, … (see --list)"},
    Option{"list", "", "list the frameworks: what they run of our plans, and by which version"},
};

template <class T>
Json names_of(std::span<const T> values) {
  Json names = Json::array();
  for (const T& value : values) {
    names.push_back(to_string(value));
  }
  return names;
}

Json names_of_masks(std::span<const MaskKind> kinds) {
  Json names = Json::array();
  for (const MaskKind kind : kinds) {
    names.push_back(to_string(Mask{.kind = kind}));
  }
  return names;
}

Json families_of(const Framework& f) {
  Json names = Json::array();
  for (const FrameworkFamily& family : f.families) {
    names.push_back(family.name);
  }
  return names;
}

/// Layouts of a way, under a causal mask: its own, or what the strategy has.
Json layouts_of(const Way& way) {
  return names_of(way.layouts.empty() ? strategies::by_name(way.strategy, "way").layouts
                                      : way.layouts);
}

Json card_of(const Framework& f) {
  Json ways = Json::array();
  for (const Way& w : f.ways) {
    ways.push_back({{"name", w.name},
                    {"strategy", w.strategy},
                    {"layouts", layouts_of(w)},
                    {"ulysses_with_ring", w.both},
                    {"innermost", w.inner == Inner::any       ? Json()
                                  : w.inner == Inner::ulysses ? Json("ulysses")
                                                              : Json("ring")},
                    {"tokens_a_rank_multiple_of", w.unit == 0 ? Json() : Json(w.unit)},
                    {"source", w.source}});
  }
  return {{"name", f.name},
          {"title", f.title},
          {"aliases", std::vector<std::string>(f.aliases.begin(), f.aliases.end())},
          {"checked", f.checked},
          {"stack", f.stack.empty() ? Json() : Json(f.stack)},
          {"trains", f.trains},
          {"infers", f.infers},
          {"models", !f.models                     ? Json()
                     : *f.models == ModelKind::llm ? Json("llm")
                                                   : Json("dit")},
          {"families", f.families.empty() ? Json() : families_of(f)},
          {"ways", std::move(ways)},
          {"tokens_of_tensor_ranks_multiple_of", f.unit.tokens == 0 ? Json() : Json(f.unit.tokens)},
          {"masks", f.masks.values.empty() ? Json() : names_of_masks(f.masks.values)},
          {"heads", f.heads.values.empty() ? Json() : names_of(f.heads.values)},
          {"zero", f.zero.values.empty()
                       ? Json()
                       : Json(std::vector<int>(f.zero.values.begin(), f.zero.values.end()))},
          {"recompute", f.recompute.values.empty() ? Json() : names_of(f.recompute.values)}};
}

/// "zigzag-ring (p2p), usp (a2a+p2p)".
std::string ways_text(const Framework& f) {
  std::vector<std::string> names;
  for (const Way& w : f.ways) {
    const std::string name(w.strategy);
    if (std::ranges::find(names, name) == names.end()) {
      names.push_back(name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void list_frameworks(Output& output) {
  Json doc = document("framework-list");
  Json frameworks = Json::array();
  Table table;
  table.rows.push_back({"framework", "runs", "heads", "ZeRO"});
  for (const Framework* f : frameworks::all()) {
    frameworks.push_back(card_of(*f));
    std::vector<std::string_view> heads;
    for (const HeadPolicy policy : f->heads.values) {
      heads.push_back(to_string(policy));
    }
    table.rows.push_back({std::string(f->name), ways_text(*f),
                          heads.empty() ? "" : fmt::format("{}", fmt::join(heads, ", ")),
                          !f->trains ? "inference"
                          : f->zero.values.empty()
                              ? "any"
                              : fmt::format("{}", fmt::join(f->zero.values, ", "))});
  }
  doc["frameworks"] = std::move(frameworks);
  output.result(doc, [&](const Style& style) { return headed(table, style); });
}

/// The plan that was asked for, simulated where there is a machine and that does not take too long.
/// Its ZeRO stage, if nobody said one, is the framework's lowest from 1 on.
Candidate wanted_of(Job& job, const Framework& f) {
  if (job.request.phase == StepPhase::train && !job.request.step.zero) {
    const auto shards = std::ranges::find_if(f.zero.values, [](int stage) { return stage >= 1; });
    job.request.step.zero = shards == f.zero.values.end() ? 1 : *shards;
    job.assumptions.push_back({.what = "zero",
                               .value = fmt::format("{}", *job.request.step.zero),
                               .source = fmt::format("{}: its lowest that shards", f.name)});
  }
  Candidate wanted;
  wanted.plan = read_plan(job);
  wanted.strategy = &strategies::by_name(wanted.plan.attention.strategy, "--strategy");
  wanted.simulated = false;
  if (job.request.cluster != nullptr &&
      effort_of(job.request, wanted.plan).ops <= job.request.most.ops) {
    wanted = evaluate(job.request, wanted.plan).candidate;
  }
  return wanted;
}

void export_plan_command(const Arguments& given, Output& output) {
  if (given.has("list")) {
    given.expect_no_positionals();
    for (const Option& o : given.options()) {
      if (given.has(o.name) && o.name != "list" && o.group != OptionGroup::output) {
        throw InputError(fmt::format("--{}", o.name),
                         "given together with --list, which lists all");
      }
    }
    list_frameworks(output);
    return;
  }
  Arguments arguments = given;
  if (!arguments.has("framework")) {
    throw InputError("--framework",
                     "missing: who is to run the plan (see 'sp-plan export --list')");
  }
  const Framework& f = *framework_of(arguments);
  const std::optional<SaidGroups> groups = adopt_plan_file(arguments);
  const std::vector<Assumption> assumed = adopt_framework(arguments, f);
  Job job = read_job(arguments, MachineNeed::optional);
  output.warn(job.warnings);
  job.assumptions.insert(job.assumptions.end(), assumed.begin(), assumed.end());
  job.resolved["framework"] = f.name;
  job.request.most = search_limit();
  const Candidate wanted = wanted_of(job, f);
  expect_groups(groups, wanted.plan);
  Exported result = exported(f, job.request, wanted);
  if (wanted.simulated && !wanted.predicted.fits) {
    const std::string why = does_not_fit(job, wanted.plan, wanted.predicted, &f);
    output.warn({why});
    if (result.cannot.empty()) {  // else another plan's text is shown
      result.snippet.notes.push_back(why + ".");
    }
  }

  Json doc = document("export");
  doc["request"] = job.resolved;
  doc["assumptions"] = to_json(job.assumptions);
  doc["export"] = to_json(result, wanted);
  output.result(doc, [&](const Style& style) { return export_text(result, wanted, style); });
  if (!result.cannot.empty()) {
    throw Refusal(ExitCode::infeasible,
                  fmt::format("{}{}", cannot_text(result, wanted),
                              result.shown ? " (shown: the fastest that it can)"
                              : job.request.cluster == nullptr
                                  ? " (a --topology shows the nearest that it can)"
                                  : ""));
  }
}

}  // namespace

extern const Command export_plan{
    .name = "export",
    .summary = "a plan as your framework takes it: flags, files, environment",
    .description =
        "Writes what a framework wants in order to run a plan, given as a file or by its degrees: "
        "command line, configuration or code, environment variables, the version it was checked "
        "against. With a machine, a plan that does not fit is said to, and what would save enough. "
        "What the framework cannot run is named by its rule and source, the fastest plan "
        "that it can run is shown with its loss, and the exit code is 3. ('plan --emit NAME' does "
        "this for the plan it recommends, 'plan --framework NAME' searches only what NAME can "
        "run.)",
    .arguments = "",
    .groups = export_plan_groups,
    .options = export_plan_options,
    .examples =
        "sp-plan export --list\n"
        "sp-plan plan --model llama-3.1-8b --seq 128K --topology dgx-h100 --framework megatron "
        "-o plan.json\n"
        "sp-plan export --framework megatron --plan plan.json\n"
        "sp-plan export --framework megatron --model llama-3.1-70b --seq 256K --topology dgx-h100 "
        "--nodes 4 --ulysses 8 --ring 4 --zero 3 --recompute full --table",
    .run = export_plan_command,
};

}  // namespace spp::cli::commands
