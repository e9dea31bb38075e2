// sp-plan plan: searches all splits, ranks them and recommends one.
#include "base/error.hpp"
#include "base/parse.hpp"
#include "cli/command.hpp"
#include "cli/framework.hpp"
#include "cli/human.hpp"
#include "cli/neighbours.hpp"
#include "cli/report_explain.hpp"
#include "cli/report_json.hpp"
#include "cli/report_layouts.hpp"
#include "cli/report_table.hpp"
#include "cli/search_job.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp::cli::commands {
namespace {

constexpr std::array plan_groups{OptionGroup::work, OptionGroup::machine, OptionGroup::degrees};
constexpr std::array plan_options{
    Option{"top", "K", "candidates to show (default: 5)"},
    objective_option,
    budget_option,
    framework_option,
    Option{
        "explain", "",
        "add the reasoning in full: all decisions, parts of each candidate, all that is rejected"},
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

/// --seq max is the longest that fits; the rest is a plan of that length.
Job read(const Arguments& arguments, const Output& output) {
  const int top = static_cast<int>(parse_int(arguments.get("top", "5"), "--top", 1, 1000));
  if (arguments.get("seq", "") != "max") {
    return read_search(arguments, top);
  }
  std::int64_t seq = 0;
  {
    Progress progress = output.progress("looking for the longest sequence");
    seq = longest_that_fits(arguments, progress.watch());
  }
  // Where none fits, the shortest says by how much.
  Job job = read_search(arguments.with("seq", seq > 0 ? fmt::format("{}", seq) : "1K"), top);
  job.assumptions.push_back(
      {.what = "seq",
       .value = seq > 0 ? fmt::format("{} tokens, the longest that fits (within 1/512)",
                                      human_count(seq))
                        : "1,024 tokens: no sequence fits",
       .source = "--seq max"});
  return job;
}

/// "more GPUs", "other degrees and more GPUs", "other degrees, more GPUs and other lengths".
std::string listed(const std::vector<std::string_view>& words) {
  const std::span before = std::span(words).first(words.size() - 1);
  return before.empty() ? std::string(words.back())
                        : fmt::format("{} and {}", fmt::join(before, ", "), words.back());
}

/// Why there is no answer, and the nearest question that has one.
std::string without_answer(const Job& job, const PlanResult& result, const Neighbours& neighbours) {
  const std::string why = result.candidates.empty() ? no_legal_plan(job.request, result)
                                                    : nothing_fits(job.request, result);
  if (const std::optional<Neighbour>& first = neighbours.first) {
    return fmt::format("{}; what fits, {}{}: {}", why,
                       first->change.starts_with("without") ? "" : "with ", first->change,
                       first->command);
  }
  const std::string_view as_far =
      neighbours.ended ? ", as far as was looked (a larger --budget looks further)" : "";
  return neighbours.tried.empty() ? fmt::format("{}{}", why, as_far)
                                  : fmt::format("{}; of {} nothing was found that does{}", why,
                                                listed(neighbours.tried), as_far);
}

/// "8 GPUs would take 640 ms: sp-plan plan …"
std::string fewer_text(const Neighbour& fewer, const Style& style) {
  return wrapped(fmt::format("{} would take {}: {}", fewer.change, human(fewer.best.predicted.step),
                             fewer.command),
                 0, style.width);
}

Json neighbour_json(const std::optional<Neighbour>& neighbour) {
  return neighbour ? Json{{"change", neighbour->change},
                          {"command", neighbour->command},
                          {"best", to_json(neighbour->best)}}
                   : Json();
}

void plan_command(const Arguments& arguments, Output& output) {
  const auto emit = arguments.find("emit");
  const Framework* for_whom = emit ? &frameworks::by_name(*emit, "--emit") : nullptr;
  const Job job = read(arguments, output);
  output.warn(job.warnings);

  const auto start = std::chrono::steady_clock::now();
  PlanResult result;
  std::optional<Exported> snippet;
  Neighbours neighbours;
  std::optional<Neighbour> fewer;
  std::vector<LayoutWork> layouts;
  {
    Progress progress = output.progress("searching,", "ops at most", OnInterrupt::stops);
    result = plan(job.request, progress.watch());
    layouts = compare_layouts(job.request, result);
    snippet = emitted(for_whom, job, result, progress.watch());
    if (result.candidates.empty() || !result.any_fits) {
      progress.turn_to("looking for what fits,");
      neighbours = first_that_fits(arguments, job, progress.watch());
    } else {
      fewer = faster_on_fewer(arguments, job, result, progress.watch());
    }
  }
  const Seconds elapsed = std::chrono::steady_clock::now() - start;

  Json doc = plan_document(job, result, elapsed);
  doc["nearest"] = neighbour_json(neighbours.first);
  doc["fewer_gpus"] = neighbour_json(fewer);
  doc["layouts"] = layouts_json(layouts);
  if (snippet) {
    doc["export"] = to_json(*snippet, result.candidates.front());
  }
  output.result(doc, [&](const Style& style) {
    std::string table = plan_table(job, result, elapsed, style) + layouts_text(layouts, style);
    if (fewer) {
      table += fewer_text(*fewer, style);
    }
    if (arguments.has("explain")) {
      table += explanation(result, style);
    }
    return snippet ? table + "\n" + export_text(*snippet, result.candidates.front(), style) : table;
  });
  if (result.candidates.empty() || !result.any_fits) {
    throw Refusal(ExitCode::infeasible, without_answer(job, result, neighbours));
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
        "--budget goes; Ctrl-C ends the search with what it has. --seq max looks for the longest "
        "sequence that fits. Where nothing fits, the nearest command that has an answer is "
        "printed.",
    .arguments = "",
    .groups = plan_groups,
    .options = plan_options,
    .examples =
        "sp-plan plan --model llama-3.1-70b --seq 128K --topology dgx-h100 --nodes 16 "
        "--global-batch "
        "64\n"
        "sp-plan plan --model llama-3.1-8b --seq 128K --topology dgx-h100\n"
        "sp-plan plan --model llama-3.1-8b --seq max --topology dgx-h100 --nodes 4\n"
        "sp-plan plan --model wan2.1-t2v-14b --seq 75600 --phase inference --topology dgx-h100\n"
        "sp-plan plan --model qwen2.5-7b --seq 1M --topology dgx-h100 --nodes 8 --top 10\n"
        "sp-plan plan --heads 32 --kv-heads 8 --seq 512K --gpu a100-80g-sxm --nodes 4 --inter "
        "ib:4x200Gb/s\n"
        "sp-plan plan --model llama-3.1-8b --seq 256K --topology dgx-h100 --framework megatron "
        "--emit megatron\n"
        "sp-plan plan --model llama-3.1-8b --seq 256K --topology dgx-h100 --ulysses 8 --json | jq "
        ".best.plan",
    .run = plan_command,
};

}  // namespace spp::cli::commands
