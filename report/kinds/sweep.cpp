// A sweep: the decision map, how fast each cell is, where and in what the recommendation changes.
#include "report/bands.hpp"
#include "report/candidate.hpp"
#include "report/kind.hpp"
#include "report/markup.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace spp::report::kinds::sweep {
namespace {

constexpr std::int64_t most_tokens_read = std::int64_t{1} << 40;
constexpr std::size_t most_choices = 52;

struct Cell {
  double seq = 0;
  std::string verdict, reason;
  int choice = -1;
  double step = 0, tokens_per_s = 0, memory = 0;
  double searched = 0, simulated = 0, unsettled = 0;  // plans
};

struct Line {
  std::string model, machine, gpus;
  double gpu_count = 0;
  std::vector<Cell> cells;
};

struct Change {
  std::size_t line = 0;
  double from = 0, to = 0;
  int before = -1, after = -1;
  std::string text;
};

struct Map {
  std::vector<std::string> choices;
  std::vector<double> lengths;
  std::vector<Line> lines;
  std::vector<Change> changes;

  int choice_of(const std::string& name) {
    const auto at = std::ranges::find(choices, name);
    if (at == choices.end()) {
      choices.push_back(name);
      return static_cast<int>(choices.size()) - 1;
    }
    return static_cast<int>(at - choices.begin());
  }
};

std::string whole_name(const JsonView& plan) {
  const std::string around = plan_around(plan);
  return plan_name(plan) + (around.empty() ? "" : ", " + around);
}

std::size_t line_index(const JsonView& view, std::size_t lines) {
  return static_cast<std::size_t>(view.at("line").integer(0, static_cast<std::int64_t>(lines) - 1));
}

Cell read_cell(const JsonView& view, Map& map) {
  Cell cell{.seq = static_cast<double>(view.at("seq").integer(1, most_tokens_read)),
            .verdict = view.at("verdict").string(),
            .searched = view.at("searched").number(0, most_count_read),
            .simulated = view.at("simulated").number(0, most_count_read),
            .unsettled = view.at("unsettled").number(0, most_count_read)};
  if (const auto reason = view.find("reason")) {
    cell.reason = reason->string();
  }
  if (const auto best = view.find("best")) {
    const CandidateRead c = read_candidate(*best);
    cell.choice = map.choice_of(whole_name(c.plan));
    cell.step = c.predicted.step;
    cell.tokens_per_s = c.predicted.tokens_per_s;
    cell.memory = c.predicted.memory;
  }
  return cell;
}

Change read_change(const JsonView& view, Map& map) {
  Change change{.line = line_index(view, map.lines.size()),
                .from = static_cast<double>(view.at("from_seq").integer(1, most_tokens_read)),
                .to = static_cast<double>(view.at("to_seq").integer(1, most_tokens_read))};
  const auto choice = [&](std::string_view side) {
    const auto plan = view.at(side).find("plan");
    return plan ? map.choice_of(whole_name(*plan)) : -1;
  };
  change.before = choice("before");
  change.after = choice("after");
  for (const JsonView& d : view.at("differs").elements()) {
    change.text +=
        fmt::format("{}{} {} → {}", change.text.empty() ? "" : ", ", d.at("what").string(),
                    d.at("before").string(), d.at("after").string());
  }
  if (change.text.empty()) {
    change.text = view.at("after").at("verdict").string();
  }
  return change;
}

Map read_map(const JsonView& document) {
  Map map;
  for (const JsonView& length : document.at("lengths").elements()) {
    map.lengths.push_back(static_cast<double>(length.integer(1, most_tokens_read)));
  }
  if (map.lengths.empty()) {
    document.at("lengths").fail("are none");
  }
  if (!std::ranges::is_sorted(map.lengths)) {
    document.at("lengths").fail("are not in rising order");
  }
  for (const JsonView& view : document.at("lines").elements()) {
    const auto gpus = view.find("gpus");
    map.lines.push_back({.model = text_at(view, "model"),
                         .machine = text_at(view, "topology"),
                         .gpus = text_at(view, "gpus"),
                         .gpu_count = gpus && gpus->value().is_number() ? gpus->number(1, 1e12) : 0,
                         .cells = {}});
  }
  for (const JsonView& view : document.at("cells").elements()) {
    map.lines[line_index(view, map.lines.size())].cells.push_back(read_cell(view, map));
  }
  for (const JsonView& view : document.at("boundaries").elements()) {
    map.changes.push_back(read_change(view, map));
  }
  return map;
}

/// What is known of a line: its cells, what stays between them, and how near to each change they
/// came.
Band band_of(const Map& map, std::size_t index) {
  const Line& line = map.lines[index];
  Band band{.label = line.gpus + " GPUs", .pieces = {}};
  const auto add = [&](double from, double to, int choice, const std::string& label) {
    const bool goes_on = !band.pieces.empty() && band.pieces.back().choice == choice &&
                         (choice >= 0 || band.pieces.back().label == label);
    if (goes_on) {
      band.pieces.back().to = to;
    } else {
      band.pieces.push_back({.from = from, .to = to, .choice = choice, .label = label});
    }
  };
  const auto told = [&](const Cell& cell, int choice, double at) {
    return choice < 0 ? cell.verdict : fmt::format("from {}", tokens_text(at));
  };
  for (std::size_t i = 0; i < line.cells.size(); ++i) {
    const Cell& cell = line.cells[i];
    double at = cell.seq;
    int choice = cell.choice;
    add(at, at, choice, told(cell, choice, at));
    if (i + 1 == line.cells.size()) {
      break;
    }
    const Cell& next = line.cells[i + 1];
    for (const Change& c : map.changes) {
      if (c.line == index && c.from >= cell.seq && c.to <= next.seq) {
        add(at, c.from, choice, told(cell, choice, at));
        add(c.from, c.to, -1, "the change");
        at = c.to;
        choice = c.after;
        add(at, at, choice, told(next, choice, at));
      }
    }
    if (choice == next.choice) {
      add(at, next.seq, choice, told(next, choice, at));
    } else {
      add(at, next.seq, -1, "not looked at");
    }
  }
  return band;
}

/// Lines of one model on one machine.
std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> grouped(const Map& map) {
  std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < map.lines.size(); ++i) {
    groups[{map.lines[i].model, map.lines[i].machine}].push_back(i);
  }
  return groups;
}

