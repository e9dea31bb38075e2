#include "cli/sweep_table.hpp"

#include "cli/candidate_table.hpp"
#include "cli/human.hpp"
#include "cli/report_table.hpp"

#include <algorithm>

namespace spp::cli {
namespace {

/// "+2.1 %, 3 tie": how far the next plan is.
std::string margin(const SweepCell& cell) {
  const PlanResult& result = cell.result;
  if (cell.verdict != Verdict::plan || result.candidates.size() < 2 ||
      !result.candidates[1].simulated) {
    return "";
  }
  const double next = result.candidates[1].predicted.step / result.candidates[0].predicted.step - 1;
  const std::string ties = result.ties > 1 ? fmt::format(", {} tie", result.ties) : "";
  return fmt::format("{:+.1f} %{}", 100 * next, ties);
}

std::string at(const Boundary& b) {
  return fmt::format("between {} and {}", human_tokens(b.from.seq), human_tokens(b.to.seq));
}

std::string change_text(const Boundary& b) {
  const bool before = b.from.verdict == Verdict::plan;
  const bool after = b.to.verdict == Verdict::plan;
  if (!before || !after) {
    return fmt::format("{}: {}", at(b),
                       after ? short_name(b.to.result.candidates.front().plan)
                             : std::string(to_string(b.to.verdict)));
  }
  std::string text;
  for (const Difference& d :
       differences(b.from.result.candidates.front().plan, b.to.result.candidates.front().plan)) {
    text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", d.what, d.before, d.after);
  }
  return fmt::format("{}: {}", at(b), text);
}

/// Which lengths' searches did not come to their end; "" if all did.
std::string unsettled_text(const std::vector<SweepCell>& cells, const Style& style) {
  std::string lengths;
  for (const SweepCell& cell : cells) {
    if (cell.result.unsettled > 0) {
      lengths += fmt::format("{}{} ({})", lengths.empty() ? "" : ", ", human_tokens(cell.seq),
                             human_count(cell.result.unsettled));
    }
  }
  return lengths.empty()
             ? ""
             : wrapped(fmt::format("Plans that may be as good were not simulated at {}: {}.",
                                   lengths, search_ended),
                       2, style.width);
}

/// The lengths of one line, with what changes between them.
std::string line_text(const Sweep& sweep, std::size_t index, const Style& style) {
  const SweepLine& line = sweep.lines[index];
  const std::vector<SweepCell>& cells = sweep.result.cells[index];
  std::vector<TableRow> rows;
  for (const SweepCell& cell : cells) {
    const bool plan = cell.verdict == Verdict::plan;
    rows.push_back({.label = human_tokens(cell.seq),
                    .candidate = plan ? &cell.result.candidates.front() : nullptr,
                    .otherwise = verdict_text(line, cell)});
  }
  constexpr std::size_t ending_width = 16;  // "+2.1 %, 3 tie"
  const std::vector<std::string> lines =
      candidate_table(
          rows, line.job.request,
          {.title = "seq", .width = style.width - ending_width, .compare = false, .style = style})
          .lines;
  std::size_t widest = 0;
  for (const std::string& text : lines) {
    widest = std::max(widest, width_of(text));
  }
  const auto with = [&](const std::string& text, const std::string& ending) {
    return text + std::string(widest - width_of(text) + 2, ' ') + ending;
  };
  std::string text = style.bold(shortened(with(lines[0], "next"), style.width)) + "\n";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    for (const Boundary& b : sweep.result.boundaries) {
      if (b.line == index && i > 0 && b.from.seq >= cells[i - 1].seq && b.to.seq <= cells[i].seq) {
        text += style.dim(wrapped(change_text(b), 8, style.width));
      }
    }
    text += shortened(with(lines[i + 1], margin(cells[i])), style.width) + "\n";
  }
  const auto without =
      std::ranges::find_if(cells, [](const SweepCell& c) { return c.verdict != Verdict::plan; });
  if (without != cells.end()) {
    text += wrapped(fmt::format("{}: {}.", human_tokens(without->seq), reason_of(line, *without)),
                    2, style.width);
  }
  return text + unsettled_text(cells, style);
}

std::string name_of_refused(const SweepLine& line) {
  std::string text;
  for (const std::string& word : {line.model, line.topology}) {
    text += word.empty() ? "" : word + ", ";
  }
  text += line.gpus.empty() ? "" : line.gpus + " GPUs";
  text += line.nodes.empty() ? "" : line.nodes + " nodes";
  return text;
}

}  // namespace

std::string sweep_table(const Sweep& sweep, const Style& style) {
  std::string text;
  std::size_t cells = 0;
  for (std::size_t i = 0; i < sweep.lines.size(); ++i) {
    const SweepLine& line = sweep.lines[i];
    cells += sweep.lengths.size();
    text += i == 0 ? "" : "\n";
    if (!line.refused.empty()) {
      text += style.bold(name_of_refused(line)) + "\n" +
              wrapped(fmt::format("refused: {}", line.refused), 2, style.width);
      continue;
    }
    text += style.bold(shortened(line.job.at_any_length, style.width)) + "\n\n";
    text += line_text(sweep, i, style);
  }
  text += fmt::format("\n{} cells, {} changes, {} questions, in {}.\n", cells,
                      sweep.result.boundaries.size(), human_count(sweep.result.questions),
                      human(sweep.elapsed));
  return text + assumptions_text(assumptions_of(sweep), style);
}

}  // namespace spp::cli
