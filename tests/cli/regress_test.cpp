// sp-plan regress on small corpora: what is wrong is left out and said, the rest is scored.
#include "base/json.hpp"
#include "tests/cli/program.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <filesystem>

using Catch::Matchers::ContainsSubstring;
using spp::Json;
using spp::test::Result;
using spp::test::sp_plan;
using spp::test::TempDir;

namespace {

const std::string published = "usp-attn-8xl20-pcie";

/// A folder with one published file.
void add_published(const TempDir& folder) {
  const std::string file = published + ".json";
  std::filesystem::copy_file(spp::test::source_path("reports/corpus/" + file),
                             folder.path() / file);
}

Json published_file() {
  return spp::read_json(spp::test::source_path("reports/corpus/" + published + ".json"));
}

}  // namespace

TEST_CASE("a wrong file is left out, the others are scored") {
  const TempDir folder;
  add_published(folder);
  Json wrong = published_file();
  wrong["name"] = "wrong";
  wrong["points"][3]["ring"] = 3;
  (void)folder.write("wrong.json", wrong.dump());
  const Result r = sp_plan({"regress", "--corpus", folder.path().string(), "--json"});
  CHECK(r.code == 2);
  CHECK_THAT(r.err,
             ContainsSubstring((folder.path() / "wrong.json").string() + ": points[3]: ulysses"));
  const Json document = spp::parse_json(r.out, "stdout");
  REQUIRE(document["files"].size() == 1);
  CHECK(document["files"][0]["name"] == published);
  CHECK(document["refused"].size() == 1);
}

TEST_CASE("one line a point, in the point's metric") {
  const TempDir folder;
  add_published(folder);
  const std::string lines = (folder.path() / "predictions.jsonl").string();
  const Result r =
      sp_plan({"regress", "--corpus", folder.path().string(), "--predictions", lines, "--json"});
  CHECK(r.code == 0);
  const std::string text = spp::test::read_text(lines);
  CHECK(std::ranges::count(text, '\n') ==
        static_cast<std::ptrdiff_t>(published_file()["points"].size()));
  const Json first = spp::parse_json(text.substr(0, text.find('\n')), lines);
  CHECK(first["file"] == published);
  CHECK(first["index"] == 0);
  CHECK(first["reason"].is_null());
  CHECK(first["predicted"].get<double>() > 0);
}

TEST_CASE("a family of which there is no file is refused") {
  const TempDir folder;
  add_published(folder);
  const Result r = sp_plan({"regress", "--corpus", folder.path().string(), "--scope", "gemm"});
  CHECK(r.code == 2);
  CHECK_THAT(r.err, ContainsSubstring("--scope: no file asked for is of family 'gemm'"));
}

TEST_CASE("a gate that fails is exit code 4, and the result is printed all the same") {
  const TempDir folder;
  add_published(folder);
  const TempDir gates;
  const auto gate = gates.write(
      "gate.json",
      R"({"format": "sp-plan/gate", "format_version": "1.0", "accuracy": {"attention": {"mape": 0.0001}}})");
  const Result r =
      sp_plan({"regress", "--corpus", folder.path().string(), "--gate", gate.string(), "--json"});
  CHECK(r.code == 4);
  CHECK_THAT(r.err, ContainsSubstring("attention: mape is"));
  CHECK(spp::parse_json(r.out, "stdout")["gate"]["passed"] == false);
}

TEST_CASE("a gate that limits nothing of what is asked for has judged nothing, and says so") {
  const TempDir folder;
  add_published(folder);
  const TempDir gates;
  const auto gate = gates.write(
      "gate.json",
      R"({"format": "sp-plan/gate", "format_version": "1.0", "accuracy": {"attention": {"mape": 0.0001}}})");
  const Result r = sp_plan({"regress", "--corpus", folder.path().string(), "--file", published,
                            "--gate", gate.string(), "--json"});
  CHECK(r.code == 0);
  CHECK_THAT(r.err, ContainsSubstring("gate.json limits nothing of what was asked for"));
  CHECK(spp::parse_json(r.out, "stdout")["gate"]["passed"].is_null());
}
