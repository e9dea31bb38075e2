// What every refusal looks like: no result, and one line that says what is wrong.
#pragma once

#include "tests/cli/program.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <string>

namespace spp::test {

/// One line with `message`, no result, and nobody speaks of a bug.
inline void check_refused(const Result& r, int code, const std::string& message) {
  using Catch::Matchers::ContainsSubstring;
  CHECK(r.code == code);
  CHECK(r.out.empty());
  CHECK(r.err.starts_with("sp-plan: "));
  CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
  CHECK_THAT(r.err, ContainsSubstring(message));
  CHECK_THAT(r.err, !ContainsSubstring("bug"));
}

}  // namespace spp::test
