// Mirrors one header, hence one file.
#include "regress/predict.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/regress/corpus_file.hpp"

using namespace spp;
using namespace spp::regress;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

namespace {

Predictor predictor() { return Predictor(test::catalog()); }

std::vector<PointPrediction> predict(const Json& document) {
  const test::TempDir folder;
  const auto path = folder.path() / "example.json";
  write_file(path, document.dump());
  return predictor().predict(read_corpus_file(path));
}

}  // namespace

TEST_CASE("every point gets a prediction or a reason") {
  const auto said = predict(test::example_corpus());
  REQUIRE(said.size() == 3);
  for (const PointPrediction& p : said) {
    REQUIRE(p.predicted);
    CHECK(*p.low < *p.predicted);
    CHECK(*p.predicted < *p.high);
    CHECK(p.reason.empty());
    CHECK_FALSE(p.oom);
  }
  // Nobody says how long the third point's documents are.
  CHECK(*said[2].high / *said[2].low > *said[0].high / *said[0].low);
}

TEST_CASE("a prediction is in its point's metric") {
  Json document = test::example_corpus();
  document["points"].erase(1);
  document["points"][1] = document["points"][0];
  document["points"][1]["metric"] = "tflops_per_gpu";
  document["points"][1]["choice"] = nullptr;
  const auto said = predict(document);
  // forward, causal: 2 * heads * head_dim * seq^2 on 8 GPUs
  const double flops = 2.0 * 32 * 128 * 32768 * 32768;
  CHECK(*said[1].predicted == Approx(flops / *said[0].predicted / 8 / 1e12));
  CHECK(*said[1].low < *said[1].high);
}

TEST_CASE("unknown GPUs, links and stacks name file and point") {
  Json document = test::example_corpus();
  document["machine"]["gpu"] = "a10-80g";
  CHECK_THROWS_WITH(predict(document), ContainsSubstring("example.json: points[0]: gpu: unknown"));
  document = test::example_corpus();
  document["stack"] = "yunchan";
  CHECK_THROWS_WITH(predict(document), ContainsSubstring("did you mean 'yunchang'?"));
  document = test::example_corpus();
  document["points"][1]["nodes"] = 1;
  document["machine"]["gpus_per_node"] = 4;
  CHECK_THROWS_WITH(predict(document), ContainsSubstring("world 8 is more than 1 nodes of 4 GPUs"));
}

TEST_CASE("what a machine block leaves open is filled in and listed") {
  CorpusMachine machine{.gpu = "h800", .gpus_per_node = 8, .nodes = 2};
  const Catalog& catalog = test::catalog();
  const auto usual = compose(machine, 16, catalog, "test");
  CHECK(usual.nodes == 2);
  CHECK(usual.machine.inter->rate_per_nic.value == Bandwidth(50e9));
  CHECK_FALSE(usual.assumptions.empty());
  machine.nic_GBps = 23.1;  // so its NICs are of 200 Gb/s
  CHECK(compose(machine, 16, catalog, "test").machine.inter->rate_per_nic.value == Bandwidth(25e9));
  machine.inter_Gbps = 800;
  machine.nics = 2;
  CHECK(compose(machine, 16, catalog, "test").machine.inter->rate_per_nic.value == Bandwidth(50e9));
  machine = {.gpu = "h800", .gpus_per_node = 8, .intra_kind = "bridge", .inter_kind = "wires"};
  const auto strange = compose(machine, 16, catalog, "test");
  CHECK(strange.machine.intra.name == usual.machine.intra.name);
  CHECK(strange.machine.inter->transport.name == usual.machine.inter->transport.name);
  CHECK_THROWS_AS(compose({.gpu = ""}, 8, catalog, "test"), InputError);
}

TEST_CASE("a stated rate is the stated link's") {
  const Catalog& catalog = test::catalog();
  CorpusMachine machine{.gpu = "l40", .gpus_per_node = 4, .nodes = 1, .intra_kind = "nvlink3"};
  machine.intra_GBps = 56;
  const MachineSpec made = compose(machine, 4, catalog, "test").machine;
  CHECK(made.intra.name == "nvlink3");
  CHECK(made.intra_rate == Bandwidth(56e9));
  machine.intra_kind = "";
  CHECK(compose(machine, 4, catalog, "test").machine.intra.name == "pcie4");
}

