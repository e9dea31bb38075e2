// The profile of a calibration on GPUs, from samples that were made up: what was measured is in it,
// what was not is the catalog's.
#include "base/error.hpp"
#include "calibrate/profile.hpp"
#include "machine/profile.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

#include <string>
#include <vector>

using namespace spp;
using Catch::Approx;
using spp::test::catalog;
using spp::test::message_of;

namespace {

DeviceReport h200(int ranks, int ranks_per_gpu) {
  DeviceReport device;
  device.gpu = "NVIDIA H200";
  device.gpus = ranks / ranks_per_gpu;
  device.ranks_per_gpu = ranks_per_gpu;
  device.compute_capability = 90;
  device.all_multiprocessors = 132;
  device.split = ranks_per_gpu > 1;
  device.multiprocessors = device.split ? 16 : 132;
  device.memory = Bytes(std::int64_t{140} << 30);
  device.l2 = Bytes(std::int64_t{50} << 20);
  device.driver = device.runtime = 13000;
  return device;
}

Series series(std::string suite, std::string what, std::string scope, int ranks, int active,
              double size, double seconds) {
  return {.suite = std::move(suite),
          .what = std::move(what),
          .scope = std::move(scope),
          .ranks = ranks,
          .active = active,
          .size = size,
          .seconds = std::vector<double>(7, seconds),
          .block = std::nullopt};
}

/// Messages of 8 us + bytes / `rate`; kernels around attention at `memory` B/s a rank when all work
/// and `alone` when one does; attention at `flops`.
struct Rates {
  double message = 300e9, memory = 3e12, alone = 3e12, flops = 600e12;
};
calibrate::ProfileInput measured(int nodes, int per_node, int ranks_per_gpu, const Rates& rates) {
  const int ranks = nodes * per_node;
  calibrate::ProfileInput input;
  input.name = "test";
  input.kernels = "cudnn";
  input.comm = ranks_per_gpu > 1 ? "inproc" : "nccl";
  input.dtype = DType::bf16;
  input.device = h200(ranks, ranks_per_gpu);
  input.catalog = &catalog();
  Calibration& c = input.calibration;
  c.complete = true;
  for (int i = 0; i < nodes; ++i) {
    c.hosts.names.push_back("host" + std::to_string(i));
  }
  c.hosts.per_node = per_node;
  const auto message = [&](double bytes) { return 8e-6 + bytes / rates.message; };
  for (const std::int64_t size : message_sizes(16 << 20)) {
    const auto bytes = static_cast<double>(size);
    auto& links = c.series["links"];
    auto& collectives = c.series["collectives"];
    if (per_node > 1) {
      links.push_back(series("links", "ring", "intra", per_node, ranks, bytes, message(bytes)));
      links.push_back(series("links", "pair", "intra", 2, 2, bytes, message(bytes)));
      for (const char* kind : {"all_to_all", "all_gather", "reduce_scatter"}) {
        collectives.push_back(
            series("collectives", kind, "intra", per_node, ranks, bytes, message(bytes)));
      }
    }
    if (nodes > 1) {
      const double across = 20e-6 + bytes / 45e9;
      links.push_back(series("links", "ring", "inter", nodes, nodes, bytes, across));
      links.push_back(series("links", "pair", "inter", 2, 2, bytes, across));
      links.push_back(series("links", "pairs", "inter", nodes, ranks, bytes, across));
    }
  }
  for (const double size : {1e6, 1e7, 1e8}) {
    auto& kernels = c.series["elementwise"];
    kernels.push_back(
        series("elementwise", "copy", "", 1, ranks_per_gpu, size, size / rates.memory));
    if (ranks_per_gpu > 1) {
      kernels.push_back(series("elementwise", "copy", "", 1, 1, size, size / rates.alone));
    }
  }
  c.series["elementwise"].push_back(series("elementwise", "op", "", 1, ranks_per_gpu, 0, 3e-6));
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    for (const std::int64_t n : {2048, 4096, 8192, 16384}) {
      const AttentionBlock block{.phase = phase,
                                 .q = TokenSet({.begin = 0, .count = n}),
                                 .k = TokenSet({.begin = 0, .count = n}),
                                 .q_heads = 33,
                                 .kv_heads = 33,
                                 .head_dim = 128,
                                 .mask = {.kind = MaskKind::full},
                                 .dtype = DType::bf16};
      Series s = series("attention", "attention", "", 1, ranks_per_gpu, 0,
                        flops_of(block).value() / rates.flops);
      s.block = block;
      c.series["attention"].push_back(std::move(s));
    }
  }
  return input;
}

}  // namespace

