#include "samples/pace.hpp"

#include "tests/support/catch.hpp"

using namespace spp;
using Catch::Approx;

namespace {

Series message(std::string suite, std::string what, double bytes, double seconds, int ranks,
               int active) {
  return {.suite = std::move(suite),
          .what = std::move(what),
          .scope = "intra",
          .ranks = ranks,
          .active = active,
          .size = bytes,
          .seconds = std::vector<double>(7, seconds),
          .block = std::nullopt};
}

}  // namespace

TEST_CASE("times of kernels are scaled to the usual pace") {
  Series pace = message("attention", "pace", 0, 1, 1, 2);
  pace.seconds = {1, 1.5, 1};
  Series slow_once = pace;
  slow_once.what = "attention";
  slow_once.seconds = {20, 30, 22};
  slow_once.pace = pace.seconds;
  Series message_time = pace;
  message_time.what = "ring";
  const auto scaled = at_one_pace({pace, slow_once, message_time});
  CHECK(scaled[0].seconds == pace.seconds);
  CHECK(scaled[1].seconds == std::vector<double>{20, 20, 22});
  CHECK(scaled[2].seconds == message_time.seconds);
  CHECK(at_one_pace({slow_once}).front().seconds == slow_once.seconds);

  const Json json = to_json(slow_once);
  CHECK(read_series(JsonView(json, "part")).pace == slow_once.pace);
  Json short_of_one = json;
  short_of_one["pace"].erase(0);
  CHECK_THROWS_WITH(read_series(JsonView(short_of_one, "part")),
                    Catch::Matchers::ContainsSubstring("has not as many samples"));
}
