#include "base/json.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

#include <fmt/format.h>

#include <functional>

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using spp::test::message_of;
using spp::test::TempDir;

namespace {

/// The message that `act` fails with on a document of that text.
std::string error_in(std::string_view text, const std::function<void(const JsonView&)>& act) {
  const Json document = parse_json(text, "cluster.json");
  return message_of<InputError>([&] { act(JsonView(document, "cluster.json")); });
}

std::string syntax_error(std::string_view text) {
  return message_of<InputError>([&] { (void)parse_json(text, "cluster.json"); });
}

}  // namespace

TEST_CASE("keys keep the order of the file") {
  CHECK(parse_json(R"({"z": 1, "a": 2})", "f").dump() == R"({"z":1,"a":2})");
}

TEST_CASE("a syntax error names file, line and column") {
  CHECK_THAT(syntax_error("{\n  \"a\": 1,\n  \"b\": x\n}"),
             StartsWith("cluster.json:3:8: not JSON: "));
  CHECK_THAT(syntax_error("{,"), StartsWith("cluster.json:1:2: not JSON: "));
  CHECK_THAT(syntax_error(""), StartsWith("cluster.json:1:1: not JSON: "));
}

TEST_CASE("a syntax error is one line") {
  CHECK(syntax_error("{\"a\": \"two\nlines\"}").find('\n') == std::string::npos);
}

TEST_CASE("text after the document is refused") {
  CHECK_THAT(syntax_error("{} {}"), StartsWith("cluster.json:1:4: not JSON: "));
}

TEST_CASE("text that is not UTF-8 is refused") {
  CHECK_THAT(syntax_error("{\"a\": \"\xff\"}"), StartsWith("cluster.json:1:8: not JSON: "));
}

TEST_CASE("a number beyond double is refused") {
  CHECK_THAT(syntax_error(R"({"a": 1e999})"), StartsWith("cluster.json"));
}

TEST_CASE("deep nesting ends in a message, not in a crash") {
  const auto nested = [](std::size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  CHECK_NOTHROW(parse_json(nested(256), "f"));
  CHECK(syntax_error(nested(257)) == "cluster.json:1:257: nested more than 256 levels deep");
  CHECK_THAT(syntax_error(nested(1'000'000)), EndsWith("nested more than 256 levels deep"));
}

TEST_CASE("brackets inside strings do not nest") {
  CHECK_NOTHROW(parse_json("\"\\\"" + std::string(1000, '[') + "\"", "f"));
}

TEST_CASE("a file that is not there, or is a folder, is an input error with its name") {
  const TempDir folder;
  const auto missing = folder.path() / "none.json";
  CHECK_THAT(message_of<InputError>([&] { (void)read_json(missing); }),
             StartsWith(missing.string() + ": cannot be read"));
  CHECK_THAT(message_of<InputError>([&] { (void)read_json(folder.path()); }),
             EndsWith("is a folder, not a file"));
}

TEST_CASE("a file is read with its name in the messages") {
  const TempDir folder;
  const auto file = folder.write("bad.json", "{\n!");
  CHECK_THAT(message_of<InputError>([&] { (void)read_json(file); }),
             StartsWith(file.string() + ":2:1: not JSON"));
}

TEST_CASE("what Python writes for numbers that JSON does not have is read as their names") {
  const std::string text = R"({"limit": [0.0, Infinity], "a": NaN, "b": -Infinity,
                               "NaN \\": "say \"Infinity\" -Infinity", "c": 1})";
  const Json document = parse_python_json(text, "f");
  CHECK(document["limit"][1] == "Infinity");
  CHECK(document["a"] == "NaN");
  CHECK(document["b"] == "-Infinity");
  CHECK(document["NaN \\"] == "say \"Infinity\" -Infinity");
  CHECK(message_of<InputError>([&] { (void)JsonView(document, "f").at("a").integer(0, 1); }) ==
        R"(f: a: "NaN" is not a whole number (0 to 1))");
  CHECK_THROWS_AS(parse_json(text, "f"), InputError);
  CHECK_THROWS_AS(parse_python_json(R"({"a": Infinit})", "f"), InputError);
  CHECK_THROWS_AS(parse_python_json(R"({"a\)", "f"), InputError);
}

