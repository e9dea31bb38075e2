#include "regress/inference.hpp"

#include "base/file.hpp"
#include "regress/predict.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/regress/corpus_file.hpp"

using namespace spp;
using namespace spp::regress;
using Catch::Matchers::ContainsSubstring;

namespace {

/// One image of FLUX.1-dev on 8 x A100.
Json flux_corpus(const std::string& points) {
  Json document = test::example_corpus();
  document["stack"] = "xdit";
  document["workload"] = parse_json(R"({"scope": "model", "model": "FLUX.1-dev", "layers": 57,
      "hidden": 3072, "q_heads": 24, "kv_heads": 24, "head_dim": 128, "ffn": 12288, "batch": 1,
      "mask": "full", "dtype": "bf16", "phase": "inference", "call": "image",
      "blocks": "19 double + 38 single", "steps": 28})",
                                    "workload");
  document["points"] = parse_json(points, "points");
  return document;
}

Json prefill_corpus(const std::string& points) {
  Json document = test::example_corpus();
  document["machine"]["gpu"] = "h100-80g-sxm";
  document["machine"]["nodes"] = nullptr;
  document["stack"] = "unknown";
  document["workload"] = parse_json(R"({"scope": "model", "model": "llama3-405b", "layers": 126,
      "hidden": 16384, "q_heads": 128, "kv_heads": 8, "head_dim": 128, "ffn": 53248, "batch": 1,
      "mask": "causal", "dtype": "bf16", "phase": "inference"})",
                                    "workload");
  document["points"] = parse_json(points, "points");
  return document;
}

std::vector<PointPrediction> predicted(const Json& document) {
  const test::TempDir folder;
  const auto path = folder.path() / "example.json";
  write_file(path, document.dump());
  return Predictor(test::catalog()).predict(read_corpus_file(path));
}

}  // namespace

TEST_CASE("an image is its denoising steps and what is around them") {
  const auto said = predicted(flux_corpus(R"([
      {"seq": 4096, "world": 1, "ulysses": 1, "ring": 1, "metric": "time_s", "value": 12.8},
      {"seq": 4096, "world": 1, "ulysses": 1, "ring": 1, "metric": "time_s", "value": 0.45,
       "call": "step"},
      {"seq": 4096, "world": 1, "ulysses": 1, "ring": 1, "metric": "time_s", "value": 12.8,
       "steps": 56},
      {"seq": 4096, "world": 8, "ulysses": 8, "ring": 1, "metric": "time_s", "value": 4.1}])"));
  for (const PointPrediction& p : said) {
    REQUIRE(p.predicted);
  }
  const double around = *said[0].predicted - 28 * *said[1].predicted;
  CHECK(around > 0);
  CHECK(*said[2].predicted == Approx(56 * *said[1].predicted + around));
  CHECK(*said[3].predicted < *said[0].predicted);
}

TEST_CASE("compiled code is never slower than eager code") {
  const auto said = predicted(flux_corpus(R"([
      {"seq": 4096, "world": 4, "ulysses": 4, "ring": 1, "metric": "time_s", "value": 4,
       "variant": "eager"},
      {"seq": 4096, "world": 4, "ulysses": 4, "ring": 1, "metric": "time_s", "value": 2,
       "variant": "torch.compile"}])"));
  CHECK(*said[1].predicted < *said[0].predicted);
}

TEST_CASE(
    "guidance on two groups of GPUs is half of a batch of two, less what small batches cost") {
  Json document = flux_corpus(R"([
      {"seq": 17550, "world": 1, "ulysses": 1, "ring": 1, "metric": "time_s", "value": 2},
      {"seq": 17550, "world": 2, "ulysses": 1, "ring": 1, "cfg": 2, "metric": "time_s",
       "value": 1}])");
  Json& work = document["workload"];
  work.erase("blocks");
  work["model"] = "CogVideoX-2b";
  work["call"] = "step";
  const auto said = predicted(document);
  CHECK(*said[1].predicted < 0.6 * *said[0].predicted);
  CHECK(*said[1].predicted > 0.45 * *said[0].predicted);
}

