// Two timelines or results side by side.
#include "report/candidate.hpp"
#include "report/kind.hpp"
#include "report/markup.hpp"
#include "report/points.hpp"

#include <fmt/format.h>

#include <tuple>
#include <vector>

namespace spp::report::kinds::comparison {
namespace {

std::string side(const JsonView& document, std::string_view which) {
  const JsonView view = document.at(which);
  return fmt::format("{} ({})", text_at(view, "what"), text_at(view, "file"));
}

std::string subject(const JsonView& document) {
  return fmt::format("{} against {}", text_at(document.at("a"), "what"),
                     text_at(document.at("b"), "what"));
}

std::string change_text(const JsonView& row) {
  const auto change = row.find("change");
  return change ? signed_percent(change->number()) : "";
}

constexpr std::size_t most_quantities_drawn = 20;

void add_seconds(Sheet& sheet, const JsonView& document, const std::string& a,
                 const std::string& b) {
  BarChart chart{.title = "Seconds, side by side",
                 .description = "For each quantity that both have: A above, B below.",
                 .note = "",
                 .unit_heading = "seconds",
                 .text = seconds_text,
                 .bars = {},
                 .marks = {}};
  std::vector<JsonView> rows = document.at("seconds").elements();
  if (rows.size() > most_quantities_drawn) {
    chart.note = fmt::format("{} of {} quantities are drawn; the document has all.",
                             most_quantities_drawn, rows.size());
    rows.erase(rows.begin() + most_quantities_drawn, rows.end());
  }
  for (const JsonView& row : rows) {
    const std::string name = row.at("name").string();
    for (const auto& [key, label, style] :
         {std::tuple{"a_s", "A", "k-predicted"}, std::tuple{"b_s", "B", "k-attention"}}) {
      const double seconds = row.at(key).number(0, most_seconds_read);
      chart.bars.push_back(
          {.label = fmt::format("{}, {}", name, label),
           .value = seconds_text(seconds) + (*label == 'A' ? " (" + change_text(row) + ")" : ""),
           .parts = {{style, fmt::format("{}: {}", label, *label == 'A' ? a : b), seconds}},
           .interval = std::nullopt});
    }
  }
  add(sheet, chart);
}

void add_points(Sheet& sheet, const JsonView& document, std::string_view list, std::string title,
                const std::string& a, const std::string& b) {
  PointChart chart{
      .title = std::move(title),
      .description = "On the line both are equal; the dotted lines are a tenth above and below.",
      .note = "",
      .x = {.title = "B: " + b, .text = seconds_text},
      .y = {.title = "A: " + a, .text = seconds_text},
      .groups = {{.label = "", .points = {}}},
      .diagonal = true};
  for (const JsonView& row : document.at(list).elements()) {
    const auto rank = row.find("rank");
    chart.groups[0].points.push_back(
        {row.at("b_s").number(0, most_seconds_read), row.at("a_s").number(0, most_seconds_read),
         rank ? fmt::format("{}, rank {} op {}", row.at("kind").string(), value_text(rank->value()),
                            text_at(row, "op"))
              : row.at("kind").string()});
  }
  add(sheet, chart);
}

void add(const JsonView& document, Sheet& sheet) {
  const std::string a = side(document, "a");
  const std::string b = side(document, "b");
  sheet.paragraph(fmt::format("A: {}. B: {}. Percentages are of A against B.", a, b));
  add_seconds(sheet, document, a, b);
  add_points(sheet, document, "kinds", "By kind of op", a, b);
  add_points(sheet, document, "ops", "The ops that differ most", a, b);
}

}  // namespace

extern const Kind entry{
    .format = "comparison", .name = "Comparison", .subject = subject, .add = add};

}  // namespace spp::report::kinds::comparison
