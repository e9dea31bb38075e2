// Pages of every kind of document: well-formed, complete in themselves, readable without seeing
// the drawings; and documents that no page is made of.
#include "report/page.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/human.hpp"
#include "report/kind.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

#include <algorithm>
#include <cmath>
#include <pugixml.hpp>
#include <set>
#include <string>
#include <vector>

using namespace spp;
using namespace spp::report;
using Catch::Matchers::ContainsSubstring;
using spp::test::message_of;

namespace {

std::vector<Source> documents() {
  std::vector<Source> sources;
  for (const auto& file : files_in(test::source_path("tests/support/data/documents"), ".json")) {
    sources.push_back({.file = file.filename().string(), .document = read_json(file)});
  }
  return sources;
}

Source document(const std::string& name) {
  return {.file = name,
          .document = read_json(test::source_path("tests/support/data/documents/" + name))};
}

std::string page_of(const Source& source) { return page(std::vector<Source>{source}); }

pugi::xml_document parsed(const std::string& html) {
  pugi::xml_document xml;
  const pugi::xml_parse_result result =
      xml.load_buffer(html.data(), html.size(), pugi::parse_full & ~pugi::parse_doctype);
  INFO(result.description() << " at " << html.substr(static_cast<std::size_t>(result.offset), 120));
  REQUIRE(result.status == pugi::status_ok);
  return xml;
}

}  // namespace

TEST_CASE("there is a document of each kind to be tested with") {
  std::set<std::string> formats;
  for (const Source& source : documents()) {
    formats.insert(source.document.contains("format") ? source.document["format"].get<std::string>()
                                                      : "sp-plan/");
  }
  for (const Kind* kind : kinds::all()) {
    CHECK(formats.contains(fmt::format("sp-plan/{}", kind->format)));
  }
}