std::string group_title(const std::pair<std::string, std::string>& names) {
  const std::string on = names.second.empty() ? "" : "on " + names.second;
  return names.first.empty() ? on : names.first + (on.empty() ? "" : " " + on);
}

void add_map(Sheet& sheet, const Map& map, const std::vector<std::size_t>& lines,
             const std::string& title) {
  // Letters in the order of this picture; the others' choices are not listed.
  BandChart chart{.title = "Decision map" + (title.empty() ? "" : ": " + title),
                  .description =
                      "For each number of GPUs the recommended plan over the length of the "
                      "sequence, on a logarithmic axis. Lengths that were asked for are dotted; "
                      "between them a plan that both have is taken to hold, and a change was "
                      "found by halving, or not looked for.",
                  .note = "",
                  .choices = {},
                  .columns = map.lengths,
                  .text = tokens_text,
                  .bands = {}};
  std::map<int, int> renumbered;
  for (const std::size_t i : lines) {
    Band band = band_of(map, i);
    for (BandPiece& piece : band.pieces) {
      if (piece.choice >= 0) {
        const auto [at, fresh] =
            renumbered.try_emplace(piece.choice, static_cast<int>(chart.choices.size()));
        if (fresh) {
          chart.choices.push_back(map.choices[static_cast<std::size_t>(piece.choice)]);
        }
        piece.choice = at->second;
      }
    }
    chart.bands.push_back(std::move(band));
  }
  if (chart.choices.size() > most_choices) {
    chart.note =
        fmt::format("{} different plans: the map is of a question that is open in too much.",
                    chart.choices.size());
  }
  add(sheet, chart);
}

void add_heat(Sheet& sheet, const Map& map, const std::vector<std::size_t>& lines,
              const std::string& title) {
  HeatChart chart{
      .title = "Throughput of a GPU" + (title.empty() ? "" : ": " + title),
      .description = "Tokens a second of each GPU under the recommended plan. More is darker.",
      .note = "",
      .low = "fewest tokens/s",
      .high = "most",
      .columns = {},
      .rows = {},
      .cells = {}};
  for (const double length : map.lengths) {
    chart.columns.push_back(tokens_text(length));
  }
  for (const std::size_t i : lines) {
    chart.rows.push_back(map.lines[i].gpus + " GPUs");
    chart.cells.emplace_back();
    for (const Cell& cell : map.lines[i].cells) {
      const bool known = cell.choice >= 0 && map.lines[i].gpu_count > 0;
      const double rate = known ? cell.tokens_per_s / map.lines[i].gpu_count : 0;
      chart.cells.back().push_back({.value = std::log(std::max(rate, 1e-12)),
                                    .text = known ? short_number(std::round(rate)) : "–",
                                    .known = known});
      if (known && rate >= 1e6) {
        chart.cells.back().back().text = fmt::format("{:.2g}M", rate / 1e6);
      } else if (known && rate >= 1e4) {
        chart.cells.back().back().text = fmt::format("{:.0f}K", rate / 1e3);
      } else if (known) {
        chart.cells.back().back().text = fmt::format("{:.0f}", rate);
      }
    }
  }
  add(sheet, chart);
}

/// Whether all lines have the same there: then it says nothing in a table.
bool one_of(const Map& map, std::string Line::* member) {
  return std::ranges::all_of(
      map.lines, [&](const Line& line) { return line.*member == map.lines[0].*member; });
}