TEST_CASE("what an inference is not modelled for is said") {
  const auto said = predicted(flux_corpus(R"([
      {"seq": 4096, "world": 8, "ulysses": 2, "ring": 1, "pipefusion": 4, "metric": "time_s",
       "value": 4},
      {"seq": 4096, "world": 2, "ulysses": 2, "ring": 1, "beyond": true, "metric": "time_s",
       "value": 4, "variant": "async ulysses"},
      {"seq": 4096, "world": 2, "ulysses": 2, "ring": 1, "metric": "tflops_per_gpu",
       "value": 100}])"));
  CHECK_THAT(said[0].reason, ContainsSubstring("PipeFusion"));
  CHECK_THAT(said[1].reason, ContainsSubstring("beyond"));
  CHECK_THAT(said[2].reason, ContainsSubstring("tflops_per_gpu of an inference"));
}

TEST_CASE(
    "a prefill behind cached keys is faster than the whole, and the better, the more is cached") {
  const auto said = predicted(prefill_corpus(R"([
      {"seq": 128000, "world": 16, "tp": 8, "ulysses": 1, "ring": 2, "layout": "zigzag",
       "metric": "time_s", "value": 21},
      {"seq": 128000, "world": 16, "tp": 8, "ulysses": 1, "ring": 2, "layout": "zigzag",
       "new_tokens": 64000, "metric": "time_s", "value": 12},
      {"seq": 128000, "world": 16, "tp": 8, "ulysses": 1, "ring": 2, "layout": "zigzag",
       "new_tokens": 6400, "kv": "pass-q", "metric": "time_s", "value": 2},
      {"seq": 128000, "world": 16, "tp": 8, "ulysses": 2, "ring": 1,
       "new_tokens": 6400, "metric": "time_s", "value": 2},
      {"seq": 1000, "world": 16, "tp": 8, "ulysses": 1, "ring": 2,
       "new_tokens": 6400, "metric": "time_s", "value": 2}])"));
  REQUIRE(said[0].predicted);
  REQUIRE(said[1].predicted);
  REQUIRE(said[2].predicted);
  REQUIRE(said[3].predicted);  // cached ones by heads
  CHECK(*said[1].predicted < *said[0].predicted);
  CHECK(*said[2].predicted < *said[1].predicted);
  CHECK(*said[3].predicted < *said[1].predicted);
  CHECK_THAT(said[4].reason, ContainsSubstring("6400 new tokens of 1000"));
}

TEST_CASE("a prefill goes through the stages of a pipeline one after the other") {
  const auto said = predicted(prefill_corpus(R"([
      {"seq": 8000, "world": 8, "tp": 8, "ulysses": 1, "ring": 1, "metric": "time_s", "value": 2},
      {"seq": 8000, "world": 16, "tp": 8, "pp": 2, "ulysses": 1, "ring": 1, "metric": "time_s",
       "value": 2},
      {"seq": 8000, "world": 8, "tp": 8, "ulysses": 1, "ring": 1, "metric": "time_s", "value": 2,
       "task": "decode"}])"));
  REQUIRE(said[1].predicted);
  CHECK(*said[1].predicted >= *said[0].predicted);
  CHECK(*said[1].predicted < 1.1 * *said[0].predicted);
  CHECK_THAT(said[2].reason, ContainsSubstring("decoding is not modelled"));
}

TEST_CASE("Wan's models that begin from an image hold more weights, and that image's encoder") {
  Json document = flux_corpus(R"([{"seq": 75600, "world": 8, "ulysses": 8, "ring": 1, "task": "T2V",
      "metric": "memory_bytes", "value": 3e10}])");
  document["workload"].update(Json{{"model", "Wan2.1 14B"},
                                   {"layers", 40},
                                   {"hidden", 5120},
                                   {"q_heads", 40},
                                   {"kv_heads", 40},
                                   {"ffn", 13824},
                                   {"call", "video"},
                                   {"zero", 3}});
  document["workload"].erase("blocks");
  const double text = *predicted(document)[0].predicted;
  document["points"][0]["task"] = "I2V";
  // An eighth of two matrices in each of 40 layers; 1.19 billion weights whole.
  const double more = 2 * (2.0 * 5120 * 5120 * 40 / 8 + 1.19e9);
  CHECK(*predicted(document)[0].predicted - text == Approx(more).epsilon(1e-6));
}