TEST_CASE("the profile of one GPU a rank is that GPU's, with the tiles of its kernels") {
  const Json json = calibrate::profile_document(measured(1, 8, 1, {}));
  const Profile p = read_profile(JsonView(json, "profile"));
  const GpuSpec& gpu = p.machine.gpu;
  CHECK(gpu.name == "h200-141g-sxm");  // so that --topology dgx-h200 takes it
  CHECK(gpu.sms.value == 132);
  CHECK(gpu.matrix_rate.at(DType::bf16).value.value() == Approx(989.4e12));
  CHECK(gpu.generation.attention.kernel == "cuDNN 9");
  CHECK(gpu.generation.attention.q_tile.value == 128);
  CHECK(gpu.generation.attention.forward_full.value == Approx(600 / 989.4).epsilon(0.05));
  CHECK(gpu.generation.launch.value.count() == Approx(3e-6));
  CHECK(gpu.memory_bandwidth.value.value() == Approx(3e12));
  CHECK_FALSE(gpu.generation.group_forward.has_value());  // all GPUs worked: it is in the times
  CHECK(gpu.measured.size() == 8);
  CHECK(p.machine.intra.medium == "nvlink");
  CHECK(p.machine.intra.rate->value.value() == Approx(300e9).epsilon(0.01));
  CHECK(p.machine.intra.sms.value == 24);  // of NCCL's kernels on this GPU's links
  CHECK_FALSE(p.machine.inter.has_value());
}

TEST_CASE("a described machine keeps its names, NICs and nominal rates") {
  calibrate::ProfileInput input = measured(2, 8, 1, {});
  input.topology = "dgx-h200";
  const Json json = calibrate::profile_document(input);
  const Profile p = read_profile(JsonView(json, "profile"));
  CHECK(p.nodes == 2);
  CHECK(p.machine.name == "dgx-h200");
  CHECK(p.machine.sockets.value == 2);
  CHECK(p.machine.intra.name == "nvlink4");
  CHECK(p.machine.intra_rate.value() == Approx(450e9));
  const auto p2p = static_cast<std::size_t>(CommKind::send_recv);
  CHECK(p.machine.intra.segments.at(p2p).back().fraction.value ==
        Approx(300 / 450.0).epsilon(0.01));
  REQUIRE(p.machine.inter.has_value());
  CHECK(p.machine.inter->transport.name == "ib");
  CHECK(p.machine.inter->nics.value == 8);
  CHECK(p.machine.inter->transport.segments.at(p2p).back().fraction.value ==
        Approx(45 / 50.0).epsilon(0.01));
}

TEST_CASE("ranks that share a GPU have its memory bandwidth together") {
  // 8 ranks of 16 SMs: alone 1.5e12 B/s, together 8 x 0.4e12.
  const Json json = calibrate::profile_document(
      measured(1, 8, 8, {.message = 100e9, .memory = 0.4e12, .alone = 1.5e12, .flops = 80e12}));
  const Json& machine = json.at("machine");
  CHECK(machine.at("gpu").at("name") == "NVIDIA H200, 16 of 132 SMs");
  CHECK(machine.at("gpu").at("sms").at("value") == 16);
  CHECK(machine.at("gpu").at("memory").at("value") == 17.5);
  CHECK(machine.at("gpu").at("memory_bandwidth").at("value") == 1500.0);
  CHECK(machine.at("gpu").at("matrix_rate").at("bf16").at("value") == 88000.0);  // 1.1 x
  CHECK(machine.at("intra").at("medium") == "device");
  CHECK(machine.at("intra").at("transport").at("name") == "inproc-device");
  const Json& device = machine.at("device");
  CHECK(device.at("ranks").at("value") == 8);
  CHECK(device.at("multiprocessors") == "split");
  CHECK(device.at("memory_bandwidth").at("value") == 3200.0);
  CHECK(device.at("l2").at("value") == 50.0);
  CHECK(device.at("l2").at("unit") == "MiB");
}

TEST_CASE("emulated nodes have a network, a link for every rank") {
  const Json json = calibrate::profile_document(
      measured(2, 4, 8, {.message = 100e9, .memory = 0.4e12, .alone = 1.5e12, .flops = 80e12}));
  CHECK(json.at("nodes").at("value") == 2);
  const Json& inter = json.at("machine").at("inter");
  CHECK(inter.at("nics").at("value") == 4);
  CHECK(inter.at("gpus_per_nic").at("value") == 1);
  CHECK(inter.at("rate_per_nic").at("value").get<double>() == Approx(45).epsilon(0.02));
}

TEST_CASE("GPUs that no machine describes are refused where it takes one") {
  const auto refused = [](const DeviceReport& device, const std::string& topology) {
    return message_of<InputError>(
        [&] { calibrate::expect_describable(device, 8, topology, catalog()); });
  };
  auto device = h200(8, 1);
  calibrate::expect_describable(device, 8, "", catalog());
  calibrate::expect_describable(device, 8, "dgx-h200", catalog());
  CHECK_THAT(refused(device, "dgx-a100"),
             Catch::Matchers::ContainsSubstring("--topology: 'dgx-a1"));
  device.gpu = "NVIDIA L40S";
  device.compute_capability = 89;
  device.memory = Bytes(std::int64_t{45} << 30);
  CHECK_THAT(refused(device, ""), Catch::Matchers::ContainsSubstring("NVIDIA L40S GPUs talk over"));
  calibrate::expect_describable(device, 1, "", catalog());
  CHECK_THAT(refused(h200(8, 8), "dgx-h200"),
             Catch::Matchers::ContainsSubstring("here 8 share one"));
}
