// Text and numbers as they stand in a page: well-formed XML, whatever came from outside.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace spp::report {

/// Text of outside origin as content or as the value of an attribute: what is no text is made
/// visible (base/printable.hpp), what would be markup is escaped, what is endless is cut.
std::string escaped(std::string_view text);

/// A coordinate: at most two digits behind the point.
std::string coordinate(double value);

/// 0.123 -> "12.3%": a place along the width of a drawing.
std::string along(double fraction);

/// "12.3 %", "-0.4 %": a fraction for people; three digits at most.
std::string percent(double fraction);
/// The same with its sign.
std::string signed_percent(double fraction);

/// "1.2e+06", "42", "0.051": three digits.
std::string short_number(double value);

/// At most so many characters, an ellipsis if something was cut.
std::string cut(std::string_view text, std::size_t characters);

/// How text of a drawing is set (style.hpp has the same sizes).
struct Lettering {
  double pixels = 12;
  bool bold = false;
};
inline constexpr Lettering tick_letters{.pixels = 11, .bold = false};
inline constexpr Lettering axis_letters{.pixels = 11, .bold = true};
inline constexpr Lettering box_letters{.pixels = 12, .bold = true};

/// As wide as a drawing is at least: on a page of 400 pixels.
inline constexpr double narrowest_drawing = 360;

/// Characters of which no font makes a line longer than so many pixels. Which one a machine has is
/// not known: counted is the widest of the style sheet's, and a quarter more.
std::size_t characters_within(double pixels, Lettering letters);

/// The text in lines that fit into so many pixels, broken at spaces where there are some.
std::vector<std::string> lines_within(std::string_view text, double pixels, Lettering letters);

/// Lines of SVG text one below the other, the first at y; `x` as SVG has it.
std::string lines_svg(const std::vector<std::string>& lines, std::string_view style,
                      std::string_view x, double y, std::string_view anchor);
inline constexpr double line_height = 15;

}  // namespace spp::report
