// sp-plan plan: searches all splits, ranks them and recommends one.
#include "base/error.hpp"
#include "base/parse.hpp"
#include "cli/command.hpp"
#include "cli/framework.hpp"
#include "cli/human.hpp"
#include "cli/limits.hpp"
#include "cli/report_json.hpp"
#include "cli/report_table.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

namespace spp::cli::commands {
namespace {

constexpr std::array groups{OptionGroup::work, OptionGroup::machine, OptionGroup::degrees};
constexpr std::array options{
    Option{"top", "K", "candidates to show (default: 5)"},
    Option{"objective", "time|tokens_per_s|memory", "what to rank by (default: time)"},
    Option{"budget", "SECONDS",
           "search for so long at most, about: a million ops a second count, so that the answer is "
           "the same everywhere (default: 8)"},
    Option{"framework", "NAME",
           "search only what this framework can run: megatron, deepspeed, … (see export --list)"},
    Option{"emit", "NAME", "add what this framework wants in order to run the plan"},
};

/// Why the answer is "none", with the nearest that would do.
std::string nothing_fits(const Job& job, const PlanResult& result) {
  const Candidate& least = result.candidates.front();
  const Prediction& p = least.predicted;
  const bool train = job.request.phase == StepPhase::train;
  std::string text = fmt::format(
      "nothing fits: the smallest of {} plans, {}{}, needs {} of {} usable a GPU, {} too much",
      result.searched, short_name(least.plan),
      train ? fmt::format(" with ZeRO {} and {} recomputation", least.plan.zero,
                          to_string(least.plan.recompute.kind))
            : "",
      human(p.memory.tensors()), human(job.request.memory),
      human(p.memory.tensors() - job.request.memory));
  if (p.max_seq > 0) {
    return text +
           fmt::format("; the longest sequence that fits is {} tokens", human_count(p.max_seq));
  }
  const bool saves_all = least.plan.zero == 3 && least.plan.recompute.kind == Recompute::full;
  return text + fmt::format("; no sequence fits, it takes more GPUs{}",
                            !train || saves_all ? "" : ", --zero 3 or --recompute full");
}

std::string no_legal_plan(const Job& job, const PlanResult& result) {
  std::string text = fmt::format("no legal plan for {} GPUs", job.request.gpus);
  if (result.rejected.empty()) {
    return text + ": no strategy uses these degrees";
  }
  const Rejected& first = result.rejected.front();
  return text + fmt::format(": {} rejected, the first ({}) because of {}: {}",
                            result.rejected.size(), short_name(first.plan), first.rule,
                            first.detail);
}

/// The recommended plan for --emit's framework. Nothing: not asked for, or nothing to recommend.
std::optional<Exported> emitted(const Framework* framework, const Job& job,
                                const PlanResult& result, const Watch& watch) {
  if (framework == nullptr || result.candidates.empty() || !result.any_fits) {
    return std::nullopt;
  }
  return exported(*framework, job.request, result.candidates.front(), watch);
}

Job read_search(const Arguments& given) {
  Arguments arguments = given;
  const Framework* framework = framework_of(arguments);
  std::vector<Assumption> assumed;
  if (framework != nullptr) {
    assumed = adopt_framework(arguments, *framework);
  }
  Job job = read_job(arguments);
  job.assumptions.insert(job.assumptions.end(), assumed.begin(), assumed.end());
  job.request.framework = framework;
  job.request.top = static_cast<int>(parse_int(arguments.get("top", "5"), "--top", 1, 1000));
  job.request.objective = parse_objective(arguments.get("objective", "time"), "--objective");
  job.request.most = search_limit(seconds(arguments, "budget", fmt::format("{}", search_seconds)));
  job.resolved["framework"] = framework != nullptr ? Json(framework->name) : Json();
  job.resolved["objective"] = to_string(job.request.objective);
  job.resolved["top"] = job.request.top;
  return job;
}

void run(const Arguments& arguments, Output& output) {
  const auto emit = arguments.find("emit");
  const Framework* for_whom = emit ? &frameworks::by_name(*emit, "--emit") : nullptr;
  const Job job = read_search(arguments);
  output.warn(job.warnings);

  const auto start = std::chrono::steady_clock::now();
  PlanResult result;
  std::optional<Exported> snippet;
  {
    Progress progress = output.progress("searching,", "ops at most", OnInterrupt::stops);
    result = plan(job.request, progress.watch());
    snippet = emitted(for_whom, job, result, progress.watch());
  }
  const Seconds elapsed = std::chrono::steady_clock::now() - start;

  Json doc = plan_document(job, result, elapsed);
  if (snippet) {
    doc["export"] = to_json(*snippet, result.candidates.front());
  }
  output.result(doc, [&](const Style& style) {
    const std::string table = plan_table(job, result, elapsed, style);
    return snippet ? table + "\n" + export_text(*snippet, result.candidates.front(), style) : table;
  });
  if (result.candidates.empty()) {
    throw Refusal(ExitCode::infeasible, no_legal_plan(job, result));
  }
  if (!result.any_fits) {
    throw Refusal(ExitCode::infeasible, nothing_fits(job, result));
  }
  if (snippet && !snippet->shown) {
    throw Refusal(ExitCode::infeasible, cannot_text(*snippet, result.candidates.front()));
  }
}

}  // namespace

extern const Command plan{
    .name = "plan",
    .summary = "search, rank and recommend: how to split a model's step over these GPUs",
    .description =
        "Searches every legal split of the work over the GPUs, predicts time and memory of each, "
        "ranks them and "
        "recommends one, with the reasons and with what was assumed. Degrees that are given are "
        "fixed, the "
        "others are searched, with --framework among what that framework can run. All plans are "
        "bounded, the most promising ones simulated, as far as "
        "--budget goes; Ctrl-C ends the search with what it has.",
    .arguments = "",
    .groups = groups,
    .options = options,
    .examples =
        "sp-plan plan --model llama-3.1-70b --seq 128K --topology dgx-h100 --nodes 16 "
        "--global-batch "
        "64\n"
        "sp-plan plan --model llama-3.1-8b --seq 128K --topology dgx-h100\n"
        "sp-plan plan --model qwen2.5-7b --seq 1M --topology dgx-h100 --nodes 8 --top 10\n"
        "sp-plan plan --heads 32 --kv-heads 8 --seq 512K --gpu a100-80g-sxm --nodes 4 --inter "
        "ib:4x200Gb/s\n"
        "sp-plan plan --model llama-3.1-8b --seq 256K --topology dgx-h100 --framework megatron "
        "--emit megatron\n"
        "sp-plan plan --model llama-3.1-8b --seq 256K --topology dgx-h100 --ulysses 8 --json | jq "
        ".best.plan",
    .run = run,
};

}  // namespace spp::cli::commands
