#include "report/sheet.hpp"

#include "report/markup.hpp"

#include <fmt/format.h>

namespace spp::report {

std::string Sheet::fresh_id() { return fmt::format("{}-{}", prefix_, ++ids_); }

void Sheet::heading(std::string_view text) { html_ += fmt::format("<h3>{}</h3>\n", escaped(text)); }

void Sheet::paragraph(std::string_view text, std::string_view style) {
  html_ += style.empty() ? fmt::format("<p>{}</p>\n", escaped(text))
                         : fmt::format("<p class=\"{}\">{}</p>\n", style, escaped(text));
}

void Sheet::verdict(Tone tone, std::string_view word, std::string_view text) {
  const std::string_view style = tone == Tone::good   ? "good"
                                 : tone == Tone::bad  ? "bad"
                                 : tone == Tone::note ? "note"
                                                      : "plain";
  html_ += fmt::format("<p class=\"verdict {}\"><strong>{}</strong> {}</p>\n", style, escaped(word),
                       escaped(text));
}

void Sheet::list(const std::vector<std::string>& items) {
  html_ += "<ul class=\"reasons\">\n";
  for (const std::string& item : items) {
    html_ += fmt::format("<li>{}</li>\n", escaped(item));
  }
  html_ += "</ul>\n";
}

void Sheet::stats(const std::vector<Stat>& stats) {
  html_ += "<dl class=\"stats\">\n";
  for (const Stat& s : stats) {
    html_ +=
        fmt::format("<div><dt>{}</dt><dd>{}{}</dd></div>\n", escaped(s.label), escaped(s.value),
                    s.note.empty() ? "" : fmt::format(" <small>{}</small>", escaped(s.note)));
  }
  html_ += "</dl>\n";
}

std::string Sheet::table_html(const Grid& grid, std::string_view caption) const {
  const auto style = [&](std::size_t column) {
    return column < grid.right.size() && grid.right[column] ? " class=\"n\"" : "";
  };
  std::string text =
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table\"><table>";
  if (!caption.empty()) {
    text += fmt::format("<caption>{}</caption>", escaped(caption));
  }
  text += "<thead><tr>";
  for (std::size_t c = 0; c < grid.heading.size(); ++c) {
    text += fmt::format("<th scope=\"col\"{}>{}</th>", style(c), escaped(grid.heading[c]));
  }
  text += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : grid.rows) {
    text += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c) {
      text += fmt::format("<td{}>{}</td>", style(c), escaped(row[c]));
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

void Sheet::table(const Grid& grid, std::string_view caption) {
  if (!grid.rows.empty()) {
    html_ += table_html(grid, caption);
  }
}

void Sheet::details(std::string_view summary, const Grid& grid) {
  if (!grid.rows.empty()) {
    html_ += fmt::format("<details><summary>{}</summary>\n{}</details>\n", escaped(summary),
                         table_html(grid, ""));
  }
}

void Sheet::preformatted(std::string_view summary, const std::vector<std::string>& lines) {
  html_ += fmt::format("<details><summary>{}</summary><pre class=\"scroll\" tabindex=\"0\">",
                       escaped(summary));
  for (const std::string& line : lines) {
    html_ += escaped(line) + "\n";
  }
  html_ += "</pre></details>\n";
}

void Sheet::figure(const Figure& f) {
  const std::string title = fresh_id();
  html_ += fmt::format(
      "<figure aria-labelledby=\"{0}\"><figcaption id=\"{0}\">{1}</figcaption>\n"
      "<p class=\"about\">{2}</p>\n{3}",
      title, escaped(f.title), escaped(f.description), f.drawing);
  if (!f.note.empty()) {
    html_ += fmt::format("<p class=\"under\">{}</p>\n", escaped(f.note));
  }
  if (!f.numbers.rows.empty()) {
    html_ += fmt::format("<details class=\"numbers\"><summary>Numbers</summary>\n{}</details>\n",
                         table_html(f.numbers, f.title));
  }
  html_ += "</figure>\n";
}

std::string legend(const std::vector<Key>& keys) {
  std::string text = "<ul class=\"legend\">";
  for (const Key& key : keys) {
    text += fmt::format(
        "<li><svg class=\"swatch\" width=\"14\" height=\"14\" aria-hidden=\"true\"><rect "
        "class=\"{}\" "
        "width=\"14\" height=\"14\" rx=\"2\"/></svg>{}</li>",
        key.name, escaped(key.label));
  }
  return text + "</ul>\n";
}

std::string drawing(Sheet& sheet, std::string_view title, std::string_view description,
                    double height, std::string_view content, std::string_view style) {
  const std::string id = sheet.fresh_id();
  return fmt::format(
      "<svg role=\"img\" aria-labelledby=\"{0} {0}d\" width=\"100%\" height=\"{1}\"{2}>"
      "<title id=\"{0}\">{3}</title><desc id=\"{0}d\">{4}</desc>{5}</svg>\n",
      id, coordinate(height), style.empty() ? "" : fmt::format(" class=\"{}\"", style),
      escaped(title), escaped(description), content);
}

Grid shortened(Grid grid, std::size_t most) {
  if (grid.rows.size() > most) {
    const std::size_t left_out = grid.rows.size() - most;
    grid.rows.resize(most);
    grid.rows.push_back({fmt::format("… and {} more", left_out)});
  }
  return grid;
}

}  // namespace spp::report
