// Text of outside origin in a page.
#include "report/markup.hpp"

#include "tests/support/catch.hpp"

#include <string>

using namespace spp::report;

TEST_CASE("what would be markup is text") {
  CHECK(escaped("<script>alert('x')</script>") ==
        "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;");
  CHECK(escaped("a & \"b\"") == "a &amp; &quot;b&quot;");
  CHECK(escaped("&lt;") == "&amp;lt;");
}

TEST_CASE("what is no text is made visible") {
  CHECK(escaped(std::string("a\x1b[31mb")) == "a\\x1b[31mb");
  CHECK(escaped("\xff") == "\\xff");
  CHECK(escaped("a\xef\xbf\xbe\xef\xbf\xbf") == "a\\ufffe\\uffff");
  CHECK(escaped("2 × 8 → 16") == "2 × 8 → 16");
  CHECK(escaped("two\nlines") == "two lines");
}

TEST_CASE("what is endless is cut, between characters") {
  CHECK(escaped(std::string(100'000, 'x')).size() < 3000);
  CHECK(cut("äöü", 2) == "ä…");
  CHECK(cut("äöü", 3) == "äöü");
}

TEST_CASE("text is set in lines that fit, broken at spaces where there are some") {
  // 11 pixels, 0.64 em a character, a quarter more: 8.8 pixels each.
  CHECK(characters_within(88.5, tick_letters) == 10);
  CHECK(lines_within("a ring of switches", 88.5, tick_letters) ==
        std::vector<std::string>{"a ring of", "switches"});
  CHECK(lines_within("0123456789abc", 88.5, tick_letters) ==
        std::vector<std::string>{"0123456789", "abc"});
  CHECK(lines_within("0123456789 abc", 88.5, tick_letters) ==
        std::vector<std::string>{"0123456789", "abc"});
  CHECK(lines_within("äöüäöüäöüä", 88.5, tick_letters).size() == 1);
  CHECK(lines_within("", 88.5, tick_letters).empty());
}

TEST_CASE("places have two digits at most") {
  CHECK(coordinate(12) == "12");
  CHECK(coordinate(12.5) == "12.5");
  CHECK(coordinate(1.0 / 3) == "0.33");
  CHECK(coordinate(-0.0001) == "0");
  CHECK(coordinate(INFINITY) == "0");
  CHECK(along(0.125) == "12.5%");
}

TEST_CASE("fractions are percentages of three digits") {
  CHECK(percent(0.0123) == "1.23 %");
  CHECK(percent(0.123) == "12.3 %");
  CHECK(percent(1.5) == "150 %");
  CHECK(signed_percent(0.02) == "+2.00 %");
  CHECK(signed_percent(-0.5) == "-50.0 %");
}
