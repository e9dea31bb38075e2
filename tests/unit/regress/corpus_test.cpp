#include "regress/corpus.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "regress/point_metric.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/regress/corpus_file.hpp"

#include <functional>

using namespace spp;
using namespace spp::regress;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

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

TEST_CASE("the schema of regress lists every family") {
  const Json schema = read_json(test::source_path("docs/schema/regression.schema.json"));
  const Json& listed = schema["$defs"]["family"]["enum"];
  CHECK(listed.get<std::vector<std::string>>() ==
        std::vector<std::string>(families.begin(), families.end()));
}

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
  CHECK_THAT(complaint([](Json& d) { d["points"][0]["oom"] = true; }),
             ContainsSubstring("points[0]: both 'value' and 'oom'"));
  CHECK_THAT(complaint([](Json& d) { d["points"][0].erase("seq"); }),
             ContainsSubstring("points[0]: key 'seq' is missing"));
  CHECK_THAT(complaint([](Json& d) { d["points"][1]["team"] = 3; }),
             ContainsSubstring("team 3 squared does not divide ring 8"));
  CHECK_THAT(complaint([](Json& d) { d["workload"]["kv_heads"] = 5; }),
             ContainsSubstring("32 query heads are no multiple of 5 KV heads"));
  CHECK_THAT(complaint([](Json& d) { d["points"] = Json::array(); }),
             EndsWith("/example.json: points: is empty: a file of measurements has one at least"));
  CHECK_THAT(complaint([](Json& d) { d["machine"]["intra"]["per_gpu_GBps"] = 1e300; }),
             ContainsSubstring("machine.intra.per_gpu_GBps: 1e+300 GB/s is out of range"));
  CHECK_THAT(complaint([](Json& d) { d["machine"]["gpus"] = 8; }), ContainsSubstring("machine"));
  CHECK_THAT(complaint([](Json& d) { d["name"] = "other"; }),
             ContainsSubstring("'other' is not the file's name"));
  CHECK_THAT(complaint([](Json& d) { d["format_version"] = "2.0"; }),
             ContainsSubstring("format_version"));
}

TEST_CASE("values of known keys are known, too") {
  const auto refused = [](const char* key, const Json& value) {
    return complaint([&](Json& d) { d["points"][0][key] = value; });
  };
  for (const char* word : {"Full", "ful", "no", "off", "2"}) {
    INFO(word);
    CHECK_THAT(refused("recompute", word), ContainsSubstring("points[0].recompute: unknown '"));
    CHECK_THAT(refused("ac", word), ContainsSubstring("points[0].ac: unknown '"));
  }
  CHECK_THAT(refused("phase", "train"), ContainsSubstring("points[0].phase: unknown 'train'; it is "
                                                          "one of fwd, bwd, fwd+bwd"));
  CHECK_THAT(refused("phase", "inference"), ContainsSubstring("points[0].phase"));
  CHECK_THAT(refused("flops_convention", "causal_halved"), ContainsSubstring("flops_convention"));
  CHECK_THAT(refused("dtype", "fp61"), ContainsSubstring("unknown number format 'fp61'"));
  CHECK_THAT(refused("dtype", "bf16, fp9 ffn"), ContainsSubstring("unknown number format 'fp9'"));
  CHECK_THAT(refused("dtype", "exact"), ContainsSubstring("'exact' names no number format"));
  for (const Json& number : {Json(-0.5), Json(1.5)}) {
    CHECK_THAT(refused("noise", number), ContainsSubstring("points[0].noise"));
    CHECK_THAT(refused("offload", number), ContainsSubstring("points[0].offload"));
  }
  for (const Json& word : {Json("full"), Json("cpu"), Json(true)}) {
    CHECK_THAT(refused("offload", word), ContainsSubstring("points[0].offload"));
  }
}

TEST_CASE("a metric is one that the model has of what was measured") {
  const auto why = [](Scope scope, std::string op, Metric metric) {
    Point p;
    p.scope = scope;
    p.op = std::move(op);
    p.metric = metric;
    return why_no_metric(p);
  };
  CHECK(why(Scope::kernel, "gemm", Metric::tflops_per_gpu).empty());
  CHECK(why(Scope::kernel, "gemm", Metric::tokens_per_s) ==
        "tokens_per_s of gemm is not predicted; time_s, tflops_per_gpu is");
  for (const char* op : {"moe", "gdn_chunk", "mla_context"}) {
    CHECK(why(Scope::kernel, op, Metric::time).empty());
    CHECK_THAT(why(Scope::kernel, op, Metric::tflops_per_gpu), ContainsSubstring("not predicted"));
  }
  for (const char* op : {"all_gather", "all_reduce", "reduce_scatter", "all_to_all", "p2p"}) {
    CHECK(why(Scope::collective, op, Metric::busbw).empty());
    CHECK_THAT(why(Scope::collective, op, Metric::tflops_per_gpu),
               ContainsSubstring("of collective is not predicted; time_s, busbw_GBps is"));
  }
  CHECK_THAT(why(Scope::collective, "ep_dispatch", Metric::busbw), ContainsSubstring("time_s is"));
  for (const Scope scope : {Scope::attention, Scope::model, Scope::memory}) {
    CHECK_THAT(why(scope, "", Metric::busbw), ContainsSubstring("busbw_GBps of"));
  }
}