/// Columns that tell lines apart, then the others.
class LineGrid {
 public:
  LineGrid(const Map& map, const std::vector<std::string>& heading, const std::vector<bool>& right)
      : model_(!one_of(map, &Line::model)), machine_(!one_of(map, &Line::machine)) {
    for (const auto& [shown, title] :
         {std::pair{model_, "model"}, std::pair{machine_, "machine"}}) {
      if (shown) {
        grid_.heading.emplace_back(title);
        grid_.right.push_back(false);
      }
    }
    grid_.heading.emplace_back("GPUs");
    grid_.right.push_back(true);
    grid_.heading.insert(grid_.heading.end(), heading.begin(), heading.end());
    grid_.right.insert(grid_.right.end(), right.begin(), right.end());
  }
  void add(const Line& line, const std::vector<std::string>& texts) {
    std::vector<std::string> row;
    if (model_) {
      row.push_back(line.model);
    }
    if (machine_) {
      row.push_back(line.machine);
    }
    row.push_back(line.gpus);
    row.insert(row.end(), texts.begin(), texts.end());
    grid_.rows.push_back(std::move(row));
  }
  [[nodiscard]] const Grid& grid() const { return grid_; }

 private:
  bool model_, machine_;
  Grid grid_;
};

void add_tables(Sheet& sheet, const Map& map) {
  LineGrid changes(map, {"between", "and", "what changes"}, {true, true, false});
  for (const Change& c : map.changes) {
    changes.add(map.lines[c.line], {tokens_text(c.from), tokens_text(c.to), c.text});
  }
  if (!map.changes.empty()) {
    sheet.heading("Where the recommendation changes");
    sheet.table(shortened(changes.grid(), 200));
  }
  LineGrid cells(map, {"length", "step", "memory", "unsettled", "plan"},
                 {true, true, true, true, false});
  for (const Line& line : map.lines) {
    for (const Cell& cell : line.cells) {
      const bool plan = cell.choice >= 0;
      cells.add(line, {tokens_text(cell.seq), plan ? seconds_text(cell.step) : "",
                       plan ? bytes_text(cell.memory) : "",
                       cell.unsettled > 0 ? fmt::format("{:.0f}", cell.unsettled) : "",
                       plan ? map.choices[static_cast<std::size_t>(cell.choice)]
                            : fmt::format("{}: {}", cell.verdict, cell.reason)});
    }
  }
  sheet.details("All cells", shortened(cells.grid(), 400));
}

/// "a, b", "a", "5 models".
std::string listed(const Map& map, std::string Line::* member, std::string_view many) {
  std::vector<std::string> names;
  for (const Line& line : map.lines) {
    if (!(line.*member).empty() && std::ranges::find(names, line.*member) == names.end()) {
      names.push_back(line.*member);
    }
  }
  constexpr std::size_t most = 3;
  return names.size() > most ? fmt::format("{} {}", names.size(), many)
                             : fmt::format("{}", fmt::join(names, ", "));
}

std::string subject(const JsonView& document) {
  const Map map = read_map(document);
  const auto span = [](const std::string& first, const std::string& last) {
    return first == last ? first : fmt::format("{} to {}", first, last);
  };
  const std::string model = map.lines.empty() ? "" : listed(map, &Line::model, "models");
  std::string text = model.empty() ? "attention" : model;
  text += fmt::format(", {} tokens",
                      span(tokens_text(map.lengths.front()), tokens_text(map.lengths.back())));
  if (!map.lines.empty()) {
    const auto [least, most] = std::ranges::minmax(map.lines, {}, &Line::gpu_count);
    text += fmt::format(", {} GPUs", span(least.gpus, most.gpus));
    const std::string machine = listed(map, &Line::machine, "machines");
    text += machine.empty() ? "" : " of " + machine;
  }
  return text;
}

void add(const JsonView& document, Sheet& sheet) {
  const Map map = read_map(document);
  if (map.lines.empty()) {
    document.at("lines").fail("are none");
  }
  std::size_t cells = 0;
  std::size_t plans = 0;
  std::size_t open = 0;  // cells whose search did not come to its end
  double searched = 0;
  double simulated = 0;
  double unsettled = 0;
  for (const Line& line : map.lines) {
    cells += line.cells.size();
    for (const Cell& cell : line.cells) {
      plans += cell.choice >= 0 ? 1 : 0;
      open += cell.unsettled > 0 ? 1 : 0;
      searched += cell.searched;
      simulated += cell.simulated;
      unsettled += cell.unsettled;
    }
  }
  sheet.stats({{"cells", fmt::format("{}", cells), ""},
               {"with a plan", fmt::format("{}", plans), ""},
               {"different plans", fmt::format("{}", map.choices.size()), ""},
               {"changes", fmt::format("{}", map.changes.size()), ""}});
  for (const auto& [names, lines] : grouped(map)) {
    add_map(sheet, map, lines, group_title(names));
    add_heat(sheet, map, lines, group_title(names));
  }
  sheet.paragraph(
      fmt::format("{:.0f} legal plans, {:.0f} simulated, {:.0f} left unsettled, in {} of {} cells.",
                  searched, simulated, unsettled, open, cells),
      "quiet");
  add_tables(sheet, map);
  add_assumptions(sheet, document);
}

}  // namespace

extern const Kind entry{.format = "sweep", .name = "Sweep", .subject = subject, .add = add};

}  // namespace spp::report::kinds::sweep
