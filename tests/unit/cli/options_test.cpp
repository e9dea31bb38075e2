#include "cli/options.hpp"

#include "base/error.hpp"
#include "cli/command.hpp"
#include "tests/support/catch.hpp"

#include <set>

using namespace spp;
using namespace spp::cli;
using spp::test::message_of;

namespace {

constexpr Option number{"number", "N", "a number"};
constexpr Option text{"text", "a|b|FILE", "a text", OptionGroup::command, 't'};
constexpr Option flag{"flag", "", "a switch"};

Arguments parse(const std::vector<std::string>& words) { return {{number, text, flag}, words}; }

}  // namespace

TEST_CASE("every option stands once in the tables, with help") {
  struct Names {
    std::set<std::string_view> names;
    std::set<char> letters;
    void add(const Option& o) {
      INFO(o.name);
      CHECK(names.insert(o.name).second);
      CHECK((o.letter == 0 || letters.insert(o.letter).second));
      CHECK_FALSE(o.help.empty());
    }
  };
  Names shared;
  for (const Option& o : shared_options()) {
    shared.add(o);
  }
  for (const Command* c : commands::all()) {
    INFO(c->name);
    Names names;  // what the command takes
    for (const Option& o : options_of(*c)) {
      names.add(o);
    }
    CHECK_FALSE(c->examples.empty());
    CHECK_FALSE(c->summary.empty());
  }
}

TEST_CASE("options are given as two words, with '=', or by letter") {
  CHECK(parse({"--number", "3"}).find("number") == "3");
  CHECK(parse({"--number=3"}).find("number") == "3");
  CHECK(parse({"-t", "x"}).find("text") == "x");
  CHECK(parse({"--number", "-3"}).find("number") == "-3");
  CHECK(parse({"--flag"}).has("flag"));
  CHECK(parse({"--number", "3", "extra"}).positionals() == std::vector<std::string>{"extra"});
  CHECK_FALSE(parse({}).has("flag"));
  CHECK(parse({}).get("number", "7") == "7");
  CHECK(parse({"show", "--flag", "name"}).positionals() ==
        std::vector<std::string>{"show", "name"});
}

TEST_CASE("a mistake on the command line names the option") {
  CHECK(message_of<InputError>([] { parse({"--nubmer", "3"}); }) ==
        "--nubmer: unknown option (did you mean '--number'?)");
  CHECK(message_of<InputError>([] { parse({"--number"}); }) == "--number: a value is missing (N)");
  CHECK(message_of<InputError>([] { parse({"--number", "--flag"}); }) ==
        "--number: a value is missing (N)");
  CHECK(message_of<InputError>([] { parse({"--number="}); }) == "--number: a value is missing (N)");
  CHECK(message_of<InputError>([] { parse({"--number", "3", "--number", "4"}); }) ==
        "--number: given 2 times");
  CHECK(message_of<InputError>([] { parse({"extra"}).expect_no_positionals(); }) ==
        "extra: unexpected; options begin with '--' (see --help)");
}

TEST_CASE("an option that is in no table is our mistake") {
  CHECK_THROWS_AS(parse({}).has("nubmer"), InternalError);
}

TEST_CASE("a default does not replace what was given") {
  Arguments arguments = parse({"--number", "3"});
  arguments.set_default("number", "4");
  arguments.set_default("text", "b");
  CHECK(arguments.find("number") == "3");
  CHECK(arguments.find("text") == "b");
}

TEST_CASE("choices are the words of a value that are no placeholders") {
  CHECK(choices_of(text) == std::vector<std::string>{"a", "b"});
  CHECK(choices_of(number).empty());
}

TEST_CASE("a caller gives options by name: text, switches, and documents where a file is named") {
  const std::vector<Option> known{{"model", "NAME|FILE", "a model", OptionGroup::work},
                                  number,
                                  flag,
                                  {"json", "", "for a shell", OptionGroup::output}};
  const auto given = [&](const std::vector<Given>& options) {
    return Arguments(known, {"word"}, options);
  };
  const Arguments some = given({{.option = "number", .text = "3"}, {.option = "flag"}});
  CHECK(some.find("number") == "3");
  CHECK(some.has("flag"));
  CHECK(some.positionals() == std::vector<std::string>{"word"});
  CHECK(some.document("model") == nullptr);

  const Json model{{"name", "tiny"}};
  const Arguments with = given({{.option = "model", .document = model}});
  CHECK(with.find("model") == "tiny");
  CHECK(*with.document("model") == model);
  CHECK(given({{.option = "model", .document = Json::array()}}).find("model") == "a document");

  const auto refused = [&](const Given& option) {
    return message_of<InputError>([&] { (void)given({option}); });
  };
  CHECK(refused({.option = "nummber", .text = "3"}) ==
        "--nummber: unknown option (did you mean '--number'?)");
  CHECK(refused({.option = "json"}) == "--json: unknown option (see --help)");
  CHECK(refused({.option = "number"}) == "--number: a value is missing (N)");
  CHECK(refused({.option = "number", .text = ""}) == "--number: a value is missing (N)");
  CHECK(refused({.option = "flag", .text = "yes"}) == "--flag: takes no value");
  CHECK(refused({.option = "number", .document = model}) == "--number: a document is no value (N)");
  CHECK(refused({.option = "flag", .document = model}) ==
        "--flag: a document is no value (a switch)");
}
