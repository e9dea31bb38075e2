#include "report/points.hpp"

#include "report/markup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace spp::report {
namespace {

constexpr double plot_height = 300;
constexpr std::size_t most_points = 3000;  // that are drawn
constexpr std::size_t most_listed = 400;   // in the table behind
constexpr std::array<std::string_view, 6> shapes{"M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",  // circle
                                                 "M-3.6-3.6h7.2v7.2h-7.2z",              // square
                                                 "M0-4.8L4.6 3.4H-4.6z",                 // triangle
                                                 "M0-5L5 0L0 5L-5 0z",                   // diamond
                                                 "M-4.5-1.5h3v-3h3v3h3v3h-3v3h-3v-3h-3z",  // plus
                                                 "M0 4.8L4.6-3.4H-4.6z"};  // triangle, downwards
constexpr std::array<std::string_view, 6> shape_keys{"q-0", "q-1", "q-2", "q-3", "q-4", "q-5"};

struct Ends {
  double least = INFINITY, most = -INFINITY;
  void take(double v) {
    least = std::min(least, v);
    most = std::max(most, v);
  }
};

bool drawable(const PointAxis& axis, double v) {
  return std::isfinite(v) && (!axis.logarithmic || v > 0);
}

Scale scale_of(const PointAxis& axis, const Ends& ends) {
  if (axis.logarithmic) {
    return logarithmic_around(ends.least, ends.most);
  }
  if (!(ends.most >= ends.least)) {
    return {};
  }
  const double air = ends.most > ends.least ? 0.05 * (ends.most - ends.least) : 1;
  return {.from = ends.least - air, .to = ends.most + air};
}

double from_top(double place) { return plot_height * (1 - place); }

std::string line_between(const Scale& x, const Scale& y, double factor, std::string_view style) {
  // Clipped to the values that both axes show.
  const double from = std::max(x.from, y.from / factor);
  const double to = std::min(x.to, y.to / factor);
  if (!(to > from)) {
    return "";
  }
  return fmt::format("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>", style,
                     along(x.at(from)), coordinate(from_top(y.at(factor * from))), along(x.at(to)),
                     coordinate(from_top(y.at(factor * to))));
}

std::string axes_svg(const PointChart& chart, const Scale& x, const Scale& y) {
  std::string svg;
  for (const double tick : ticks_of(x, 5)) {
    const double at = x.at(tick);
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{0}\" y1=\"0\" y2=\"{1}\"/><text class=\"tick\" "
        "x=\"{0}\" y=\"{2}\" text-anchor=\"{3}\">{4}</text>",
        along(at), coordinate(plot_height), coordinate(plot_height + 17),
        at > 0.92 ? "end" : "middle", escaped(chart.x.text(tick)));
  }
  for (const double tick : ticks_of(y, 6)) {
    const double at = from_top(y.at(tick));
    svg += fmt::format(
        "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{0}\" y2=\"{0}\"/><text class=\"tick\" "
        "x=\"-8\" y=\"{1}\" text-anchor=\"end\">{2}</text>",
        coordinate(at), coordinate(at + 4), escaped(chart.y.text(tick)));
  }
  const auto title = [](const std::string& text) {
    constexpr double beside = 64;  // .points in the style sheet
    return std::vector{cut(text, characters_within(narrowest_drawing - beside, axis_letters))};
  };
  svg += lines_svg(title(chart.x.title), "tick axis-title", "100%", plot_height + 35, "end");
  svg += lines_svg(title(chart.y.title), "tick axis-title", "0", -8, "start");
  return svg;
}

}  // namespace

void add(Sheet& sheet, const PointChart& chart) {
  Ends x_ends;
  Ends y_ends;
  std::size_t all = 0;
  std::size_t shown = 0;
  for (const PointGroup& group : chart.groups) {
    for (const Point& p : group.points) {
      ++all;
      if (drawable(chart.x, p.x) && drawable(chart.y, p.y)) {
        ++shown;
        x_ends.take(p.x);
        y_ends.take(p.y);
      }
    }
  }
  if (shown == 0) {
    return;
  }
  if (chart.diagonal) {
    const Ends both{.least = std::min(x_ends.least, y_ends.least),
                    .most = std::max(x_ends.most, y_ends.most)};
    x_ends = y_ends = both;
  }
  const Scale x = scale_of(chart.x, x_ends);
  const Scale y = scale_of(chart.y, y_ends);
  std::string svg = axes_svg(chart, x, y);
  if (chart.diagonal) {
    svg += line_between(x, y, 1.1, "band") + line_between(x, y, 1 / 1.1, "band") +
           line_between(x, y, 1, "equal");
  }
  std::string keys;
  Grid numbers{.heading = {"", "", chart.x.title, chart.y.title},
               .right = {false, false, true, true},
               .rows = {}};
  const std::size_t every = (shown + most_points - 1) / most_points;
  std::size_t drawn = 0;
  std::size_t seen = 0;
  for (std::size_t g = 0; g < chart.groups.size(); ++g) {
    const PointGroup& group = chart.groups[g];
    const std::string_view shape = shapes.at(g % shapes.size());
    const std::string_view key = shape_keys.at(g % shape_keys.size());
    for (const Point& p : group.points) {
      if (!drawable(chart.x, p.x) || !drawable(chart.y, p.y)) {
        continue;
      }
      numbers.rows.push_back({group.label, p.label, chart.x.text(p.x), chart.y.text(p.y)});
      if (seen++ % every != 0) {
        continue;
      }
      ++drawn;
      svg += fmt::format(
          "<svg x=\"{}\" y=\"{}\" overflow=\"visible\"><path class=\"{} point\" "
          "d=\"{}\"><title>{}</title></path></svg>",
          along(x.at(p.x)), coordinate(from_top(y.at(p.y))), key, shape,
          escaped(fmt::format("{}{}{}: {} / {}", group.label, group.label.empty() ? "" : ", ",
                              p.label, chart.x.text(p.x), chart.y.text(p.y))));
    }
    keys += fmt::format(
        "<li><svg class=\"swatch\" width=\"14\" height=\"14\" aria-hidden=\"true\"><svg x=\"7\" "
        "y=\"7\" overflow=\"visible\"><path class=\"{} point\" d=\"{}\"/></svg></svg>{}</li>",
        key, shape, escaped(group.label));
  }
  std::string body =
      chart.groups.size() > 1 ? fmt::format("<ul class=\"legend\">{}</ul>\n", keys) : "";
  body += "<div class=\"points\">" +
          drawing(sheet, chart.title, chart.description, plot_height + 40, svg, "plot") +
          "</div>\n";
  std::string note = chart.note;
  if (drawn < all) {
    note += fmt::format("{}{} of {} points are drawn.", note.empty() ? "" : " ", drawn, all);
  }
  sheet.figure({.title = chart.title,
                .description = chart.description,
                .drawing = std::move(body),
                .note = std::move(note),
                .numbers = shortened(std::move(numbers), most_listed)});
}

}  // namespace spp::report