TEST_CASE(
    "attention over several GPUs has values of their own width, and as many keys as queries") {
  Json document = test::example_corpus();
  const double wide = *predict(document)[0].predicted;
  document["workload"]["head_dim_v"] = 64;
  CHECK(*predict(document)[0].predicted < wide);
  document["points"][0]["seq_kv"] = 65536;
  CHECK_THAT(predict(document)[0].reason, ContainsSubstring("32768 queries to 65536 keys"));
}

TEST_CASE("attention of one GPU runs out of memory, too") {
  Json document = test::example_corpus();
  document["workload"]["scope"] = "kernel";
  document["points"] = Json::array(
      {{{"seq", 32768}, {"kernel", "fa2"}, {"metric", "time_s"}, {"value", 0.05}, {"oom", false}}});
  CHECK_FALSE(predict(document)[0].oom);
  document["points"][0]["batch"] = 256;  // 256 x 32K x (64 + 16 heads) x 128 x 2 bytes: 160 GiB
  CHECK(predict(document)[0].oom);
  document["points"][0]["metric"] = "memory_bytes";
  CHECK(predict(document)[0].oom);
}

TEST_CASE("an assumption says for how many points it was made") {
  Json document = test::example_corpus();
  document["points"][0]["nodes"] = 2;
  const test::TempDir folder;
  const auto path = folder.path() / "example.json";
  write_file(path, document.dump());
  Predictor p = predictor();
  (void)p.predict(read_corpus_file(path));
  std::vector<std::string> values;
  for (const Assumption& a : p.assumptions()) {
    if (a.what == "fabric" || a.what == "documents") {
      values.push_back(a.value);
    }
  }
  REQUIRE(values.size() == 2);
  CHECK_THAT(values[0], ContainsSubstring("(1 of 3 points)"));
  CHECK_THAT(values[1], ContainsSubstring("(1 of 3 points)"));
}

TEST_CASE("a GEMM's rate is 2 m n k over its time") {
  Json document = test::example_corpus();
  document["workload"] = {{"scope", "kernel"}, {"dtype", "bf16"}};
  document["points"] = Json::array({{{"op", "gemm"},
                                     {"m", 4096},
                                     {"n", 8192},
                                     {"k", 2048},
                                     {"metric", "time_s"},
                                     {"value", 1e-3}}});
  const PointPrediction time = predict(document)[0];
  document["points"][0]["metric"] = "tflops_per_gpu";
  const PointPrediction rate = predict(document)[0];
  const double tflop = 2 * 4096.0 * 8192.0 * 2048.0 / 1e12;
  CHECK(*rate.predicted == Approx(tflop / *time.predicted));
  CHECK(*rate.low == Approx(tflop / *time.high));
  CHECK(*rate.high == Approx(tflop / *time.low));
}

TEST_CASE("a suspect point that lacks its shape has no prediction") {
  Json document = test::example_corpus();
  document["points"][0].erase("seq");
  document["points"][0]["suspect"] = "the table has no length";
  CHECK(predict(document)[0].reason == "length, heads or their width are not stated");
  document["workload"]["scope"] = "kernel";
  document["workload"].erase("q_heads");
  document["points"] = Json::array({document["points"][0]});
  CHECK(predict(document)[0].reason == "length, heads or their width are not stated");
}

TEST_CASE("a slip of a link is refused, a source's own word is not") {
  const auto predict_over = [](const char* side, const char* word) {
    Json document = test::example_corpus();
    document["machine"][side]["kind"] = word;
    (void)predict(document);
  };
  CHECK_THROWS_WITH(predict_over("intra", "nvlnk4"),
                    EndsWith("example.json: points[0]: machine.intra.kind: unknown 'nvlnk4' (did "
                             "you mean 'nvlink4'?)"));
  CHECK_THROWS_WITH(predict_over("inter", "ethernt"),
                    ContainsSubstring("machine.inter.kind: unknown 'ethernt'"));
  CHECK_NOTHROW(predict_over("intra", "nvlink"));
  CHECK_NOTHROW(predict_over("intra", "nvswitch"));
  CHECK_NOTHROW(predict_over("inter", "omni-path"));
}

TEST_CASE("Grace racks are one NVLink domain") {
  const Catalog& catalog = test::catalog();
  const auto rack =
      compose({.gpu = "gb200", .gpus_per_node = 4, .nodes = 18, .intra_kind = "nvlink5"}, 72,
              catalog, "test");
  CHECK(rack.nodes == 1);
  CHECK(rack.machine.gpus_per_node.value == 72);
}

