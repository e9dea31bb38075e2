#include "base/error.hpp"

#include "tests/support/catch.hpp"

#include <type_traits>

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using spp::test::message_of;

TEST_CASE("an input error reads 'where: message'") {
  CHECK(std::string(InputError("--seq", "0 is too small").what()) == "--seq: 0 is too small");
}

TEST_CASE("an input error without a place is its message alone") {
  CHECK(std::string(InputError("", "nothing given").what()) == "nothing given");
}

TEST_CASE("a broken invariant names the caller's file and function") {
  const std::string message = message_of<InternalError>([] { ensure(false, "ranks are sorted"); });
  CHECK_THAT(message, ContainsSubstring("error_test.cpp"));
  CHECK_THAT(message, ContainsSubstring("ranks are sorted"));
}

TEST_CASE("an invariant that holds is silent") { CHECK_NOTHROW(ensure(true, "all is well")); }

TEST_CASE("a back end's error names the call, its text and the rank") {
  CHECK(std::string(BackendError("ncclAllGather", "unhandled cuda error", 3).what()) ==
        "ncclAllGather failed on rank 3: unhandled cuda error");
}

TEST_CASE("wrong input is never mistaken for a bug") {
  STATIC_REQUIRE_FALSE(std::is_base_of_v<std::logic_error, InputError>);
  STATIC_REQUIRE_FALSE(std::is_base_of_v<std::runtime_error, InternalError>);
}