TEST_CASE("a key that stands twice in an object is refused with its line") {
  CHECK(syntax_error("{\n  \"rate\": 1,\n  \"more\": {\"rate\": 2},\n  \"rate\": 3\n}") ==
        "cluster.json:4:8: key 'rate' stands twice in one object");
  CHECK(syntax_error(R"([{"a": 1, "\u0061": 2}])") ==
        "cluster.json:1:18: key 'a' stands twice in one object");
  CHECK_NOTHROW(parse_json(R"([{"a": 1}, {"a": 2}, {"b": {"a": 3}, "a": 4}])", "f"));
}

TEST_CASE("an object has a stated number of keys, the last of which is found as the first") {
  const auto object = [](std::size_t keys) {
    std::string text = "{\"first\": 0";
    for (std::size_t i = 1; i < keys; ++i) {
      text += fmt::format(", \"key{}\": {}", i, i);
    }
    return text + "}";
  };
  const Json most = parse_json(object(32'768), "f");
  CHECK(JsonView(most, "f").members().back().second.where() == "f: key32767");
  CHECK_THAT(syntax_error(object(200'000)), EndsWith("more than 32768 keys in one object"));
}

TEST_CASE("a document has a stated number of values") {
  std::string text = "[0";
  for (int i = 0; i < 4'000'000; ++i) {
    text += ",0";
  }
  CHECK_THAT(syntax_error(text + "]"), EndsWith("more than 4000000 values"));
  CHECK_NOTHROW(parse_json(text + "]", "f", {.values = 5'000'000}));
}

TEST_CASE("members of an object come in its order, with their keys") {
  const Json document = parse_json(R"({"links": {"b": 1, "a": 2}})", "f");
  const auto members = JsonView(document, "f").at("links").members();
  REQUIRE(members.size() == 2);
  CHECK(members[0].first == "b");
  CHECK(members[1].second.where() == "f: links.a");
  CHECK(error_in("[]", [](const JsonView& v) { (void)v.members(); }) ==
        "cluster.json: [] is not an object");
}

TEST_CASE("a document survives parsing as it is") {
  const std::string text =
      R"({"a":[1,-2,3.5,true,false,null,"\u00e9\n",[],{}],"b":{"c":18446744073709551615}})";
  CHECK(parse_json(text, "f") == Json::parse(text));
}

TEST_CASE("a number has a range where its reader says one") {
  CHECK(error_in("-1", [](const JsonView& v) { (void)v.number(0, 1); }) ==
        "cluster.json: -1 is out of range (0 to 1)");
  CHECK(JsonView(Json(0.5), "f").number(0, 1) == 0.5);
}

TEST_CASE("a fraction of less than a billionth is refused") {
  CHECK_THAT(error_in(R"({"value": 1e-300, "unit": "fraction", "source": "s"})",
                      [](const JsonView& v) { (void)read_fraction(v); }),
             ContainsSubstring("below 1e-09 it is a slip"));
}

TEST_CASE("a missing key names the object it should be in") {
  CHECK(error_in(R"({"intra": {}})", [](const JsonView& v) { (void)v.at("intra").at("rate"); }) ==
        "cluster.json: intra: key 'rate' is missing");
}

TEST_CASE("a wrong value names file, key path and value") {
  CHECK(error_in(R"({"links": [{"name": "a"}, {"name": 7}]})", [](const JsonView& v) {
          (void)v.at("links").elements().at(1).at("name").string();
        }) == "cluster.json: links[1].name: 7 is not a string");
}

TEST_CASE("an optional key is nothing when missing or null") {
  const Json document = parse_json(R"({"a": null, "b": 1})", "f");
  const JsonView view(document, "f");
  CHECK_FALSE(view.find("a").has_value());
  CHECK_FALSE(view.find("c").has_value());
  REQUIRE(view.find("b").has_value());
  CHECK(view.find("b")->number() == 1);
}

TEST_CASE("values of the wrong type are refused") {
  CHECK(error_in("[]", [](const JsonView& v) { (void)v.at("a"); }) ==
        "cluster.json: [] is not an object with key 'a'");
  CHECK(error_in("[]", [](const JsonView& v) { (void)v.find("a"); }) ==
        "cluster.json: [] is not an object");
  CHECK(error_in("{}", [](const JsonView& v) { (void)v.elements(); }) ==
        "cluster.json: {} is not an array");
  CHECK(error_in("1", [](const JsonView& v) { (void)v.boolean(); }) ==
        "cluster.json: 1 is not true or false");
  CHECK(error_in("\"8\"", [](const JsonView& v) { (void)v.number(); }) ==
        "cluster.json: \"8\" is not a number");
}

TEST_CASE("a long value is cut in the message") {
  const std::string text = "\"" + std::string(1000, 'x') + "\"";
  CHECK(error_in(text, [](const JsonView& v) { (void)v.number(); }).size() < 120);
}

TEST_CASE("a long value is not cut inside a character") {
  const std::string start = GENERATE("", "x", "xx");
  std::string text = "\"" + start;
  for (int i = 0; i < 100; ++i) {
    text += "…";  // three bytes
  }
  const std::string message = error_in(text + "\"", [](const JsonView& v) { (void)v.number(); });
  CHECK_NOTHROW(Json(message).dump());  // dump() throws on broken UTF-8
}

TEST_CASE("an unknown key suggests the known one") {
  CHECK(error_in(R"({"latencey": 1})", [](const JsonView& v) {
          v.allow_only({"latency", "rate"});
        }) == "cluster.json: unknown key 'latencey' (did you mean 'latency'?)");
}

TEST_CASE("whole numbers are exact and checked against their range") {
  const Json document = parse_json("[9223372036854775807, -3]", "f");
  const auto elements = JsonView(document, "f").elements();
  CHECK(elements[0].integer(0, INT64_MAX) == INT64_MAX);
  CHECK(elements[1].integer(-5, 5) == -3);

  const auto as_count = [](const JsonView& v) { (void)v.integer(1, 64); };
  CHECK(error_in("0", as_count) == "cluster.json: 0 is out of range (1 to 64)");
  CHECK(error_in("-1", as_count) == "cluster.json: -1 is out of range (1 to 64)");
  CHECK(error_in("9223372036854775808", as_count) ==
        "cluster.json: 9223372036854775808 is out of range (1 to 64)");  // 2^63
  CHECK(error_in("1.5", as_count) == "cluster.json: 1.5 is not a whole number (1 to 64)");
  CHECK(error_in("\"1\"", as_count) == "cluster.json: \"1\" is not a whole number (1 to 64)");
}

TEST_CASE("2^63 does not slip into a range that ends at 2^63 - 1") {
  CHECK_THAT(
      error_in("9223372036854775808", [](const JsonView& v) { (void)v.integer(0, INT64_MAX); }),
      ContainsSubstring("out of range"));
}

TEST_CASE("NaN cannot come in, not even from a document made in memory") {
  const Json document = std::numeric_limits<double>::quiet_NaN();
  CHECK_THAT(message_of<InputError>([&] { (void)JsonView(document, "f").number(); }),
             ContainsSubstring("is not a finite number"));
}

TEST_CASE("a sourced quantity carries value, source and spread") {
  const Json document =
      parse_json(R"({"value": 450, "unit": "GB/s", "source": "data sheet", "spread": 0.1})", "f");
  const Sourced<Bandwidth> rate = read_bandwidth(JsonView(document, "f"));
  CHECK(rate.value.value() == Catch::Approx(450e9));
  CHECK(rate.source == "data sheet");
  CHECK(rate.spread == 0.1);
}

TEST_CASE("a number without its unit is refused") {
  CHECK_THAT(
      error_in(R"({"rate": 450})", [](const JsonView& v) { (void)read_bandwidth(v.at("rate")); }),
      StartsWith("cluster.json: rate: 450 is a number without its unit"));
}

TEST_CASE("a quantity needs a source") {
  CHECK(error_in(R"({"value": 1, "unit": "us"})", [](const JsonView& v) {
          (void)read_seconds(v);
        }) == "cluster.json: key 'source' is missing");
}

TEST_CASE("a quantity refuses another kind's unit, with the key in the message") {
  CHECK_THAT(error_in(R"({"value": 80, "unit": "GB/s", "source": "s"})",
                      [](const JsonView& v) { (void)read_bytes(v); }),
             StartsWith("cluster.json: value: unknown unit 'GB/s'"));
}

TEST_CASE("a spread lies between 0 and 2") {
  CHECK_THAT(error_in(R"({"value": 1, "unit": "us", "source": "s", "spread": -0.1})",
                      [](const JsonView& v) { (void)read_seconds(v); }),
             ContainsSubstring("spread: -0.1 is not a relative spread"));
}

TEST_CASE("a fraction lies in (0, max]") {
  const auto fraction = [](const JsonView& v) { (void)read_fraction(v); };
  CHECK_THAT(error_in(R"({"value": 0, "unit": "fraction", "source": "s"})", fraction),
             ContainsSubstring("not in (0, 1]"));
  CHECK_THAT(error_in(R"({"value": 1.01, "unit": "fraction", "source": "s"})", fraction),
             ContainsSubstring("not in (0, 1]"));
  CHECK_THAT(error_in(R"({"value": 0.5, "unit": "percent", "source": "s"})", fraction),
             ContainsSubstring("'percent' is not 'fraction'"));
}

TEST_CASE("a count is a whole number from 1") {
  const auto count = [](const JsonView& v) { (void)read_count(v, 132); };
  CHECK_THAT(error_in(R"({"value": 0, "unit": "count", "source": "s"})", count),
             ContainsSubstring("from 1 to 132"));
  CHECK_THAT(error_in(R"({"value": 2.5, "unit": "count", "source": "s"})", count),
             ContainsSubstring("from 1 to 132"));
  CHECK_THAT(error_in(R"({"value": 133, "unit": "count", "source": "s"})", count),
             ContainsSubstring("from 1 to 132"));
}

TEST_CASE("a document says its format and a version we read") {
  const auto expect = [](const JsonView& v) { expect_format(v, "sp-plan/plan"); };
  CHECK(error_in(R"({"format": "sp-plan/trace", "format_version": "1.0"})", expect) ==
        "cluster.json: format: 'sp-plan/trace' is not 'sp-plan/plan'");
  CHECK_THAT(error_in(R"({"format": "sp-plan/plan", "format_version": "2.0"})", expect),
             StartsWith("cluster.json: format_version: version '2.0' is not understood"));
  const Json good = parse_json(R"({"format": "sp-plan/plan", "format_version": "1.3"})", "f");
  CHECK_NOTHROW(expect(JsonView(good, "f")));
}

TEST_CASE("a later minor version's document may have keys that are not known here") {
  const std::string members = R"("numbers": [{"one": 1, "new": 2}]})";
  const auto reads = [](const JsonView& v) {
    v.allow_only({"format_version", "numbers"});
    v.at("numbers").elements()[0].allow_only({"one"});
  };
  const Json later = parse_json(R"({"format_version": "1.1", "new": {}, )" + members, "f");
  CHECK(JsonView(later, "f").later());
  CHECK_NOTHROW(reads(JsonView(later, "f")));
  CHECK_THAT(error_in(R"({"format_version": "1.0", )" + members, reads),
             ContainsSubstring("numbers[0]: unknown key 'new'"));
}
