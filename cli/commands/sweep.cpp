// sp-plan sweep: the decision map over lengths, numbers of GPUs, models and machines.
#include "planner/sweep.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"
#include "cli/command.hpp"
#include "cli/human.hpp"
#include "cli/limits.hpp"
#include "cli/search_job.hpp"
#include "cli/sweep_table.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <limits>
#include <ranges>
#include <thread>

namespace spp::cli::commands {
namespace {

constexpr std::array sweep_groups{OptionGroup::work, OptionGroup::machine, OptionGroup::degrees};
constexpr std::array sweep_options{
    objective_option,
    budget_option,
    framework_option,
    Option{"no-boundaries", "",
           "only the lengths that are given; do not look between them where the plan changes"},
    Option{"grain", "N",
           "locate changes to so many tokens (default: 1/64 of the interval, 1K at least)"},
    Option{.name = "csv",
           .value = "FILE",
           .help = "write a row for each cell to FILE, too",
           .writes = true},
    Option{"threads", "N", "cells that are worked on at once (default: one for each core)"},
    force_option,
};

/// As plan shows by default: so a cell is answered as plan answers.
constexpr int candidates_of_a_cell = 5;

int cores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

int threads_of(const Arguments& arguments) {
  return static_cast<int>(
      parse_int(arguments.get("threads", fmt::format("{}", cores())), "--threads", 1, 1024));
}

/// "a,b,c" -> its pieces; none, empty or twice is refused.
std::vector<std::string> listed(const Arguments& arguments, std::string_view option) {
  const auto text = arguments.find(option);
  if (!text) {
    return {};
  }
  std::vector<std::string> pieces;
  for (const std::string_view piece : split(*text, ',')) {
    if (piece.empty()) {
      throw InputError(fmt::format("--{}", option),
                       fmt::format("'{}' has an empty place in the list", *text));
    }
    if (std::ranges::find(pieces, piece) != pieces.end()) {
      throw InputError(fmt::format("--{}", option),
                       fmt::format("'{}' stands twice in the list", piece));
    }
    pieces.emplace_back(piece);
  }
  return pieces;
}

/// The numbers of a list of GPUs or nodes, as they were written: what is no number of them is
/// wrong in any combination.
std::vector<std::string> listed_counts(const Arguments& arguments, std::string_view option) {
  std::vector<std::string> counts = listed(arguments, option);
  for (const std::string& text : counts) {
    (void)parse_int(text, fmt::format("--{}", option), 1, most_gpus);
  }
  return counts;
}

std::vector<std::int64_t> lengths_of(const Arguments& arguments) {
  std::vector<std::int64_t> lengths;
  for (const std::string& text : listed(arguments, "seq")) {
    lengths.push_back(parse_tokens(text, "--seq"));
  }
  if (lengths.empty()) {
    throw InputError("--seq", "missing: lengths in tokens, such as 32K,64K,128K");
  }
  std::ranges::sort(lengths);
  if (const auto twice = std::ranges::adjacent_find(lengths); twice != lengths.end()) {
    throw InputError("--seq", fmt::format("{} tokens stand twice in the list", *twice));
  }
  return lengths;
}

/// The same with the option's value; unchanged where it was not given.
Arguments with(const Arguments& arguments, std::string_view option, const std::string& value) {
  return value.empty() ? arguments : arguments.with(option, value);
}

SweepLine read_line(const Arguments& arguments, SweepLine line,
                    const std::vector<std::int64_t>& lengths) {
  std::string topology = line.topology;
  if (!is_readable_file(topology)) {
    std::ranges::replace(topology, '+', ',');
  }
  Arguments own = with(arguments, "model", line.model);
  own = with(with(own, "topology", topology), "gpus", line.gpus);
  own = with(own, "nodes", line.nodes);
  const auto read = [&](std::int64_t seq) {
    return read_search(own.with("seq", fmt::format("{}", seq)), candidates_of_a_cell);
  };
  try {
    line.job = read(lengths.front());
    for (const std::int64_t longer : lengths | std::views::drop(1)) {
      std::ranges::copy(read(longer).assumptions, std::back_inserter(line.job.assumptions));
    }
  } catch (const InputError& e) {  // of this line alone, perhaps: see check_lines
    line.job = {};
    line.refused = e.what();
  }
  return line;
}

/// A model or machine none of whose cells can be asked is wrong input, as it is to plan.
void check_lines(const std::vector<SweepLine>& lines) {
  for (const auto name : {&SweepLine::model, &SweepLine::topology}) {
    for (const SweepLine& line : lines) {
      const bool all_refused = std::ranges::all_of(lines, [&](const SweepLine& other) {
        return other.*name != line.*name || !other.refused.empty();
      });
      if (all_refused) {
        throw InputError("", line.refused);
      }
    }
  }
}

/// "" stands for an option that was not given.
std::vector<std::string> or_default(const std::vector<std::string>& values) {
  return values.empty() ? std::vector<std::string>{""} : values;
}

std::vector<SweepLine> lines_of(const Arguments& arguments,
                                const std::vector<std::int64_t>& lengths) {
  const std::vector<std::string> gpus = listed_counts(arguments, "gpus");
  const std::vector<std::string> nodes = listed_counts(arguments, "nodes");
  if (gpus.size() > 1 && nodes.size() > 1) {
    throw InputError("--nodes", "a list beside the list of --gpus; give one of them");
  }
  const std::vector<std::string> all_models = or_default(listed(arguments, "model"));
  const std::vector<std::string> machines = or_default(listed(arguments, "topology"));
  const double lines = static_cast<double>(all_models.size()) *
                       static_cast<double>(machines.size()) *
                       static_cast<double>(std::max<std::size_t>(1, gpus.size())) *
                       static_cast<double>(std::max<std::size_t>(1, nodes.size()));
  const double cells = lines * static_cast<double>(lengths.size());
  const double budget = seconds(arguments, "budget", fmt::format("{}", search_seconds));
  expect_feasible(
      arguments, fmt::format("a sweep of {:.0f} cells", cells),
      {.ops = cells * search_limit(budget).ops / std::min(cores(), threads_of(arguments)),
       .memory = Bytes{}},
      "fewer lengths or GPUs, or a smaller --budget");
  std::vector<SweepLine> result;
  for (const std::string& model : all_models) {
    for (const std::string& machine : machines) {
      for (const std::string& g : or_default(gpus)) {
        for (const std::string& n : or_default(nodes)) {
          result.push_back(read_line(arguments,
                                     {.model = model,
                                      .topology = machine,
                                      .gpus = g,
                                      .nodes = n,
                                      .job = {},
                                      .refused = {}},
                                     lengths));
        }
      }
    }
  }
  check_lines(result);
  return result;
}

/// The lines that can be asked are; the others' cells are left as they are.
SweepResult answers(const Arguments& arguments, const Sweep& asked, const Watch& watch) {
  SweepQuestion question{.lines = {},
                         .lengths = asked.lengths,
                         .boundaries = !arguments.has("no-boundaries"),
                         .threads = threads_of(arguments)};
  if (const auto grain = arguments.find("grain")) {
    question.grain = parse_tokens(*grain, "--grain");
  }
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < asked.lines.size(); ++i) {
    if (asked.lines[i].refused.empty()) {
      places.push_back(i);
      question.lines.push_back(asked.lines[i].job.request);
    }
  }
  SweepResult found = spp::sweep(question, watch);
  SweepResult result{
      .cells = {}, .boundaries = std::move(found.boundaries), .questions = found.questions};
  result.cells.resize(asked.lines.size());
  for (std::vector<SweepCell>& line : result.cells) {
    for (const std::int64_t seq : asked.lengths) {
      line.push_back({.seq = seq, .result = {}});
    }
  }
  for (std::size_t k = 0; k < places.size(); ++k) {
    result.cells[places[k]] = std::move(found.cells[k]);
  }
  for (Boundary& b : result.boundaries) {
    b.line = places[b.line];
  }
  return result;
}

void sweep_command(const Arguments& arguments, Output& output) {
  arguments.expect_no_positionals();
  Sweep swept{.lines = {}, .lengths = lengths_of(arguments), .result = {}};
  swept.lines = lines_of(arguments, swept.lengths);
  const auto start = std::chrono::steady_clock::now();
  {
    Progress progress = output.progress("sweeping,", "questions", OnInterrupt::stops);
    swept.result = answers(arguments, swept, progress.watch());
  }
  swept.elapsed = std::chrono::steady_clock::now() - start;
  if (const auto csv = arguments.find("csv")) {
    write_file(*csv, sweep_csv(swept));
  }
  output.result(sweep_document(swept),
                [&](const Style& style) { return sweep_table(swept, style); });
  if (!swept.result.any_plan()) {
    throw Refusal(ExitCode::infeasible,
                  fmt::format("no cell has a plan; the first: {}",
                              reason_of(swept.lines.front(), swept.result.cells.front().front())));
  }
}

}  // namespace

extern const Command sweep{
    .name = "sweep",
    .summary = "the decision map: the best plan over lengths, numbers of GPUs, models, machines",
    .description =
        "Answers for each combination of --seq, --gpus (or --nodes), --model and --topology, each "
        "one value or a list with commas, what plan would answer, and finds by halving at which "
        "length between two cells the recommendation changes, and in what. A combination that has "
        "no plan says why. Files that describe one machine together are joined by '+' here. Cells "
        "are worked on side by side; --budget is that of each. Ctrl-C ends it with what it has.",
    .arguments = "",
    .groups = sweep_groups,
    .options = sweep_options,
    .examples =
        "sp-plan sweep --model llama-3.1-8b --seq 32K,64K,128K,256K --topology dgx-h100 --gpus "
        "8,16,32\n"
        "sp-plan sweep --heads 32 --kv-heads 8 --seq 16K,64K,256K,1M --topology dgx-h100,dgx-a100 "
        "--gpus 8,16 --csv map.csv\n"
        "sp-plan sweep --model llama-3.1-8b,qwen2.5-7b --seq 128K,256K --topology dgx-h100 --nodes "
        "1,2 -o map.json && sp-plan report map.json -o map.html",
    .run = sweep_command,
};

}  // namespace spp::cli::commands
