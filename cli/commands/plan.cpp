// sp-plan plan: searches all splits, ranks them and recommends one.
#include "base/error.hpp"
#include "base/parse.hpp"
#include "cli/command.hpp"
#include "cli/human.hpp"
#include "cli/interrupt.hpp"
#include "cli/limits.hpp"
#include "cli/report_json.hpp"
#include "cli/report_table.hpp"

#include <algorithm>
#include <array>
#include <chrono>

namespace spp::cli::commands {
namespace {

constexpr std::array groups{OptionGroup::work, OptionGroup::machine, OptionGroup::degrees};
constexpr std::array options{
    Option{"top", "K", "candidates to show (default: 5)"},
    Option{"objective", "time|tokens_per_s|memory", "what to rank by (default: time)"},
    Option{"budget", "SECONDS",
           "search for so long at most, about: a million ops a second count, so that the answer is "
           "the same everywhere (default: 8)"},
    Option{"emit", "FRAMEWORK", "a snippet for a framework (not available yet)"},
};

/// Why the answer is "none", with the nearest that would do.
std::string nothing_fits(const Job& job, const PlanResult& result) {
  const Candidate& least = result.candidates.front();
  const Prediction& p = least.predicted;
  const bool train = job.request.phase == StepPhase::train;
  std::string text =
      fmt::format("nothing fits: the smallest of {} plans, {}{}, needs {} of {} usable a GPU",
                  result.searched, short_name(least.plan),
                  train ? fmt::format(" with ZeRO {} and {} recomputation", least.zero,
                                      to_string(least.recompute))
                        : "",
                  human(p.memory.total()), human(job.request.memory));
  if (p.max_seq > 0) {
    return text +
           fmt::format("; the longest sequence that fits is {} tokens", human_count(p.max_seq));
  }
  const bool saves_all = least.zero == 3 && least.recompute == Recompute::full;
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

void run(const Arguments& arguments, Output& output) {
  if (const auto framework = arguments.find("emit")) {
    throw InputError(
        "--emit",
        fmt::format("a snippet for '{}' is not available yet (frameworks: none)", *framework));
  }
  Job job = read_job(arguments);
  job.request.top = static_cast<int>(parse_int(arguments.get("top", "5"), "--top", 1, 1000));
  job.request.objective = parse_objective(arguments.get("objective", "time"), "--objective");
  job.resolved["objective"] = to_string(job.request.objective);
  job.resolved["top"] = job.request.top;

  const auto start = std::chrono::steady_clock::now();
  constexpr double ops_per_second = 1e6;
  job.request.most = {.ops = ops_per_second * seconds(arguments, "budget", "8"),
                      .memory = usable_memory()};
  PlanResult result;
  {
    const Interrupt interrupt;
    Progress progress("searching,", output.quiet(), "ops at most");
    result = plan(job.request, [&](double done, double of) {
      progress.update(done, of);
      return !Interrupt::asked();
    });
  }
  const Seconds elapsed = std::chrono::steady_clock::now() - start;

  output.result(plan_document(job, result, elapsed),
                [&](const Style& style) { return plan_table(job, result, elapsed, style); });
  if (result.candidates.empty()) {
    throw Refusal(ExitCode::infeasible, no_legal_plan(job, result));
  }
  if (!result.any_fits) {
    throw Refusal(ExitCode::infeasible, nothing_fits(job, result));
  }
}

}  // namespace

extern const Command plan{
    .name = "plan",
    .summary = "search, rank and recommend: how to split attention over these GPUs",
    .description =
        "Searches every legal split of the work over the GPUs, predicts time and memory of each, "
        "ranks them and "
        "recommends one, with the reasons and with what was assumed. Degrees that are given are "
        "fixed, the "
        "others are searched. All plans are bounded, the most promising ones simulated, as far as "
        "--budget goes; Ctrl-C ends the search with what it has.",
    .arguments = "",
    .groups = groups,
    .options = options,
    .examples =
        "sp-plan plan --model llama-3.1-8b --seq 128K --topology dgx-h100\n"
        "sp-plan plan --model qwen2.5-7b --seq 1M --topology dgx-h100 --nodes 8 --top 10\n"
        "sp-plan plan --heads 32 --kv-heads 8 --seq 512K --gpu a100-80g-sxm --nodes 4 --inter "
        "ib:4x200Gb/s\n"
        "sp-plan plan --model llama-3.1-8b --seq 256K --topology dgx-h100 --ulysses 8 --json | jq "
        ".best.plan",
    .run = run,
};

}  // namespace spp::cli::commands
