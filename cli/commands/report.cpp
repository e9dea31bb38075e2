// sp-plan report: a page from documents.
#include "base/error.hpp"
#include "base/file.hpp"
#include "cli/command.hpp"
#include "cli/human.hpp"
#include "report/page.hpp"

#include <array>
#include <vector>

namespace spp::cli::commands {
namespace {

/// A page of more would not open in a browser.
constexpr std::size_t most_files = 100;

/// The largest of them may be traces.
Json read_result(const std::string& file) {
  const std::string text = read_text_file(file, "", {.most = most_lines_text});
  return parse_json(text, file, trace_limits);
}

void report_command(const Arguments& arguments, Output& output) {
  const std::vector<std::string>& files = arguments.positionals();
  if (files.empty()) {
    throw InputError("report",
                     "a FILE is missing: a document that plan, simulate, sweep, run, … wrote");
  }
  if (files.size() > most_files) {
    throw InputError("report",
                     fmt::format("{} files; at most {} make a page", files.size(), most_files));
  }
  std::vector<spp::report::Source> sources;
  for (const std::string& file : files) {
    sources.push_back({.file = file, .document = read_result(file)});
  }
  const std::string page = spp::report::page(sources);
  output.plain(page);
  if (const auto target = arguments.find("output"); target && !output.quiet()) {
    complain(fmt::format("wrote {} ({})", *target,
                         human(Bytes(static_cast<std::int64_t>(page.size())))));
  }
}

}  // namespace

extern const Command report{
    .name = "report",
    .summary = "a page of HTML from documents: plans, sweeps, runs, profiles, traces, …",
    .description =
        "Makes one self-contained page (it opens offline, without scripts) from documents that "
        "sp-plan "
        "wrote: plan, simulate, sweep, run, calibrate, compare, regress, verify, topology, and "
        "from "
        "traces. Each FILE becomes a section. The page goes to stdout, or with -o to a file, whole "
        "or "
        "not at all.",
    .arguments = "FILE…",
    .groups = {},
    .options = {},
    .examples =
        "sp-plan plan --model llama-3.1-8b --seq 128K --topology dgx-h100 -o plan.json\n"
        "sp-plan report plan.json -o plan.html\n"
        "sp-plan report sweep.json run.json profile.json -o all.html\n"
        "sp-plan report trace.json -o timeline.html",
    .run = report_command,
    .plain = true,
};

}  // namespace spp::cli::commands