TEST_CASE("operations are of kernels and collectives") {
  CHECK_THAT(complaint([](Json& d) {
               d["workload"]["scope"] = "model";
               d["points"][0]["op"] = "all_gather";
             }),
             ContainsSubstring("points[0].op: is said of kernels and collectives"));
}

TEST_CASE("degrees whose product no world has are refused, in suspect points, too") {
  const auto refused = [](const char* suspect) {
    return complaint([&](Json& d) {
      d["workload"]["scope"] = "model";
      d["points"][0].update(Json{{"tp", 65536}, {"pp", 65536}, {"dp", 65536}, {"cfg", 65536}});
      d["points"][0]["suspect"] = suspect;
    });
  };
  CHECK_THAT(refused(""), ContainsSubstring("points[0]: the product of its degrees is above"));
  CHECK_THAT(refused("a slip"), ContainsSubstring("the product of its degrees is above 1048576"));
}

TEST_CASE("the year and the trust of a source are read or refused") {
  CHECK(read(test::example_corpus()).points[0].year == 2024);
  CHECK(complaint([](Json& d) { d["source"]["year"] = nullptr; }).empty());
  for (const Json& year : {Json("2024"), Json(2024.0), Json(3000002020), Json(24)}) {
    CHECK_THAT(complaint([&](Json& d) { d["source"]["year"] = year; }),
               ContainsSubstring("example.json: source.year"));
  }
  CHECK_THAT(complaint([](Json& d) { d["trust"] = "hgih"; }),
             ContainsSubstring("trust: unknown 'hgih'; it is one of log, table, chart, secondary"));
}

TEST_CASE("an offload is named or a part of the activations") {
  const auto offload = [](const Json& value) {
    Json document = test::example_corpus();
    document["points"][0]["offload"] = value;
    const Point p = read(document).points[0];
    return std::pair(p.offload, p.offloaded);
  };
  CHECK(offload(0) == std::pair(std::optional(Offload::none), 0.0));
  CHECK(offload(0.25) == std::pair(std::optional(Offload::activations), 0.25));
  CHECK(offload(1) == std::pair(std::optional(Offload::activations), 1.0));
  CHECK(offload(1.0) == offload(1));
  CHECK(offload("all") == std::pair(std::optional(Offload::all), 1.0));
  CHECK(offload("optimizer").first == Offload::optimizer);
  CHECK_FALSE(offload(nullptr).first);
}

TEST_CASE("formats have one name each, and a point's goes before its file's") {
  const auto format = [](const Json& keys) {
    Json document = test::example_corpus();
    document["points"][0].update(keys);
    return read(document).points[0].dtype;
  };
  CHECK(format(Json::object()) == "bf16");
  CHECK(format({{"dtype", "half"}}) == "fp16");
  CHECK(format({{"precision", "FP8-CS"}}) == "fp8");
  CHECK(format({{"precision", "FP8-MX"}}) == "mxfp8");
  CHECK(format({{"dtype", "fp16"}, {"precision", "FP8"}}) == "fp16");
  CHECK(format({{"dtype", "bf16 attention, fp8 ffn"}}) == "bf16 attention, fp8 ffn");
  CHECK(format({{"dtype", "fp8_block"}}) == "fp8_block");
}

TEST_CASE("the source's own words do not matter") {
  CHECK(complaint([](Json& d) { d["points"][0]["driver"] = "550.54"; }).empty());
  CHECK(complaint([](Json& d) { d["machine"]["host"] = {{"cpus", 2}}; }).empty());
  CHECK(complaint([](Json& d) { d["licence"] = "CC0"; }).empty());
  CHECK(complaint([](Json& d) { d["points"][0]["mfu_printed"] = 0.5; }).empty());
}

TEST_CASE("numbers that nobody knows are told of") {
  Json document = test::example_corpus();
  document["points"][0]["driver"] = 550.54;
  document["points"][1]["driver"] = 550.54;
  document["points"][1]["mfu_printed"] = 0.5;
  CHECK(read(document).unread == std::vector<std::string>{"driver"});
  CHECK(read(test::example_corpus()).unread.empty());
}

