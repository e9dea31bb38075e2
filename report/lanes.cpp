#include "report/lanes.hpp"

#include "report/markup.hpp"
#include "report/scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace spp::report {
namespace {

constexpr int units = 2000;  // of a lane's length: finer than what is seen
constexpr double lane_height = 18;
constexpr double drawn_height = 13;
constexpr double group_gap = 24;
constexpr double gutter = 88;  // left of the lanes: .rows in the style sheet, and the page's edge

/// Of one kind on one lane: rectangles as one path.
std::string path_of(const Lane& lane, int kind, double end, double top) {
  std::string path;
  int from = 0;
  int to = -1;  // of what is not written yet; none
  const auto flush = [&] {
    if (to > from) {
      path += fmt::format("M{} {}h{}v{}h-{}z", from, coordinate(top), to - from,
                          coordinate(drawn_height), to - from);
    }
  };
  for (const Stretch& s : lane.stretches) {
    if (s.kind != kind) {
      continue;
    }
    const int begin = static_cast<int>(std::floor(units * std::clamp(s.from / end, 0.0, 1.0)));
    const int stop =
        std::max(begin + 1, static_cast<int>(std::ceil(units * std::clamp(s.to / end, 0.0, 1.0))));
    if (to >= 0 && begin <= to) {
      to = std::max(to, stop);
    } else {
      flush();
      from = begin;
      to = stop;
    }
  }
  flush();
  return path;
}

double busy(const Lane& lane, int kind) {
  double sum = 0;
  for (const Stretch& s : lane.stretches) {
    sum += s.kind == kind ? s.to - s.from : 0;
  }
  return sum;
}

}  // namespace

void add(Sheet& sheet, const LaneChart& chart) {
  if (chart.lanes.empty() || !(chart.end > 0)) {
    return;
  }
  std::string labels;
  std::string shapes;
  double y = 0;
  std::string group;
  Grid numbers{.heading = {"", "stream"}, .right = {false, false}, .rows = {}};
  for (const Key& kind : chart.kinds) {
    numbers.heading.push_back(kind.label);
    numbers.right.push_back(true);
  }
  for (const Lane& lane : chart.lanes) {
    if (lane.group != group) {
      group = lane.group;
      y += group_gap;
      labels += lines_svg({cut(group, characters_within(narrowest_drawing - gutter, box_letters))},
                          "row", "0", y - 6, "start");
    }
    labels += fmt::format(
        "<text class=\"tick\" x=\"-8\" y=\"{}\" text-anchor=\"end\">{}</text><line class=\"grid\" "
        "x1=\"0\" x2=\"100%\" y1=\"{}\" y2=\"{}\"/>",
        coordinate(y + 11), escaped(cut(lane.label, characters_within(gutter, tick_letters))),
        coordinate(y + drawn_height), coordinate(y + drawn_height));
    numbers.rows.push_back({lane.group, lane.label});
    for (std::size_t k = 0; k < chart.kinds.size(); ++k) {
      const int kind = static_cast<int>(k);
      const std::string path = path_of(lane, kind, chart.end, y);
      if (!path.empty()) {
        shapes += fmt::format("<path class=\"{}\" d=\"{}\"/>", chart.kinds[k].name, path);
      }
      const double seconds = busy(lane, kind);
      numbers.rows.back().push_back(seconds > 0 ? chart.text(seconds) : "");
    }
    y += lane_height;
  }
  const Scale x{.from = 0, .to = chart.end};
  std::string ticks;
  for (const double tick : nice_ticks(0, chart.end, 5)) {
    const double at = x.at(tick);
    ticks += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{0}\" y1=\"0\" y2=\"{1}\"/><text class=\"tick\" "
        "x=\"{0}\" y=\"{2}\" text-anchor=\"{3}\">{4}</text>",
        along(at), coordinate(y), coordinate(y + 14),
        at < 0.03   ? "start"
        : at > 0.92 ? "end"
                    : "middle",
        escaped(tick == 0 ? "0" : chart.text(tick)));
  }
  const std::string svg =
      ticks + labels +
      fmt::format(
          "<svg x=\"0\" y=\"0\" width=\"100%\" height=\"{0}\" viewBox=\"0 0 {1} {0}\" "
          "preserveAspectRatio=\"none\">{2}</svg>",
          coordinate(y), units, shapes);
  sheet.figure({.title = chart.title,
                .description = chart.description,
                .drawing = legend(chart.kinds) + "<div class=\"rows\">" +
                           drawing(sheet, chart.title, chart.description, y + 20, svg, "plot") +
                           "</div>\n",
                .note = chart.note,
                .numbers = std::move(numbers)});
}

}  // namespace spp::report