TEST_CASE("what a source leaves open of a step is what fits") {
  // 7 B weights over a ring of 8: 16 bytes each on every GPU would be 112 GB.
  Json document = Json::parse(R"({
    "format": "sp-plan/corpus", "format_version": "1.0", "name": "example",
    "source": {"title": "t", "authors": "a", "year": 2024, "id": "i", "where": "w"},
    "trust": "table", "noise": 0.03,
    "machine": {"gpu": "a100-80g-sxm", "gpus_per_node": 8, "nodes": 1, "intra": {"kind": "nvlink3"}, "inter": {"kind": "none"}},
    "stack": "unknown",
    "workload": {"scope": "model", "model": "llama-7b-gqa", "layers": 32, "hidden": 4096, "q_heads": 32,
                 "head_dim": 128, "ffn": 11008, "vocab": 32000, "batch": 1, "mask": "causal",
                 "dtype": "bf16", "phase": "train", "recompute": "unknown"},
    "points": [{"seq": 65536, "world": 8, "ulysses": 1, "ring": 8, "tp": 1, "dp": 1, "metric": "time_s", "value": 6.0}]
  })");
  const auto open = predict(document);
  REQUIRE(open[0].predicted);
  CHECK_FALSE(open[0].oom);
  document["points"][0]["zero"] = 0;
  CHECK(predict(document)[0].oom);
}

TEST_CASE("what a stack does unless told fills what a source leaves open") {
  // 16 layers over 2 stages on 2 GPUs; the batch is cut by the stages, or into single sequences.
  Json document = Json::parse(R"({
    "format": "sp-plan/corpus", "format_version": "1.0", "name": "example",
    "source": {"title": "t", "authors": "a", "year": 2024, "id": "i", "where": "w"},
    "trust": "table", "noise": 0.03,
    "machine": {"gpu": "h100-80g-sxm", "gpus_per_node": 8, "nodes": 1, "intra": {"kind": "nvlink4"}, "inter": {"kind": "none"}},
    "stack": "torchtitan",
    "workload": {"scope": "model", "model": "llama-1b", "layers": 16, "hidden": 2048, "q_heads": 32,
                 "head_dim": 64, "ffn": 8192, "vocab": 32000, "batch": 8, "mask": "causal",
                 "dtype": "bf16", "phase": "train", "recompute": "none"},
    "points": [{"seq": 4096, "world": 2, "ulysses": 1, "ring": 1, "tp": 1, "pp": 2, "dp": 1, "zero": 0, "metric": "memory_bytes", "value": 4e10}]
  })");
  const double by_stages = *predict(document)[0].predicted;
  document["points"][0]["micro_batch"] = 4;
  CHECK(*predict(document)[0].predicted == by_stages);
  document["points"][0]["micro_batch"] = 1;
  CHECK(*predict(document)[0].predicted < by_stages);
  // nanotron prints what its first stage's allocator holds, Megatron what the fullest GPU does.
  document["stack"] = "nanotron";
  const double first = *predict(document)[0].predicted;
  document["points"][0]["pp"] = 1;
  document["points"][0]["dp"] = 2;
  document["points"][0]["micro_batch"] = 4;
  CHECK(first < *predict(document)[0].predicted);
}

TEST_CASE("rates that a source does not explain are counted as its software counts") {
  Json document = Json::parse(R"({
    "format": "sp-plan/corpus", "format_version": "1.0", "name": "example",
    "source": {"title": "t", "authors": "a", "year": 2023, "id": "i", "where": "w"},
    "trust": "table", "noise": 0.03,
    "machine": {"gpu": "a100-80g-sxm", "gpus_per_node": 8, "nodes": 1, "intra": {"kind": "nvlink3"}, "inter": {"kind": "none"}},
    "stack": "unknown",
    "workload": {"scope": "model", "model": "gpt", "layers": 8, "hidden": 4096, "q_heads": 32,
                 "head_dim": 128, "ffn": 16384, "vocab": 32000, "batch": 1, "mask": "causal",
                 "dtype": "bf16", "phase": "train", "recompute": "full", "flops_convention": "unknown"},
    "points": [{"seq": 16384, "world": 8, "ulysses": 1, "ring": 1, "tp": 8, "dp": 1, "metric": "tflops_per_gpu", "value": 100}]
  })");
  const double half = *predict(document)[0].predicted;
  document["workload"]["flops_convention"] = "full";
  const double whole = *predict(document)[0].predicted;
  document["workload"]["flops_convention"] = "unknown";
  // The software is still the point's: only what its title names counts FLOPs.
  document["points"][0]["system"] = "Megatron-DeepSpeed";
  document["workload"]["flops_convention"] = "full";
  const double same = *predict(document)[0].predicted;
  document["workload"]["flops_convention"] = "unknown";
  document["source"]["title"] = "Megatron-DeepSpeed";
  CHECK(*predict(document)[0].predicted == Approx(same * 4 / 3));
  CHECK(half < whole);
}

