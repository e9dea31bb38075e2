#include "base/error.hpp"

#include "tests/support/catch.hpp"

TEST_CASE("placeholder error") { SUCCEED(); }
