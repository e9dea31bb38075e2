// Text and numbers as they stand in a page: well-formed XML, whatever came from outside.
#pragma once

#include <string>
#include <string_view>

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

}  // namespace spp::report
