// sp-plan plan: searches all splits, ranks them and recommends one.
#include "base/error.hpp"
#include "base/parse.hpp"
#include "cli/command.hpp"
#include "cli/framework.hpp"
#include "cli/report_json.hpp"
#include "cli/report_table.hpp"
#include "cli/search_job.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

namespace spp::cli::commands {
namespace {

constexpr std::array groups{OptionGroup::work, OptionGroup::machine, OptionGroup::degrees};
constexpr std::array options{
    Option{"top", "K", "candidates to show (default: 5)"},
    objective_option,
    budget_option,
    framework_option,
    Option{"emit", "NAME", "add what this framework wants in order to run the plan"},
};

/// The recommended plan for --emit's framework. Nothing: not asked for, or nothing to recommend.
std::optional<Exported> emitted(const Framework* framework, const Job& job,
                                const PlanResult& result, const Watch& watch) {
  if (framework == nullptr || result.candidates.empty() || !result.any_fits) {
    return std::nullopt;
  }
  return exported(*framework, job.request, result.candidates.front(), watch);
}

Job read(const Arguments& arguments) {
  const int top = static_cast<int>(parse_int(arguments.get("top", "5"), "--top", 1, 1000));
  return read_search(arguments, top);
}

void run(const Arguments& arguments, Output& output) {
  const auto emit = arguments.find("emit");
  const Framework* for_whom = emit ? &frameworks::by_name(*emit, "--emit") : nullptr;
  const Job job = read(arguments);
  output.warn(job.warnings);
  if (for_whom != nullptr && !job.request.problem.mask.document_ends.empty()) {
    not_available("--emit", "what a framework wants for packed documents");
  }

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
    throw Refusal(ExitCode::infeasible, no_legal_plan(job.request, result));
  }
  if (!result.any_fits) {
    throw Refusal(ExitCode::infeasible, nothing_fits(job.request, result));
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
