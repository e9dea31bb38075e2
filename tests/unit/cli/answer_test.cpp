#include "cli/answer.hpp"

#include "tests/support/catch.hpp"

using namespace spp;
using namespace spp::cli;

namespace {

const Watch on = [](double, double) { return true; };

Given option(const std::string& name, const std::string& text) {
  return {.option = name, .text = text, .document = std::nullopt};
}

const std::vector<Given> proof{option("heads", "4"), option("seq", "64"), option("ring", "2")};

}  // namespace

TEST_CASE("a caller is given the document") {
  const Answer given = answer("verify", {}, proof, on);
  CHECK(given.code == ExitCode::done);
  CHECK(given.failure.empty());
  REQUIRE(given.document);
  CHECK(given.document->at("format") == "sp-plan/verification");
  CHECK(given.document->at("proven") == true);
}

TEST_CASE("a caller is given the line of a refusal, and what was found out before") {
  const Answer wrong = answer("verify", {"word"}, proof, on);
  CHECK(wrong.code == ExitCode::usage);
  CHECK(wrong.failure == "word: unexpected; options begin with '--' (see --help)");
  CHECK_FALSE(wrong.document);
  CHECK(answer("verfy", {}, {}, on).failure == "verfy: unknown command (did you mean 'verify'?)");

  const Answer full = answer("simulate", {},
                             {option("heads", "8"), option("seq", "64M"), option("batch", "64"),
                              option("topology", "dgx-h100"), option("ring", "8")},
                             on);
  CHECK(full.code == ExitCode::infeasible);
  CHECK(full.failure.find(" does not fit: ") != std::string::npos);
  REQUIRE(full.document);
  CHECK(full.document->at("result").at("predicted").at("fits") == false);
}

TEST_CASE("what a caller throws when it is asked whether to go on reaches it") {
  struct Enough {};
  const Watch enough = [](double, double) -> bool { throw Enough(); };
  const std::vector<Given> long_one{option("heads", "4"), option("seq", "64K"),
                                    option("ring", "64")};
  CHECK_THROWS_AS(answer("verify", {}, long_one, enough), Enough);
}
