#include "report/bands.hpp"

#include "report/markup.hpp"
#include "report/scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace spp::report {
namespace {

constexpr double row_height = 40;
constexpr double band_height = 30;
constexpr int choice_colours = 10;

std::string key_of(int choice) {
  return choice < 0 ? "q-none" : fmt::format("c-{}", choice % choice_colours);
}

/// Beside a row, two lines at most, around y.
std::string row_label(double y, std::string_view text) {
  constexpr double beside = 84;  // .rows in the style sheet, and the page's edge
  std::vector<std::string> lines = lines_within(text, beside, box_letters);
  if (lines.size() > 2) {
    lines.resize(2);
    lines.back() += "…";
  }
  const double above = line_height * static_cast<double>(lines.size() - 1) / 2;
  return lines_svg(lines, "row", "-10", y - above, "end");
}

std::string piece_svg(const BandChart& chart, const BandPiece& piece, const Scale& x, double top) {
  const double from = x.at(piece.from);
  const double width = x.at(piece.to) - from;
  const std::string name =
      piece.choice < 0 ? "" : chart.choices.at(static_cast<std::size_t>(piece.choice)) + ": ";
  std::string svg = fmt::format(
      "<rect class=\"{} part\" x=\"{}\" width=\"{}\" y=\"{}\" "
      "height=\"{}\"><title>{}</title></rect>",
      key_of(piece.choice), along(from), along(std::max(width, 0.004)), coordinate(top),
      coordinate(band_height), escaped(name + piece.label));
  if (width > 0.035) {
    svg += fmt::format("<text class=\"in\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                       along(from + width / 2), coordinate(top + 20),
                       piece.choice < 0 ? "–" : letter(piece.choice));
  }
  return svg;
}

}  // namespace

std::string letter(int choice) {
  std::string text;
  for (int rest = choice; rest >= 0; rest = rest / 26 - 1) {
    text.insert(text.begin(), static_cast<char>('A' + rest % 26));
  }
  return text;
}

void add(Sheet& sheet, const BandChart& chart) {
  if (chart.bands.empty() || chart.columns.empty()) {
    return;
  }
  const double least = chart.columns.front();
  const double most = chart.columns.back();
  const Scale x{.from = least, .to = most > least ? most : least * 2, .logarithmic = true};
  const double bottom = row_height * static_cast<double>(chart.bands.size());
  std::string svg;
  Grid numbers{.heading = {"", "from", "to", "", "plan"},
               .right = {false, true, true, false, false},
               .rows = {}};
  for (std::size_t i = 0; i < chart.bands.size(); ++i) {
    const double top = row_height * static_cast<double>(i);
    svg += row_label(top + 20, chart.bands[i].label);
    for (const BandPiece& piece : chart.bands[i].pieces) {
      svg += piece_svg(chart, piece, x, top);
      numbers.rows.push_back({chart.bands[i].label, chart.text(piece.from), chart.text(piece.to),
                              piece.choice < 0 ? "–" : letter(piece.choice),
                              piece.choice < 0
                                  ? piece.label
                                  : chart.choices.at(static_cast<std::size_t>(piece.choice))});
    }
  }
  const std::size_t every = (chart.columns.size() + 7) / 8;
  for (std::size_t i = 0; i < chart.columns.size(); ++i) {
    const double at = x.at(chart.columns[i]);
    svg += fmt::format("<line class=\"asked\" x1=\"{0}\" x2=\"{0}\" y1=\"0\" y2=\"{1}\"/>",
                       along(at), coordinate(bottom));
    if (i % every == 0) {
      svg += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>",
                         along(at), coordinate(bottom + 12),
                         at > 0.93   ? "end"
                         : at < 0.02 ? "start"
                                     : "middle",
                         escaped(chart.text(chart.columns[i])));
    }
  }
  std::string keys = "<ul class=\"legend long\">";
  for (std::size_t i = 0; i < chart.choices.size(); ++i) {
    const int choice = static_cast<int>(i);
    keys += fmt::format(
        "<li><svg class=\"swatch\" width=\"26\" height=\"20\" aria-hidden=\"true\"><rect "
        "class=\"{}\" "
        "width=\"26\" height=\"20\" rx=\"3\"/><text class=\"in\" x=\"13\" y=\"15\" "
        "text-anchor=\"middle\">{}</text></svg>{}</li>",
        key_of(choice), letter(choice), escaped(chart.choices[i]));
  }
  keys += "</ul>\n";
  sheet.figure(
      {.title = chart.title,
       .description = chart.description,
       .drawing = "<div class=\"rows\">" +
                  drawing(sheet, chart.title, chart.description, bottom + 20, svg, "plot") +
                  "</div>\n" + keys,
       .note = chart.note,
       .numbers = std::move(numbers)});
}

void add(Sheet& sheet, const HeatChart& chart) {
  if (chart.rows.empty() || chart.columns.empty()) {
    return;
  }
  double least = INFINITY;
  double most = -INFINITY;
  for (const auto& row : chart.cells) {
    for (const HeatCell& cell : row) {
      if (cell.known) {
        least = std::min(least, cell.value);
        most = std::max(most, cell.value);
      }
    }
  }
  const double width = 1 / static_cast<double>(chart.columns.size());
  const double bottom = row_height * static_cast<double>(chart.rows.size());
  std::string svg;
  Grid numbers{.heading = {""}, .right = {false}, .rows = {}};
  for (std::size_t c = 0; c < chart.columns.size(); ++c) {
    numbers.heading.push_back(chart.columns[c]);
    numbers.right.push_back(true);
    svg += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                       along((static_cast<double>(c) + 0.5) * width), coordinate(bottom + 12),
                       escaped(chart.columns[c]));
  }
  for (std::size_t r = 0; r < chart.rows.size(); ++r) {
    const double top = row_height * static_cast<double>(r);
    svg += row_label(top + 23, chart.rows[r]);
    numbers.rows.push_back({chart.rows[r]});
    for (std::size_t c = 0; c < chart.cells[r].size(); ++c) {
      const HeatCell& cell = chart.cells[r][c];
      numbers.rows.back().push_back(cell.text);
      const double place = most > least ? (cell.value - least) / (most - least) : 1;
      const int shade = static_cast<int>(std::lround(6 * std::clamp(place, 0.0, 1.0)));
      const double left = static_cast<double>(c) * width;
      svg += fmt::format(
          "<rect class=\"{} part\" x=\"{}\" width=\"{}\" y=\"{}\" height=\"{}\"/><text "
          "class=\"heat{}\" "
          "x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
          cell.known ? fmt::format("h-{}", shade) : "q-none", along(left), along(width),
          coordinate(top), coordinate(row_height - 2), cell.known && shade > 3 ? " deep" : "",
          along(left + width / 2), coordinate(top + 23), escaped(cell.text));
    }
  }
  std::string keys = fmt::format("<p class=\"legend ramp\"><span>{}</span>", escaped(chart.low));
  for (int shade = 0; shade <= 6; ++shade) {
    keys += fmt::format(
        "<svg class=\"swatch\" width=\"18\" height=\"12\" aria-hidden=\"true\"><rect "
        "class=\"h-{}\" width=\"18\" height=\"12\"/></svg>",
        shade);
  }
  keys += fmt::format("<span>{}</span></p>\n", escaped(chart.high));
  sheet.figure(
      {.title = chart.title,
       .description = chart.description,
       .drawing = "<div class=\"rows\">" +
                  drawing(sheet, chart.title, chart.description, bottom + 20, svg, "plot") +
                  "</div>\n" + keys,
       .note = chart.note,
       .numbers = std::move(numbers)});
}

}  // namespace spp::report
