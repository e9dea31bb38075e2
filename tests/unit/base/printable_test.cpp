#include "base/printable.hpp"

#include "tests/support/catch.hpp"

using spp::printable_line;
using spp::printable_page;

TEST_CASE("text that is made for reading stays as it is") {
  const std::string text = "rates ±9 %, 80 GB … 日本 😀 a\\b";
  CHECK(printable_line(text) == text);
  CHECK(printable_page(text) == text);
}

TEST_CASE("what a terminal would obey is shown as what it is") {
  CHECK(printable_line("\x1b]0;title\a") == "\\x1b]0;title\\x07");
  CHECK(printable_line("a\tb\rc") == "a\\tb\\rc");
  CHECK(printable_line("\x7f") == "\\x7f");
  CHECK(printable_line("\xc2\x9b"
                       "31m") == "\\u009b31m");  // CSI of 8 bits
  CHECK(printable_line("\xe2\x80\xae"
                       "gpj.exe") == "\\u202egpj.exe");  // right to left
  CHECK(printable_line(std::string("a\0b", 3)) == "a\\x00b");
}

TEST_CASE("what is not UTF-8 is shown byte by byte") {
  CHECK(printable_line("\xff") == "\\xff");
  CHECK(printable_line("\x9b"
                       "31m") == "\\x9b31m");
  CHECK(printable_line("\xc0\xaf") == "\\xc0\\xaf");                    // overlong
  CHECK(printable_line("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
  CHECK(printable_line("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond Unicode
  CHECK(printable_line("\xe2\x80") == "\\xe2\\x80");                    // cut off
}

TEST_CASE("a line has no line feeds, a page has, and our own styles") {
  CHECK(printable_line("a\nb") == "a b");
  CHECK(printable_page("\x1b[1mbold\x1b[0m\n\x1b[2mdim\x1b[0m\n") ==
        "\x1b[1mbold\x1b[0m\n\x1b[2mdim\x1b[0m\n");
  CHECK(printable_page("\x1b[30;44mA\x1b[0m\x1b[30;100ms\x1b[0m") ==
        "\x1b[30;44mA\x1b[0m\x1b[30;100ms\x1b[0m");
  CHECK(printable_page("\x1b[30;8mhidden\x1b[30;44;8m") == "\\x1b[30;8mhidden\\x1b[30;44;8m");
  CHECK(printable_page("\x1b[31mred\x1b[2J\r\n") == "\\x1b[31mred\\x1b[2J\\r\n");
}
