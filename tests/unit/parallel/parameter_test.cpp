#include "parallel/attention/parameter.hpp"

#include "parallel/attention/attention_mesh.hpp"
#include "parallel/attention/double_ring_core.hpp"
#include "parallel/attention/strategy.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

using namespace spp;

TEST_CASE("values that are 1 are none, whatever was set before, in whatever order") {
  ParameterValues values;
  CHECK(values[parameters::team] == 1);
  values.set(parameters::window, 4);
  values.set(parameters::team, 2);
  CHECK(values == ParameterValues{{&parameters::team, 2}, {&parameters::window, 4}});
  REQUIRE(values.values().size() == 2);
  CHECK(values.values()[0].parameter == &parameters::team);
  CHECK(values[parameters::window] == 4);
  values.set(parameters::team, 3);
  CHECK(values[parameters::team] == 3);
  CHECK(values.values().size() == 2);
  values.set(parameters::team, 1);
  CHECK(values == ParameterValues{{&parameters::window, 4}});
  values.set(parameters::window, 1);
  CHECK(values == ParameterValues{});
  CHECK(values.values().empty());
}

TEST_CASE("choices of a parameter split the ring and leave something on both sides") {
  CHECK(parameters::team.choices(4) == std::vector{2});
  CHECK(parameters::team.choices(36) == std::vector{2, 3, 6});
  CHECK(parameters::team.choices(6).empty());
  CHECK(parameters::window.choices(12) == std::vector{2, 3, 4, 6});
  CHECK(parameters::window.choices(7).empty());
}

TEST_CASE("a value that splits no ring says why") {
  CHECK(parameters::team.why_not(2, "the ring degree", 8).empty());
  CHECK(parameters::team.why_not(3, "the ring degree", 8) ==
        "3 squared is 9, which does not divide the ring degree 8");
  CHECK(parameters::window.why_not(3, "the ring degree", 8) ==
        "3 does not divide the ring degree 8");
  CHECK_FALSE(parameters::window.why_not(0, "the ring degree", 8).empty());
  CHECK_FALSE(parameters::team.why_not(1 << 30, "the ring degree", 8).empty());
}

TEST_CASE("names and symbols of parameters are those of one, and no degree's") {
  std::set<std::string_view> names{"ulysses", "ring", "tp", "dp", "pp", "ep", "etp"};
  std::set<std::string_view> symbols{"U", "R"};
  for (const Parameter* parameter : strategies::parameters()) {
    INFO(parameter->name);
    CHECK(names.insert(parameter->name).second);
    CHECK(symbols.insert(parameter->symbol).second);
    CHECK_FALSE(parameter->help.empty());
    CHECK(std::ranges::any_of(strategies::all(), [&](const Strategy* s) {
      return std::ranges::find(s->parameters, parameter) != s->parameters.end();
    }));
  }
}
