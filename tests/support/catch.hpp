// Catch2, version 2 (Debian 12) or 3 (newer systems), under one name: include this, never Catch2
// itself. Tests are written in what both have: Catch::Approx, Catch::Matchers::{ContainsSubstring,
// StartsWith, EndsWith, WithinAbs, WithinRel}, GENERATE, SECTION.
#pragma once

#include <string>
#include <string_view>

#if SPP_CATCH2_VERSION == 2
#include <catch2/catch.hpp>

namespace Catch {
using Detail::Approx;
namespace Matchers {
inline auto ContainsSubstring(const std::string& text) { return Contains(text); }
}  // namespace Matchers
}  // namespace Catch
#else
#include <catch2/catch_all.hpp>
#endif

namespace spp::test {

/// Prints "skipped: <why>". When every test that ran was skipped, the program ends with 77, which
/// ctest shows as "Skipped".
void note_skip(std::string_view why);

/// The message of the Error that `act` throws; fails the test when it throws nothing or another
/// type.
template <class Error, class Act>
std::string message_of(Act&& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  FAIL("nothing was thrown");
  return {};
}

}  // namespace spp::test

/// Leaves the test case, saying why it cannot run here.
#define SPP_SKIP(why)            \
  do {                           \
    ::spp::test::note_skip(why); \
    return;                      \
  } while (false)