TEST_CASE("recipes are taken to recompute as few layers as fit, others all or none") {
  Json document = Json::parse(R"({
    "format": "sp-plan/corpus", "format_version": "1.0", "name": "example",
    "source": {"title": "NeMo", "authors": "a", "year": 2025, "id": "i", "where": "w"},
    "trust": "table", "noise": 0.03,
    "machine": {"gpu": "h100-80g-sxm", "gpus_per_node": 8, "nodes": 1, "intra": {"kind": "nvlink4"}, "inter": {"kind": "none"}},
    "stack": "megatron-te",
    "workload": {"scope": "model", "model": "llama-8b", "layers": 32, "hidden": 4096, "q_heads": 32, "kv_heads": 8,
                 "head_dim": 128, "ffn": 14336, "vocab": 128256, "batch": 8, "mask": "causal",
                 "dtype": "bf16", "phase": "train", "recompute": "unknown"},
    "points": [{"seq": 16384, "world": 8, "ulysses": 1, "ring": 1, "tp": 1, "pp": 1, "dp": 8, "zero": 1, "micro_batch": 1, "metric": "time_s", "value": 2.0}]
  })");
  const auto step = [&](const char* recompute) {
    document["workload"]["recompute"] = recompute;
    return *predict(document)[0].predicted;
  };
  REQUIRE(predict(document)[0].predicted);
  CHECK(step("none") < step("unknown"));
  CHECK(step("unknown") < step("full"));
  document["source"]["title"] = "Megatron-LM";
  CHECK(step("unknown") == step("full"));
}

namespace {

/// A step of a small model of experts on two nodes.
Json experts_corpus() {
  return Json::parse(R"({
    "format": "sp-plan/corpus", "format_version": "1.0", "name": "example",
    "source": {"title": "Megatron-Bridge", "authors": "a", "year": 2026, "id": "i", "where": "w"},
    "trust": "table", "noise": 0.03,
    "machine": {"gpu": "h100-80g-sxm", "gpus_per_node": 8, "nodes": 2, "intra": {"kind": "nvlink4"},
                "inter": {"kind": "ib", "per_node_Gbps": 3200, "nics_per_node": 8}},
    "stack": "megatron-te",
    "workload": {"scope": "model", "model": "qwen3-moe", "layers": 8, "hidden": 2048, "q_heads": 32, "kv_heads": 4,
                 "head_dim": 128, "moe_ffn": 768, "experts": 128, "experts_per_token": 8, "vocab": 151936,
                 "batch": 64, "mask": "causal", "dtype": "bf16", "phase": "train", "recompute": "none"},
    "points": [{"seq": 4096, "world": 16, "tp": 1, "pp": 1, "cp": 1, "dp": 16, "ep": 16, "micro_batch": 1,
                "metric": "time_s", "value": 1.0}]
  })");
}

}  // namespace

TEST_CASE("experts in every layer have a gate unless the source denies it") {
  Json document = experts_corpus();
  const double assumed = *predict(document)[0].predicted;
  document["workload"]["gated"] = true;
  CHECK(*predict(document)[0].predicted == assumed);
  document["workload"]["gated"] = false;
  CHECK(*predict(document)[0].predicted < assumed);
}

TEST_CASE("every other layer of gpt-oss sees a window") {
  Json document = experts_corpus();
  document["points"][0]["seq"] = 32768;
  const double causal = *predict(document)[0].predicted;
  document["workload"]["model"] = "gpt-oss-20b";
  CHECK(*predict(document)[0].predicted < causal);
}

