// A page as it grows: headings, sentences, tables, figures. Everything that is added is escaped
// here, except what figures draw.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spp::report {

/// Rows of text under a heading. Columns whose `right` is true hold numbers.
struct Grid {
  std::vector<std::string> heading;
  std::vector<bool> right;
  std::vector<std::vector<std::string>> rows;
};

/// A figure in the sense of HTML: a caption, what is drawn, and the numbers behind it.
struct Figure {
  std::string title;
  std::string description;  // for who does not see it: what is drawn, and what it shows
  std::string drawing;      // HTML and SVG, well-formed
  std::string note;         // under the drawing; may be empty
  Grid numbers;
};

/// A class of a figure's parts: its colour and pattern (style.cpp) and its name.
struct Key {
  std::string_view name;  // "k-attention"
  std::string label;
};

struct Stat {
  std::string label, value, note;
};

enum class Tone : std::uint8_t { plain, good, bad, note };

class Sheet {
 public:
  [[nodiscard]] const std::string& html() const { return html_; }
  /// Names that are unique in the page, given the section's own.
  explicit Sheet(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string fresh_id();

  void heading(std::string_view text);
  void paragraph(std::string_view text, std::string_view style = "");
  /// A verdict: a word that says it, then a sentence.
  void verdict(Tone tone, std::string_view word, std::string_view text);
  void list(const std::vector<std::string>& items);
  void stats(const std::vector<Stat>& stats);
  void table(const Grid& grid, std::string_view caption = "");
  /// The same, folded away.
  void details(std::string_view summary, const Grid& grid);
  void preformatted(std::string_view summary, const std::vector<std::string>& lines);
  void figure(const Figure& figure);

 private:
  std::string table_html(const Grid& grid, std::string_view caption) const;
  std::string prefix_;
  std::string html_;
  int ids_ = 0;
};

/// Swatches with their names.
std::string legend(const std::vector<Key>& keys);

/// <svg> with title and description, for people who do not see it; `content` is drawn in a box
/// `height` pixels high and as wide as there is room.
std::string drawing(Sheet& sheet, std::string_view title, std::string_view description,
                    double height, std::string_view content, std::string_view style = "");

/// The first rows of a grid that would be too long, and how many were left out.
Grid shortened(Grid grid, std::size_t most);

}  // namespace spp::report
