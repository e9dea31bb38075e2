#include "base/suggest.hpp"

#include "tests/support/catch.hpp"

TEST_CASE("placeholder suggest") { SUCCEED(); }
