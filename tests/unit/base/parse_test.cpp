#include "base/parse.hpp"

#include "tests/support/catch.hpp"

TEST_CASE("placeholder parse") { SUCCEED(); }
