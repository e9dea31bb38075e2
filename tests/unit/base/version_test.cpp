#include "base/version.hpp"

#include "tests/support/catch.hpp"

TEST_CASE("the version has three numbers") {
  const std::string version(spp::version());
  CHECK(std::count(version.begin(), version.end(), '.') == 2);
  CHECK(version.find_first_not_of("0123456789.") == std::string::npos);
}

TEST_CASE("the commit is a hash or 'unknown'") {
  const std::string commit(spp::commit());
  const bool is_hash =
      commit.size() >= 7 && commit.find_first_not_of("0123456789abcdef") == std::string::npos;
  CHECK((is_hash || commit == "unknown"));
}
