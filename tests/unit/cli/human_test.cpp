#include "cli/human.hpp"

#include "tests/support/catch.hpp"

using namespace spp;
using namespace spp::cli;

TEST_CASE("quantities have three digits and a unit") {
  CHECK(human(Seconds(1.234)) == "1.23 s");
  CHECK(human(Seconds(0.9999)) == "1.00 s");
  CHECK(human(Seconds(0.0421)) == "42.1 ms");
  CHECK(human(Seconds(3e-7)) == "0.30 us");
  CHECK(human(Seconds(0)) == "0");
  CHECK(human(Bytes(80'000'000'000)) == "80.0 GB");
  CHECK(human(Bytes(999'999)) == "1.00 MB");
  CHECK(human(Bytes(12)) == "12.0 B");
  CHECK(human(Bandwidth(46.2e9)) == "46.2 GB/s");
}

TEST_CASE("tokens are 1024-based when whole, else counted out") {
  CHECK(human_tokens(131072) == "128K");
  CHECK(human_tokens(2 << 20) == "2M");
  CHECK(human_tokens(75600) == "75,600");
  CHECK(human_tokens(1000) == "1,000");
  CHECK(human_count(1234567) == "1,234,567");
  CHECK(human_count(-1234) == "-1,234");
  CHECK(human_count(999) == "999");
}

TEST_CASE("columns align by characters, not by bytes") {
  const Table table{.rows = {{"a", "±"}, {"bb", "10"}}, .right = {false, true}};
  CHECK(table.lines() == std::vector<std::string>{"a    ±", "bb  10"});
}

TEST_CASE("text is cut at a character with an ellipsis, and wrapped at spaces") {
  CHECK(shortened("±±±±", 3) == "±±…");
  CHECK(shortened("abc", 3) == "abc");
  CHECK(shortened("abc", 1) == "…");
  CHECK(wrapped("one two three", 2, 10) == "  one two\n  three\n");
  CHECK(wrapped("averylongword", 0, 5) == "averylongword\n");
}
