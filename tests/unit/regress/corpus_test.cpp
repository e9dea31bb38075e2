#include "regress/corpus.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/regress/corpus_file.hpp"

#include <functional>

using namespace spp;
using namespace spp::regress;
using Catch::Matchers::ContainsSubstring;

namespace {

CorpusFile read(const Json& document) {
  const test::TempDir folder;
  const auto file = folder.path() / "example.json";
  write_file(file, document.dump());
  return read_corpus_file(file);
}

std::string complaint(const std::function<void(Json&)>& spoil) {
  Json document = test::example_corpus();
  spoil(document);
  try {
    read(document);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a point overrides its file's workload") {
  const CorpusFile file = read(test::example_corpus());
  REQUIRE(file.points.size() == 3);
  CHECK(file.points[0].phase == "fwd");
  CHECK(file.points[0].noise == 0.03);
  CHECK(file.points[0].mask == PointMask::causal);
  CHECK(file.points[1].layout == Layout::zigzag);
  CHECK(file.points[2].phase == "fwd+bwd");
  CHECK(file.points[2].noise == 0.1);
  CHECK(file.points[2].mask == PointMask::varlen_causal);
  CHECK(file.points[2].metric == Metric::tflops_per_gpu);
  CHECK(file.points[2].machine.gpu == "a100-80g-sxm");
}

TEST_CASE("what is wrong with a corpus file is said with file and point") {
  CHECK_THAT(complaint([](Json& d) { d["points"][1]["ulyses"] = 2; }),
             ContainsSubstring("example.json: points[1]: unknown key 'ulyses' (did you mean "
                               "'ulysses'?)"));
  CHECK_THAT(complaint([](Json& d) { d["points"][1]["ring"] = 4; }),
             ContainsSubstring("points[1]: ulysses 1 x ring 4 x tp 1 x dp 1 x pp 1 x cfg 1 x "
                               "pipefusion 1 is 4, but world is 8"));
  CHECK_THAT(complaint([](Json& d) { d["points"][0]["metric"] = "time_ms"; }),
             ContainsSubstring("points[0].metric: unknown 'time_ms' (did you mean 'time_s'?)"));
  CHECK_THAT(complaint([](Json& d) { d["points"][0]["value"] = -1; }),
             ContainsSubstring("points[0].value: -1 is no measurement"));
  CHECK_THAT(complaint([](Json& d) { d["points"][0].erase("value"); }),
             ContainsSubstring("points[0]: neither 'value' nor 'oom'"));
  CHECK_THAT(complaint([](Json& d) { d["points"][0].erase("seq"); }),
             ContainsSubstring("points[0]: key 'seq' is missing"));
  CHECK_THAT(complaint([](Json& d) { d["points"][1]["team"] = 3; }),
             ContainsSubstring("team 3 squared does not divide ring 8"));
  CHECK_THAT(complaint([](Json& d) { d["workload"]["kv_heads"] = 5; }),
             ContainsSubstring("32 query heads are no multiple of 5 KV heads"));
  CHECK(complaint([](Json& d) { d["points"] = Json::array(); }) ==
        "example.json: points: is empty: a file of measurements has one at least");
  CHECK_THAT(complaint([](Json& d) { d["machine"]["intra"]["per_gpu_GBps"] = 1e300; }),
             ContainsSubstring("machine.intra.per_gpu_GBps: 1e+300 GB/s is out of range"));
  CHECK_THAT(complaint([](Json& d) { d["machine"]["gpus"] = 8; }), ContainsSubstring("machine"));
  CHECK_THAT(complaint([](Json& d) { d["name"] = "other"; }),
             ContainsSubstring("'other' is not the file's name"));
  CHECK_THAT(complaint([](Json& d) { d["format_version"] = "2.0"; }),
             ContainsSubstring("format_version"));
}

TEST_CASE("the source's own words do not matter") {
  CHECK(complaint([](Json& d) { d["points"][0]["driver"] = "550.54"; }).empty());
  CHECK(complaint([](Json& d) { d["machine"]["host"] = {{"cpus", 2}}; }).empty());
  CHECK(complaint([](Json& d) { d["licence"] = "CC0"; }).empty());
  CHECK_THAT(complaint([](Json& d) { d["points"][0]["driver"] = 550.54; }),
             ContainsSubstring("points[0]: unknown key 'driver'"));
}

TEST_CASE("the whole corpus can be read") {
  std::size_t points = 0;
  for (const auto& file : corpus_files(test::source_path("reports/corpus"))) {
    points += read_corpus_file(file).points.size();
  }
  CHECK(points == 4732);
}