TEST_CASE("a training step keeps its degrees and what its layers are") {
  Json document = test::example_corpus();
  document["workload"]["scope"] = "model";
  document["points"] = Json::array({parse_json(R"({
    "seq": 4096, "world": 64, "tp": 2, "pp": 4, "vp": 2, "cp": 2, "dp": 4, "ep": 8, "etp": 1,
    "zero": 1, "zero_group": 4, "schedule": "interleaved-1f1b", "offload": 0.5,
    "ac": "selective-op", "precision": "MXFP8", "tp_sequence_parallel": false, "grad_accum": 16,
    "gated": true, "mlp": "swiglu", "tied_embeddings": false, "experts": 64, "experts_per_token": 6,
    "shared_experts": 0, "dense_layers": 1, "moe_ffn": 1408, "shared_expert_ffn": 2816,
    "mla": {"kv_lora_rank": 512, "qk_rope_head_dim": 64}, "v_head_dim": 128, "phase": "train",
    "metric": "time_s", "value": 2})",
                                               "point")});
  const Point p = read(document).points.at(0);
  CHECK(p.vp == 2);
  CHECK(p.ep == 8);
  CHECK(p.etp == 1);
  CHECK(p.grad_accum == 16);
  CHECK(p.zero_group == 4);
  CHECK(p.schedule == "interleaved-1f1b");
  CHECK(p.offload == Offload::activations);
  CHECK(p.offloaded == 0.5);
  CHECK(p.ac == "selective-op");
  CHECK(p.dtype == "mxfp8");
  CHECK(p.tp_sequence_parallel == false);
  CHECK(p.gated == true);
  CHECK(p.tied_embeddings == false);
  CHECK(p.experts == 64);
  CHECK(p.experts_per_token == 6);
  CHECK(p.shared_experts == 0);
  CHECK(p.dense_layers == 1);
  CHECK(p.moe_ffn == 1408);
  CHECK(p.shared_expert_ffn == 2816);
  CHECK_FALSE(p.q_lora_rank);
  CHECK(p.kv_lora_rank == 512);
  CHECK(p.qk_rope_head_dim == 64);
  CHECK(p.v_head_dim == 128);

  const auto spoilt = [&](const char* key, const Json& value) {
    return complaint([&](Json& d) {
      d = document;
      d["points"][0][key] = value;
    });
  };
  CHECK_THAT(spoilt("cp", 4), ContainsSubstring("cp 4 x tp 2 x dp 4 x pp 4 x cfg 1 x pipefusion 1 "
                                                "is 128, but world is 64"));
  CHECK_THAT(spoilt("ep", 7), ContainsSubstring("ep 7 does not divide world 64"));
  CHECK_THAT(spoilt("experts", 4), ContainsSubstring("6 experts for a token, but there are 4"));
  CHECK_THAT(spoilt("expert", 64), ContainsSubstring("did you mean 'experts'?"));
  document["points"][0].erase("dp");
  CHECK(read(document).points.at(0).dp == 4);
  document["points"][0]["suspect"] = "a typing error of the source";
  document["points"][0]["cp"] = 5;
  CHECK(read(document).points.at(0).cp == 5);
}

TEST_CASE("kernels have their own shapes and families") {
  Json document = test::example_corpus();
  document["workload"] = {{"scope", "kernel"}};
  document["points"] = Json::array({parse_json(
      R"({"op": "gemm", "m": 512, "n": 1024, "k": 2048, "metric": "time_s", "value": 1e-5})",
      "point")});
  const CorpusFile gemm = read(document);
  CHECK(gemm.points[0].m == 512);
  CHECK(gemm.points[0].n == 1024);
  CHECK(gemm.points[0].k == 2048);
  CHECK(gemm.points[0].world == 1);
  CHECK(family_of(gemm) == "gemm");
  CHECK_THAT(complaint([&](Json& d) {
               d = document;
               d["points"][0].erase("k");
             }),
             ContainsSubstring("points[0]: key 'k' is missing"));
  CHECK_THAT(complaint([&](Json& d) {
               d = document;
               d["points"][0]["op"] = "gem";
             }),
             ContainsSubstring("unknown 'gem' (did you mean 'gemm'?)"));
  CHECK(complaint([&](Json& d) {
          d = document;
          d["points"][0]["op"] = "sparse_indexer";
        }).empty());

  document["points"] = Json::array({parse_json(
      R"({"op": "moe", "tokens": 512, "hidden": 4096, "moe_ffn": 14336, "experts": 8, "tp": 2,
          "experts_per_token": 2, "ep": 4, "distribution": "balanced", "metric": "time_s",
          "value": 1e-3})",
      "point")});
  const CorpusFile moe = read(document);
  CHECK(moe.points[0].tokens == 512);
  CHECK(moe.points[0].tp == 2);
  CHECK(moe.points[0].distribution == "balanced");
  CHECK(family_of(moe) == "moe");
  CHECK(family_of(read(test::example_corpus())) == "attention");
  CHECK(parse_family("moe", "--scope") == "moe");
  CHECK_THROWS_AS(parse_family("moo", "--scope"), InputError);
}

TEST_CASE("the whole corpus can be read") {
  std::size_t points = 0;
  for (const auto& file : corpus_files(test::source_path("reports/corpus"))) {
    points += read_corpus_file(file).points.size();
  }
  CHECK(points == 14877);
}