TEST_CASE("the page of each kind is well-formed, has no script and fetches nothing") {
  for (const Source& source : documents()) {
    INFO(source.file);
    const std::string html = page_of(source);
    const pugi::xml_document xml = parsed(html);
    CHECK(std::string(xml.document_element().name()) == "html");
    CHECK(xml.select_nodes("//script").empty());
    CHECK(xml.select_nodes("//@src").empty());
    CHECK(xml.select_nodes("//@*[starts-with(name(), 'on')]").empty());
    for (const pugi::xpath_node& link : xml.select_nodes("//@href")) {
      const std::string target = link.attribute().value();
      CHECK((target.starts_with("#") || target == "data:,"));
    }
    CHECK(html.size() < 200'000);
  }
}

TEST_CASE("each drawing has a title and a description, each figure its numbers") {
  for (const Source& source : documents()) {
    INFO(source.file);
    const pugi::xml_document xml = parsed(page_of(source));
    for (const pugi::xpath_node& node : xml.select_nodes("//svg[@role='img']")) {
      CHECK_FALSE(std::string(node.node().child("title").text().get()).empty());
      CHECK_FALSE(std::string(node.node().child("desc").text().get()).empty());
    }
    for (const pugi::xpath_node& node : xml.select_nodes("//figure")) {
      CHECK_FALSE(std::string(node.node().child("figcaption").text().get()).empty());
      CHECK_FALSE(node.node().select_nodes("details//table").empty());
    }
    // What is no picture of its own is hidden from who does not see it.
    CHECK(
        xml.select_nodes("//svg[not(@role) and not(@aria-hidden) and not(ancestor::svg)]").empty());
  }
}

TEST_CASE("names in a page are unique") {
  const std::vector<Source> all = documents();
  const pugi::xml_document xml = parsed(page(all));
  std::set<std::string> seen;
  for (const pugi::xpath_node& id : xml.select_nodes("//@id")) {
    CHECK(seen.insert(id.attribute().value()).second);
  }
  for (const pugi::xpath_node& link : xml.select_nodes("//a/@href")) {
    CHECK(seen.contains(std::string(link.attribute().value()).substr(1)));
  }
  CHECK(xml.select_nodes("//section").size() == all.size());
  CHECK(xml.select_nodes("//nav//li").size() == all.size());
}

TEST_CASE("the same documents make the same page") {
  CHECK(page(documents()) == page(documents()));
}

TEST_CASE("a name is text, whatever is in it") {
  Source plan = document("plan.json");
  plan.document["request"]["model"] = "<script>alert(1)</script>";
  plan.document["candidates"][0]["why"] = "faster & \"<img src=x onerror=alert(1)>\"";
  plan.document["assumptions"][0]["value"] = "]]><svg onload='x'>";
  const pugi::xml_document xml = parsed(page_of(plan));
  CHECK(xml.select_nodes("//script | //img | //@onload | //@onerror").empty());
  CHECK_THAT(std::string(xml.child("html").child("head").child("title").text().get()),
             ContainsSubstring("<script>alert(1)</script>"));
}

TEST_CASE("a plan's page says what is recommended, why, and what was assumed") {
  const Source plan = document("plan.json");
  const std::string html = page_of(plan);
  CHECK_THAT(html, ContainsSubstring("Recommended"));
  CHECK_THAT(html, ContainsSubstring("U8×R2"));
  CHECK_THAT(html, ContainsSubstring("What was assumed"));
  CHECK_THAT(html, ContainsSubstring("attention kernels"));
}

TEST_CASE("a plan's cluster is drawn with a line and a row of numbers for what each axis sends") {
  const Source plan = document("training.json");
  const pugi::xml_document xml = parsed(page_of(plan));
  const pugi::xml_node figure =
      xml.select_node("//figure[starts-with(figcaption, 'The machine, and where')]").node();
  REQUIRE(figure);
  const auto bytes = [](const Json& n) { return human(Bytes(std::llround(n.get<double>()))); };
  const Json& traffic = plan.document["traffic"];
  std::set<std::string> rows;
  for (const pugi::xpath_node& row : figure.select_nodes(".//tbody/tr")) {
    std::string text;
    for (const pugi::xml_node& cell : row.node().children("td")) {
      text += std::string(cell.text().get()) + "|";
    }
    rows.insert(text);
  }
  std::size_t dots = 0;
  for (const Json& axis : traffic["axes"]) {
    std::int64_t sent = 0;
    for (const Json& n : axis["bytes_per_rank"]) {
      sent += n.get<std::int64_t>();
    }
    const auto name = axis["axis"].get<std::string>();
    const std::string all = human(Bytes(sent));
    const std::string label = fmt::format("{} {}: {}, {}", name, axis["size"].get<int>(),
                                          axis["reach"].get<std::string>(), all);
    INFO(label);
    CHECK(figure.select_node(fmt::format(".//text[. = '{}']", label).c_str()));
    for (const Json& link : axis["links"]) {
      CHECK(std::ranges::any_of(rows, [&](const std::string& row) {
        return row.starts_with(name + "|") && row.find(all + "|") != std::string::npos &&
               row.find("|" + bytes(link["bytes"]) + "|") != std::string::npos;
      }));
    }
    std::set<int> nodes;
    for (const Json& gpu : axis["first_group"]) {
      dots += gpu.get<int>() < 8 ? 1 : 0;
      nodes.insert(gpu.get<int>() / 8);
    }
    dots += nodes.size() > 1 ? nodes.size() : 0;
  }
  CHECK(figure.select_nodes(".//circle").size() == dots);
  CHECK_THAT(std::string(figure.select_node("p[@class='under']").node().text().get()),
             ContainsSubstring("Most loaded: " + traffic["links"][0]["name"].get<std::string>()));
}

TEST_CASE("a plan of a version that did not tell its traffic has a page") {
  Source plan = document("training.json");
  plan.document.erase("traffic");
  CHECK_THAT(page_of(plan), !ContainsSubstring("The machine, and where"));
}

TEST_CASE("what is no document of ours is refused with file and key") {
  const auto refusal = [](Json document) {
    return message_of<InputError>([&] { (void)page_of({.file = "x.json", .document = document}); });
  };
  CHECK(refusal(Json::array()) ==
        "x.json: is not a document of sp-plan (a JSON object with a \"format\")");
  CHECK(refusal({{"a", 1}}) ==
        "x.json: is neither a document of sp-plan (it has no \"format\") nor a trace");
  CHECK_THAT(refusal({{"format", "sp-plan/model-list"}, {"format_version", "1.0"}}),
             ContainsSubstring("x.json: format: no report is made of 'sp-plan/model-list'"));
  CHECK_THAT(refusal({{"format", "sp-plan/plna"}, {"format_version", "1.0"}}),
             ContainsSubstring("did you mean 'sp-plan/plan'?"));
  Json plan = document("plan.json").document;
  plan["format_version"] = "2.0";
  CHECK(refusal(plan) ==
        "x.json: format_version: version '2.0' is not understood (this program reads 1.x)");
  plan["format_version"] = "1.7";
  plan["candidates"][1]["predicted"]["step_s"] = "soon";
  CHECK_THAT(refusal(plan), ContainsSubstring("x.json: candidates[1].predicted.step_s"));
  CHECK_THAT(refusal({{"traceEvents", {{{"ph", "X"}, {"pid", 0}, {"tid", 0}, {"ts", 1}}}}}),
             ContainsSubstring("x.json: traceEvents: event 1 has no 'dur'"));
}

TEST_CASE("a machine is drawn as a file of SVG, complete in itself") {
  const std::string svg = picture(document("topology.json"));
  const pugi::xml_document xml = parsed(svg);
  CHECK(std::string(xml.document_element().name()) == "svg");
  CHECK(xml.document_element().attribute("xmlns").value() ==
        std::string("http://www.w3.org/2000/svg"));
  CHECK_FALSE(xml.select_nodes("/svg/title").empty());
  CHECK_FALSE(xml.select_nodes("/svg/style").empty());
  CHECK(xml.select_nodes("//@src | //@href | //script").empty());
  CHECK_THAT(svg, ContainsSubstring("oversubscribed"));
}

TEST_CASE("of other documents there is no picture") {
  CHECK_THAT(message_of<InputError>([] { (void)picture(document("plan.json")); }),
             ContainsSubstring("plan.json") && ContainsSubstring("no picture"));
}

TEST_CASE("a regression's page has its gate, what was left out, and every file") {
  Source source = document("regression.json");
  CHECK_THAT(page_of(source), !ContainsSubstring("class=\"verdict"));
  Json memory = source.document["files"][0];
  memory.update(Json{{"name", "memory-alone"},
                     {"median_error", nullptr},
                     {"missing", 3},
                     {"memory_error", 0.123}});
  source.document["files"].insert(source.document["files"].begin(), memory);
  source.document["refused"] = {"other.json: points[3]: key 'seq' is missing"};
  source.document["gate"] = {{"passed", false}, {"failures", {"gemm: mape is 10.00 %"}}};
  const std::string failed = page_of(source);
  CHECK_THAT(failed, ContainsSubstring("<strong>Failed</strong>") &&
                         ContainsSubstring("<li>gemm: mape is 10.00 %</li>"));
  CHECK_THAT(failed, ContainsSubstring("<li>other.json: points[3]: key"));
  const pugi::xml_document xml = parsed(failed);
  const pugi::xml_node row = xml.select_node("//tr[td[. = 'memory-alone']]").node();
  REQUIRE(row);
  CHECK(row.select_node("td[. = '3']"));
  CHECK(row.select_node("td[starts-with(., '12.3')]"));
  source.document["gate"] = {{"passed", true}, {"failures", Json::array()}};
  CHECK_THAT(page_of(source), ContainsSubstring("<strong>Passed</strong>"));
  source.document["gate"]["passed"] = nullptr;
  CHECK_THAT(page_of(source), ContainsSubstring("<strong>Not judged</strong>"));
}

TEST_CASE("what is too much to draw is cut, and the page says so") {
  Source comparison = document("comparison.json");
  for (int i = 0; i < 60; ++i) {
    comparison.document["seconds"].push_back(
        {{"name", fmt::format("q{}", i)}, {"a_s", 1.0}, {"b_s", 2.0}, {"change", -0.5}});
  }
  CHECK_THAT(page_of(comparison),
             ContainsSubstring(fmt::format("20 of {} quantities are drawn",
                                           comparison.document["seconds"].size())));

  Json events = Json::array();
  for (int lane = 0; lane < 20; ++lane) {
    events.push_back(
        {{"ph", "X"}, {"pid", 0}, {"tid", lane}, {"ts", 0}, {"dur", 1}, {"name", "attention"}});
  }
  const Source trace{.file = "x.json", .document = {{"traceEvents", events}}};
  CHECK_THAT(page_of(trace), ContainsSubstring("16 of 20 lanes of these are drawn"));

  Source profile = document("profile.json");
  for (int i = 0; i < 20; ++i) {
    profile.document["samples"].push_back({{"suite", fmt::format("s{:02}", i)},
                                           {"scope", "intra"},
                                           {"what", "send"},
                                           {"bytes", 1024},
                                           {"ranks", 2},
                                           {"seconds", {1e-6, 2e-6}}});
  }
  CHECK_THAT(page_of(profile), ContainsSubstring("kinds of measured messages are drawn"));
}

TEST_CASE("a regression of which no file could be read has a page") {
  Source source = document("regression.json");
  source.document.erase("overall");
  source.document["files"] = Json::array();
  source.document["scopes"] = Json::object();
  CHECK_NOTHROW(parsed(page_of(source)));
}
