#include "report/bars.hpp"

#include "report/markup.hpp"
#include "report/scale.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace spp::report {
namespace {

constexpr double bar_height = 18;
constexpr double drawing_height = 24;

double total(const Bar& bar) {
  double sum = 0;
  for (const BarPart& part : bar.parts) {
    sum += part.value;
  }
  return sum;
}

Scale scale_of(const BarChart& chart) {
  double largest = 0;
  for (const Bar& bar : chart.bars) {
    largest = std::max({largest, total(bar), bar.interval ? bar.interval->second : 0.0});
  }
  for (const Mark& mark : chart.marks) {
    largest = std::max(largest, mark.value);
  }
  return from_zero(largest);
}

std::string vertical(double at, double from, double to, std::string_view style) {
  return fmt::format("<line class=\"{}\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>", style,
                     along(at), along(at), coordinate(from), coordinate(to));
}

/// A line with two ends; under it a wider one of the ground's colour, so that it is seen on any
/// bar.
std::string whisker(const std::pair<double, double>& interval, const Scale& scale) {
  const double low = scale.at(interval.first);
  const double high = scale.at(interval.second);
  constexpr double middle = drawing_height / 2;
  constexpr double half = 5;
  std::string svg;
  for (const std::string_view style : {"halo", "whisker"}) {
    svg += fmt::format("<line class=\"{}\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>", style,
                       along(low), along(high), coordinate(middle), coordinate(middle));
    svg += vertical(low, middle - half, middle + half, style) +
           vertical(high, middle - half, middle + half, style);
  }
  return svg;
}

std::string bar_html(Sheet& sheet, const BarChart& chart, const Bar& bar, const Scale& scale) {
  constexpr double top = (drawing_height - bar_height) / 2;
  std::string content;
  for (const double tick : ticks_of(scale, 5)) {
    content += vertical(scale.at(tick), 0, drawing_height, "grid");
  }
  std::string description;
  double at = 0;
  for (const BarPart& part : bar.parts) {
    if (!(part.value > 0)) {
      continue;
    }
    const double width = scale.at(part.value);
    content += fmt::format(
        "<rect class=\"{} part{}\" x=\"{}\" width=\"{}\" y=\"{}\" height=\"{}\"><title>{}: "
        "{}</title></rect>",
        part.key, bar.open ? " open" : "", along(at), along(width), coordinate(top),
        coordinate(bar_height), escaped(part.label), escaped(chart.text(part.value)));
    at += width;
    description +=
        fmt::format("{}{} {}", description.empty() ? "" : ", ", part.label, chart.text(part.value));
  }
  if (bar.interval) {
    content += whisker(*bar.interval, scale);
  }
  for (const Mark& mark : chart.marks) {
    content += vertical(scale.at(mark.value), 0, drawing_height, "mark");
  }
  return fmt::format(
      "<div class=\"bar{}\"><span class=\"bl\">{}</span><span class=\"bv\">{}</span>"
      "<div class=\"bd\">{}</div></div>\n",
      bar.strong ? " strong" : "", escaped(bar.label), escaped(bar.value),
      drawing(sheet, fmt::format("{}: {}", bar.label, bar.value),
              description.empty() ? "no parts" : description, drawing_height, content, "plot"));
}

/// Ticks, and what the marks say, under the last bar.
std::string axis_html(const BarChart& chart, const Scale& scale) {
  std::string content;
  for (const double tick : ticks_of(scale, 4)) {
    const double at = scale.at(tick);
    content += fmt::format("<text class=\"tick\" x=\"{}\" y=\"13\" text-anchor=\"{}\">{}</text>",
                           along(at),
                           at < 0.04   ? "start"
                           : at > 0.93 ? "end"
                                       : "middle",
                           escaped(tick == 0 ? "0" : chart.text(tick)));
  }
  double y = 13;
  for (const Mark& mark : chart.marks) {
    y += 17;
    const double at = scale.at(mark.value);
    content += vertical(at, 16, y - 10, "mark");
    const auto lines = lines_within(mark.label, narrowest_drawing / 2, axis_letters);
    content += lines_svg(lines, "tick marked", along(at), y, at > 0.5 ? "end" : "start");
    y += line_height * static_cast<double>(lines.size() - 1);
  }
  return fmt::format(
      "<div class=\"bar axis\"><span class=\"bl\"></span><span class=\"bv\"></span>"
      "<div class=\"bd\"><svg class=\"plot\" width=\"100%\" height=\"{}\" "
      "aria-hidden=\"true\">{}</svg></div></div>\n",
      coordinate(y + 5), content);
}

std::vector<Key> keys_of(const BarChart& chart) {
  std::vector<Key> keys;
  for (const Bar& bar : chart.bars) {
    for (const BarPart& part : bar.parts) {
      const bool known =
          std::ranges::any_of(keys, [&](const Key& k) { return k.name == part.key; });
      if (part.value > 0 && !known) {
        keys.push_back({part.key, part.label});
      }
    }
  }
  return keys;
}

Grid numbers_of(const BarChart& chart, const std::vector<Key>& keys) {
  Grid grid{.heading = {""}, .right = {false}, .rows = {}};
  for (const Key& key : keys) {
    grid.heading.push_back(key.label);
    grid.right.push_back(true);
  }
  grid.heading.insert(grid.heading.end(), {"total", "interval"});
  grid.right.insert(grid.right.end(), {true, true});
  for (const Bar& bar : chart.bars) {
    std::vector<std::string> row{bar.label};
    for (const Key& key : keys) {
      double sum = 0;
      for (const BarPart& part : bar.parts) {
        sum += part.key == key.name ? part.value : 0;
      }
      row.push_back(sum > 0 ? chart.text(sum) : "");
    }
    row.push_back(chart.text(total(bar)));
    row.push_back(bar.interval ? fmt::format("{} to {}", chart.text(bar.interval->first),
                                             chart.text(bar.interval->second))
                               : "");
    grid.rows.push_back(std::move(row));
  }
  return grid;
}

}  // namespace

void add(Sheet& sheet, const BarChart& chart) {
  if (chart.bars.empty()) {
    return;
  }
  const Scale scale = scale_of(chart);
  const std::vector<Key> keys = keys_of(chart);
  std::string body = keys.size() > 1 ? legend(keys) : "";
  body += "<div class=\"bars\">\n";
  for (const Bar& bar : chart.bars) {
    body += bar_html(sheet, chart, bar, scale);
  }
  body += axis_html(chart, scale) + "</div>\n";
  sheet.figure({.title = chart.title,
                .description = chart.description,
                .drawing = std::move(body),
                .note = chart.note,
                .numbers = numbers_of(chart, keys)});
}

}  // namespace spp::report
