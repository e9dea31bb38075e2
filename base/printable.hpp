// Text of outside origin (files, options, names, other programs) before it goes to a terminal.
// A terminal obeys what it is sent: control characters, escape sequences, the 8-bit controls of
// old terminals, marks that turn the direction of writing. They are shown as what they are
// ("\x1b", "\u202e"), as is what is not UTF-8 ("\xff"). JSON is escaped by its own rules.
#pragma once

#include <string>
#include <string_view>

namespace spp {

/// One line: a line feed becomes a space.
std::string printable_line(std::string_view text);

/// Lines of a table: line feeds stay, and of the escape sequences those for bold, dim, a coloured
/// ground and plain.
std::string printable_page(std::string_view text);

}  // namespace spp