TEST_CASE("who drops tokens waits for no counts, and sends each copy by itself") {
  Json document = experts_corpus();
  document["machine"]["nodes"] = 1;
  document["points"][0].update(Json{{"world", 8}, {"dp", 8}, {"ep", 8}});
  const double dropless = *predict(document)[0].predicted;
  document["points"][0]["variant"] = "tokendrop";
  CHECK(*predict(document)[0].predicted < dropless);
}

TEST_CASE("modules that a source names are those that run again") {
  Json document = experts_corpus();
  document["points"][0]["metric"] = "memory_bytes";
  const auto memory = [&](const char* recompute) {
    document["workload"]["recompute"] = recompute;
    return *predict(document)[0].predicted;
  };
  const double none = memory("none");
  CHECK(memory("selective: moe_act") < none);
  CHECK(memory("selective: layernorm, moe_act") < memory("selective: moe_act"));
  CHECK(memory("selective: moe") < memory("selective: layernorm, moe_act"));
}

TEST_CASE("memory is what a source's notes say it counts") {
  Json document = experts_corpus();
  document["points"][0]["metric"] = "memory_bytes";
  const auto memory = [&](const char* notes) {
    document["notes"] = notes;
    return *predict(document)[0].predicted;
  };
  CHECK(memory("Memory is from nvidia-smi.") == memory(""));
  CHECK(memory("Peak is allocated memory.") < memory(""));
  CHECK(memory("Memory = maximum of mem-max-allocated-bytes.") ==
        memory("Peak is allocated memory."));
}

TEST_CASE("inputs of layers that lie in the host's memory are not on the GPU") {
  Json document = experts_corpus();
  document["points"][0]["metric"] = "memory_bytes";
  const double here = *predict(document)[0].predicted;
  document["workload"]["offload"] = "activations";
  CHECK(*predict(document)[0].predicted < here);
}

TEST_CASE("transfers in pieces hide all but the first, and a scale a row is worth no faster GEMM") {
  Json document = experts_corpus();
  document["source"]["title"] = "a table";
  document["stack"] = "torchtitan";
  document["workload"].erase("experts");
  document["workload"].update(Json{{"ffn", 8192}, {"model", "llama"}});
  document["points"][0] = Json{{"seq", 8192},
                               {"world", 8},
                               {"tp", 8},
                               {"dp", 1},
                               {"ulysses", 1},
                               {"ring", 1},
                               {"micro_batch", 8},
                               {"batch", 8},
                               {"metric", "time_s"},
                               {"value", 1.0},
                               {"features", "compile, vanilla TP"}};
  document["machine"]["nodes"] = 1;
  const auto step = [&](const char* features, const char* dtype) {
    document["points"][0]["features"] = features;
    document["points"][0]["dtype"] = dtype;
    return *predict(document)[0].predicted;
  };
  const double plain = step("compile, vanilla TP", "bf16");
  CHECK(step("compile, async TP", "bf16") < plain);
  CHECK(step("compile, vanilla TP", "fp8-tensorwise") < plain);
  CHECK(step("compile, vanilla TP", "fp8-rowwise") == plain);
}

TEST_CASE("a degree of open kind stands for none that is stated") {
  Json document = experts_corpus();
  document["points"][0].update(Json{{"seq", 65536}, {"dp", 1}, {"ulysses", 8}, {"ring", 2}});
  document["points"][0].erase("cp");
  const double stated = *predict(document)[0].predicted;
  document["points"][0]["cp"] = 16;
  CHECK(*predict(document)[0].predicted == stated);
  document["points"][0].update(Json{{"ulysses", 1}, {"ring", 16}, {"cp", nullptr}});
  const double ring = *predict(document)[0].predicted;
  document["points"][0].update(Json{{"ulysses", nullptr}, {"ring", nullptr}, {"cp", 16}});
  CHECK(*predict(document)[0].predicted == ring);
  CHECK(ring != stated);
}

TEST_CASE("weights in the host's memory are refused, and what a key says of the optimizer counts") {
  Json document = experts_corpus();
  document["points"][0]["metric"] = "memory_bytes";
  const double here = *predict(document)[0].predicted;
  document["points"][0]["features"] = "baseline + tiled loss";
  document["points"][0]["offload"] = "optimizer";
  CHECK(*predict(document)[0].predicted < here);
  document["points"][0]["features"] = "baseline + weights offload";
  CHECK_THAT(predict(document)[0].reason, ContainsSubstring("parameter offload"));
}
