// Mirrors one header, hence one file.
#include "machine/machine.hpp"

#include "base/error.hpp"
#include "machine/machine_json.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <fstream>
#include <set>

using namespace spp;
using namespace spp::unit_literals;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using spp::test::catalog;
using spp::test::message_of;
using spp::test::source_path;
using spp::test::TempDir;

namespace fs = std::filesystem;

namespace {

/// A copy of topologies/ with one value of one file replaced.
class Spoiled {
 public:
  Spoiled(const std::string& file, const std::string& pointer, const Json& value) {
    fs::copy(source_path("topologies"), folder(), fs::copy_options::recursive);
    Json json = read_json(folder() / file);
    json[Json::json_pointer(pointer)] = value;
    write(file, json);
  }
  void write(const std::string& file, const Json& json) const {
    std::ofstream(folder() / file) << json.dump(1);
  }
  [[nodiscard]] fs::path folder() const { return dir_.path() / "topologies"; }

 private:
  TempDir dir_;
};

struct BadValue {
  std::string file, pointer;
  Json value;
  std::string key, message;
};

/// Loading everything that the spoiled file can spoil.
void load_all(const fs::path& folder) {
  const Catalog spoiled(folder);
  for (const std::string& name : spoiled.transport_names()) {
    (void)spoiled.transport(name, "");
  }
  for (const std::string& name : spoiled.machine_names()) {
    (void)spoiled.machine(name, "");
  }
  for (const std::string& name : spoiled.gpu_names()) {
    (void)spoiled.gpu(name, "");
  }
}

constexpr std::array<CommKind, comm_kinds> all_kinds{
    CommKind::send_recv, CommKind::all_to_all, CommKind::all_gather, CommKind::reduce_scatter};

/// Sizes around every border of a transport's segments, and between.
std::vector<Bytes> telling_sizes(const TransportSpec& transport, CommKind kind) {
  std::set<std::int64_t> sizes;
  for (int exponent = 0; exponent <= 36; ++exponent) {
    sizes.insert(std::int64_t{1} << exponent);
  }
  for (const Segment& s : transport.segments.at(static_cast<std::size_t>(kind))) {
    if (s.up_to < Bytes(std::int64_t{1} << 40)) {
      sizes.insert({s.up_to.value() - 1, s.up_to.value(), s.up_to.value() + 1});
    }
  }
  std::vector<Bytes> result;
  for (const std::int64_t size : sizes) {
    result.emplace_back(size);
  }
  return result;
}

}  // namespace

TEST_CASE("every file of topologies/ loads") {
  CHECK(catalog().machine_names().size() >= 18);
  for (const std::string& name : catalog().machine_names()) {
    INFO(name);
    const MachineSpec machine = catalog().machine(name, "test");
    CHECK(machine.name == name);
    CHECK(machine.intra_rate == machine.intra.rate->value);
    for (const std::string& alias : machine.aliases) {
      CHECK(catalog().machine(alias, "test").name == name);
    }
  }
  for (const std::string& name : catalog().gpu_names()) {
    INFO(name);
    const GpuSpec gpu = catalog().gpu(name, "test");
    CHECK(gpu.name == name);
    CHECK(matrix_rate(gpu, DType::fp16, "test") > FlopRate(0));
    CHECK(gpu.generation.attention.q_tile.value > 0);
  }
  for (const std::string& name : catalog().generation_names()) {
    INFO(name);
    CHECK(catalog().generation(name, "test").name == name);
  }
  for (const std::string& name : catalog().transport_names()) {
    INFO(name);
    CHECK(catalog().transport(name, "test").name == name);
  }
}

TEST_CASE("a faster NIC carries no more than its transport makes of one") {
  InterSpec inter{.transport = catalog().transport("ethernet", "test")};
  REQUIRE(inter.transport.most.has_value());
  const Bandwidth most = inter.transport.most->value;
  inter.rate_per_nic.value = most * 0.5;
  CHECK(inter.rate() == inter.rate_per_nic.value);
  inter.rate_per_nic.value = most * 8;
  CHECK(inter.rate() == most);
  inter.transport = catalog().transport("ib", "test");
  CHECK(inter.rate() == inter.rate_per_nic.value);
}

TEST_CASE("numbers arrive in SI units with source and spread") {
  const MachineSpec dgx = catalog().machine("dgx-h100", "test");
  CHECK(dgx.gpu.name == "h100-80g-sxm");
  CHECK(dgx.gpus_per_node.value == 8);
  CHECK(dgx.intra_rate == 450.0_GBps);
  CHECK(dgx.inter->rate_per_nic.value == 50.0_GBps);  // 400 Gb/s
  CHECK(dgx.host_bridge->spread == 0.2);
  CHECK_THAT(dgx.sockets.source, ContainsSubstring("DGX H100"));
  CHECK(dgx.gpu.memory.value.as_double() == Approx(79.65 * 1024 * 1024 * 1024));
  CHECK(matrix_rate(dgx.gpu, DType::bf16, "test").value() == Approx(989.4e12));
  CHECK(dgx.gpu.generation.launch.value == 4.0_us);
  CHECK(attention_kernel(dgx.gpu.generation, "FA2", "test").forward_full.value == 0.395);
  CHECK(attention_kernel(dgx.gpu.generation, "FA3 or cuDNN 9", "test").kernel == "FA3 or cuDNN 9");
}

TEST_CASE("a machine may be a file of one's own") {
  const TempDir dir;
  Json json = read_json(source_path("topologies/machines/dgx-h100.json"));
  json["name"] = "lab";
  json["gpu"] = "h200";
  json["intra"]["rate"] = {{"value", 400}, {"unit", "GB/s"}, {"source", "measured"}};
  const fs::path file = dir.write("any-name.json", json.dump());
  const MachineSpec machine = catalog().machine(file.string(), "--topology");
  CHECK(machine.name == "lab");
  CHECK(machine.gpu.name == "h200-141g-sxm");
  CHECK(machine.intra_rate == 400.0_GBps);
  CHECK(catalog().file_of("h100", "test").filename() == "h100-80g-sxm.json");
  CHECK(catalog().file_of("dgx-h100", "test").filename() == "dgx-h100.json");
}

// ---- time on a transport
// ---------------------------------------------------------------------------

TEST_CASE("a segment's time is its latency and its share of the nominal rate") {
  // nvlink4, point to point, up to 8 MiB: 13.49 us and 0.5 of 450 GB/s; 1 MiB takes
  // 13.49 + 1048576 / 225e3 = 18.15 us.
  const TransportSpec nvlink = catalog().transport("nvlink4", "test");
  CHECK(nvlink.time(CommKind::send_recv, 1_MiB, 450.0_GBps).count() ==
        Approx(13.49e-6 + 1048576 / 225e9));
  CHECK(nvlink.segment(CommKind::send_recv, 8_MiB).fraction.value == 0.5);
  CHECK(nvlink.segment(CommKind::send_recv, 8_MiB + 1_B).fraction.value == 0.66);
}

TEST_CASE("a longer message is never faster, at no rate of the link") {
  for (const std::string& name : catalog().transport_names()) {
    const TransportSpec transport = catalog().transport(name, "test");
    const Bandwidth own = transport.rate ? transport.rate->value : transport.fitted_at->value;
    for (const CommKind kind : all_kinds) {
      for (const double scale : {0.1, 0.5, 1.0, 2.0, 4.0, 16.0}) {
        Seconds before(0);
        for (const Bytes size : telling_sizes(transport, kind)) {
          INFO(name << " " << to_string(kind) << " x" << scale << " " << size.value() << " bytes");
          const Seconds now = transport.time(kind, size, own * scale);
          const MessageCost cost = transport.cost(kind, size, own * scale);
          CHECK(now >= before * (1 - 1e-12));
          CHECK((cost.latency + size / cost.rate).count() == Approx(now.count()).epsilon(1e-12));
          CHECK(cost.latency >= Seconds(0));
          CHECK(cost.rate <= own * scale * transport.best_fraction());
          before = now;
        }
      }
    }
  }
}

TEST_CASE("behind a border that would be a step, time stays at the border's") {
  // ib, point to point, joins at 25 GB/s. At 50 GB/s the first segment ends (64 KiB) with
  // 19 us + 65536 / 25e9 = 21.62 us; the second begins with 20.39 us + 65536 / 34e9 = 22.32 us: up.
  // At 2.5 GB/s: 19 + 52.43 = 71.43 us against 20.39 + 38.55 = 58.94 us: held.
  const TransportSpec ib = catalog().transport("ib", "test");
  CHECK(ib.time(CommKind::send_recv, 64_KiB + 1_B, 50.0_GBps).count() ==
        Approx(20.39e-6 + 65537 / 34e9));
  CHECK(ib.time(CommKind::send_recv, 64_KiB + 1_B, 2.5_GBps).count() ==
        Approx(19e-6 + 65536 / 1.25e9));
  CHECK(ib.cost(CommKind::send_recv, 64_KiB + 1_B, 2.5_GBps).rate.value() == Approx(1.7e9));
}

TEST_CASE("the all-to-all factor is interpolated in log2 of the ranks") {
  const TransportSpec pcie =
      catalog().transport("pcie4", "test");  // 2: 1, 4: .15, 8: .055, 16: .03
  CHECK(pcie.all_to_all_factor(1) == 1.0);
  CHECK(pcie.all_to_all_factor(2) == 1.0);
  CHECK(pcie.all_to_all_factor(4) == 0.15);
  CHECK(pcie.all_to_all_factor(8) == 0.055);
  CHECK(pcie.all_to_all_factor(6) == Approx(0.15 + std::log2(1.5) * (0.055 - 0.15)));
  CHECK(pcie.all_to_all_factor(64) == 0.03);
  CHECK(catalog().transport("nvlink4", "test").all_to_all_factor(8) == 1.0);
}

// ---- composed machines
// -----------------------------------------------------------------------------

TEST_CASE("a composed NVLink machine says what it took by itself") {
  std::vector<Assumption> assumed;
  const MachineSpec m =
      catalog().compose({.gpu = "h100", .gpus_per_node = 8, .inter = "ib:8x400Gb/s"}, assumed);
  CHECK(m.intra.name == "nvlink4");
  CHECK(m.inter->nics.value == 8);
  CHECK(m.inter->gpus_per_nic.value == 1);
  CHECK(m.inter->rate_per_nic.value == 50.0_GBps);
  REQUIRE(assumed.size() == 2);
  CHECK(assumed[0].what == "intra.transport");
  CHECK(assumed[0].value == "nvlink4");
  CHECK(assumed[1].what == "fabric");
  CHECK(assumed[1].source == "default");
}

TEST_CASE("a composed PCIe machine gets sockets and bridges") {
  std::vector<Assumption> assumed;
  const MachineSpec m = catalog().compose(
      {.gpu = "l20-48g", .gpus_per_node = 8, .intra = "pcie4", .inter = "ethernet:100Gb/s"},
      assumed);
  CHECK(m.sockets.value == 2);
  CHECK(m.host_bridge->value.value() == Approx(1.5 * 31.5e9));
  CHECK(m.inter->nics.value == 1);
  CHECK(m.inter->gpus_per_nic.value == 8);
  std::vector<std::string> what;
  for (const Assumption& a : assumed) {
    CHECK(a.source == "default");
    what.push_back(a.what);
  }
  CHECK(what == std::vector<std::string>{"intra.spread", "sockets", "host_bridge", "socket_link",
                                         "gpus_per_pcie_switch", "inter.nics", "fabric"});
  for (const auto& segments : m.intra.segments) {  // as wide as that of a table without tests
    for (const Segment& s : segments) {
      CHECK(s.fraction.spread >= unmeasured_pcie_spread);
    }
  }
  // Sockets of the GPU's time: Sapphire Rapids, Ice Lake, Skylake; Ice Lake without peer-to-peer.
  const auto socket_link = [&](const char* gpu, const char* intra) {
    return catalog()
        .compose({.gpu = gpu, .gpus_per_node = 8, .intra = intra}, assumed)
        .socket_link->value;
  };
  CHECK(socket_link("l20-48g", "pcie4") == 22.0_GBps);
  CHECK(socket_link("a100-80g-sxm", "pcie4") == 11.0_GBps);
  CHECK(socket_link("v100-32g-sxm", "pcie3") == 10.0_GBps);
  CHECK(socket_link("l20-48g", "pcie4-shm") == 11.0_GBps);
  for (const int gpus : {1, 2, 3, 5, 7, 10}) {  // whatever the count, the parts fit
    CHECK(catalog().compose({.gpu = "l20-48g", .gpus_per_node = gpus}, assumed).sockets.value <= 2);
  }
}

TEST_CASE("eight V100 are a mesh with holes, sixteen are not") {
  std::vector<Assumption> assumed;
  CHECK(catalog().compose({.gpu = "v100", .gpus_per_node = 8}, assumed).intra_spread > 0);
  CHECK(catalog().compose({.gpu = "v100", .gpus_per_node = 16}, assumed).intra_spread == 0);
}

TEST_CASE("a described machine may get a network, and what its adapters are off counts") {
  std::vector<Assumption> assumed;
  const MachineSpec alone = catalog().compose({.gpu = "h100", .gpus_per_node = 8}, assumed);
  MachineSpec joined = catalog().with_network(alone, "ib:8x400Gb/s", assumed);
  CHECK(joined.inter->rate_per_nic.value == 50.0_GBps);
  CHECK_THAT(message_of<InputError>(
                 [&] { (void)catalog().with_network(joined, "ib:8x400Gb/s", assumed); }),
             ContainsSubstring("says its network already"));
  CHECK(joined.assumptions.empty());
  const MachineSpec fast = catalog().with_network(alone, "ib:8x400GB/s", assumed);
  REQUIRE(fast.assumptions.size() == 1);
  CHECK_THAT(fast.assumptions[0].value,
             ContainsSubstring("400 GB/s an adapter, though a GPU's slot passes 63"));
  joined.inter->rate_per_nic.spread = 0.5;
  complete(joined, joined.intra.medium, "test");
  CHECK(joined.inter->transport.segments[0].back().fraction.spread >= 0.5);
}

TEST_CASE("a rate alone overrides the rate of the GPU's own links") {
  std::vector<Assumption> assumed;
  const MachineSpec m =
      catalog().compose({.gpu = "h100", .gpus_per_node = 4, .intra = "300GB/s"}, assumed);
  CHECK(m.intra.name == "nvlink4");
  CHECK(m.intra_rate == 300.0_GBps);
  CHECK_FALSE(m.inter.has_value());
}

TEST_CASE("network cards that do not divide the GPUs are as many as do, with the rate of all") {
  const auto [given, gpus, nics, gigabits] =
      GENERATE(table<std::string, int, int, double>({{"ib:4x200Gb/s", 6, 3, 800.0 / 3},
                                                     {"ib:3x400Gb/s", 8, 2, 600},
                                                     {"ib:16x400Gb/s", 8, 8, 800}}));
  std::vector<Assumption> assumed;
  const MachineSpec m = catalog().compose(
      {.gpu = "h100", .gpus_per_node = gpus, .intra = "", .inter = given}, assumed);
  REQUIRE(m.inter);
  CHECK(m.inter->nics.value == nics);
  CHECK(m.inter->gpus_per_nic.value * nics == gpus);
  CHECK(m.inter->rate_per_nic.value.value() * 8e-9 == Catch::Approx(gigabits));
  const auto said = std::ranges::find(assumed, "inter.nics", &Assumption::what);
  REQUIRE(said != assumed.end());
  CHECK(said->source == "--inter");
  CHECK_THAT(said->value, EndsWith("GPUs, with the rate of all"));
}

TEST_CASE("what cannot be composed is refused, with what would be right") {
  const auto error = [](const ComposedMachine& request) {
    return message_of<InputError>([&] {
      std::vector<Assumption> ignored;
      (void)catalog().compose(request, ignored);
    });
  };
  CHECK_THAT(error({.gpu = "h10"}), StartsWith("--gpu: unknown GPU 'h10' (did you mean 'h100'?)"));
  CHECK_THAT(error({.gpu = "h100", .gpus_per_node = 0}),
             StartsWith("--gpus-per-node: 0 is out of range (1 to 1024)"));
  CHECK_THAT(error({.gpu = "h100", .intra = "nvlnk4"}),
             ContainsSubstring("did you mean 'nvlink4'?"));
  CHECK_THAT(error({.gpu = "h100", .intra = "ib"}), StartsWith("--intra: 'ib' is a network"));
  CHECK_THAT(error({.gpu = "h100", .intra = "300GB"}), StartsWith("--intra: "));
  CHECK_THAT(error({.gpu = "h100", .intra = "0GB/s"}), StartsWith("--intra: 0 is not a positive"));
  CHECK_THAT(error({.gpu = "h100", .inter = "ib"}), ContainsSubstring("for example ib:8x400Gb/s"));
  CHECK_THAT(error({.gpu = "h100", .inter = "pcie5:8x400Gb/s"}),
             ContainsSubstring("'pcie5' is no network"));
  CHECK_THAT(error({.gpu = "h100", .inter = "ib:8x400"}), StartsWith("--inter: "));
  CHECK_THAT(error({.gpu = "h100", .inter = "ib:ax400Gb/s"}), StartsWith("--inter: "));
}

// ---- wrong files
// -----------------------------------------------------------------------------------

TEST_CASE("a wrong value names file, key and what is right") {
  const Json gbps = {{"value", -1}, {"unit", "GB/s"}, {"source", "x"}};
  const auto count = [](double value) {
    return Json{{"value", value}, {"unit", "count"}, {"source", "x"}};
  };
  const std::vector<BadValue> cases{
      {"machines/dgx-h100.json", "/gpuz", "h100", "dgx-h100.json",
       "unknown key 'gpuz' (did you mean 'gpu'?)"},
      {"machines/dgx-h100.json", "/gpu", "h10", "dgx-h100.json: gpu",
       "unknown GPU 'h10' (did you mean 'h100'?)"},
      {"machines/dgx-h100.json", "/format", "sp-plan/gpu", "dgx-h100.json: format",
       "is not 'sp-plan/machine'"},
      {"machines/dgx-h100.json", "/format_version", "2.0", "format_version",
       "this program reads 1.x"},
      {"machines/dgx-h100.json", "/name", "dgx", "dgx-h100.json: name",
       "'dgx' is not the file's name, 'dgx-h100'"},
      {"machines/dgx-h100.json", "/aliases/0", "dgx-a100", "aliases[0]",
       "'dgx-a100' is taken: machine 'dgx-a100'"},
      {"machines/dgx-h200.json", "/aliases/0", "hgx-h100", "aliases[0]",
       "is taken: machine 'dgx-h100'"},
      {"machines/dgx-h100.json", "/intra/transport", "nvlink9", "intra.transport",
       "unknown transport 'nvlink9'"},
      {"machines/dgx-h100.json", "/intra/medium", "pcie", "intra.medium",
       "'pcie', but transport 'nvlink4' is nvlink"},
      {"machines/dgx-h100.json", "/inter/transport", "nvlink4", "inter.transport",
       "'nvlink4' is no network"},
      {"machines/dgx-h100.json", "/inter/nics", count(4), "dgx-h100.json: inter.nics",
       "4 NICs x 1 GPUs per NIC is 4, not the 8 GPUs of the node"},
      {"machines/dgx-h100.json", "/inter/rate_per_nic", gbps, "inter.rate_per_nic.value",
       "-1 is not a positive number"},
      {"machines/dgx-h100.json", "/inter/rate_per_nic", 400, "inter.rate_per_nic",
       "is a number without its unit"},
      {"machines/dgx-h100.json", "/gpus_per_node", count(0), "gpus_per_node.value",
       "0 is not a whole number from 1 to 1024"},
      {"machines/dgx-h100.json", "/sockets", count(3), "dgx-h100.json: sockets",
       "3 does not divide the 8 GPUs of the node"},
      {"machines/dgx-h100.json", "/gpus_per_pcie_switch", count(3), "gpus_per_pcie_switch",
       "3 does not divide the 4 GPUs of a socket"},
      {"machines/dgx-h100.json", "/fabric/kind", "fattree", "fabric.kind",
       "did you mean 'fat-tree'?"},
      {"machines/dgx-h100.json", "/fabric/nodes_per_leaf", nullptr, "fabric.nodes_per_leaf",
       "is missing"},
      {"machines/dgx-h100.json", "/fabric/oversubscription/value", 0.5, "fabric.oversubscription",
       "0.5 is not at least 1"},
      {"machines/hgx-h200.json", "/fabric/oversubscription/value", 2, "fabric.oversubscription",
       "is not oversubscribed (2)"},
      {"machines/8xl20-pcie.json", "/host_bridge", nullptr, "8xl20-pcie.json: host_bridge",
       "is missing"},
      {"machines/8xl20-pcie.json", "/socket_link", nullptr, "8xl20-pcie.json: socket_link",
       "is missing"},
      {"gpus/h100-80g-sxm.json", "/generation", "hoper", "h100-80g-sxm.json: generation",
       "unknown GPU generation 'hoper' (did you mean 'hopper'?)"},
      {"gpus/h100-80g-sxm.json", "/pcie", "nvlink4", "h100-80g-sxm.json: pcie",
       "'nvlink4' is not PCIe"},
      {"gpus/h100-80g-sxm.json", "/memory/unit", "GB/s", "memory.value", "GB/s"},
      {"gpus/h100-80g-sxm.json", "/memory/value", 0, "h100-80g-sxm.json: memory.value",
       "0 is not a positive number"},
      {"gpus/h100-80g-sxm.json", "/matrix_rate/int8", gbps, "matrix_rate", "unknown key 'int8'"},
      {"generations/hopper.json", "/gemm/tiles/shapes", Json::array(), "gemm.tiles.shapes",
       "is empty"},
      {"generations/hopper.json", "/gemm/tiles/shapes/0", Json::array({256}),
       "gemm.tiles.shapes[0]", "is no tile"},
      {"generations/hopper.json", "/gemm/formats/fp7", Json::object(), "gemm.formats.fp7",
       "did you mean 'fp8'?"},
      {"generations/hopper.json", "/attention/forward_full/value", 1.2,
       "attention.forward_full.value", "1.2 is not in (0, 1]"},
      {"generations/hopper.json", "/attention/forward_order", "longest",
       "hopper.json: attention.forward_order", "unknown value 'longest'"},
      {"generations/hopper.json", "/kernels/FA2/forward_minimum_fill", nullptr,
       "hopper.json: kernels.FA2.split_rate", "needs forward_minimum_fill"},
      {"generations/hopper.json", "/kernels/cuDNN 9 fp8/matrix_rate_factor/value", 1.5,
       "matrix_rate_factor.value", "1.5 is not a whole number"},
      {"gpus/gb200.json", "/power_limit/after/unit", "GB", "power_limit.after.value", "GB"},
      {"generations/hopper.json", "/kernels/cuDNN 9 of 2025/version_of", "cuDNN 8",
       "kernels.cuDNN 9 of 2025.version_of", "'cuDNN 8' is no kernel"},
      {"generations/hopper.json", "/kernels/cuDNN 9 of 2025/until", nullptr,
       "kernels.cuDNN 9 of 2025.until", "null is not a whole number"},
      {"generations/hopper.json", "/kernels/FA3 paged/like", "FA4", "kernels.FA3 paged.like",
       "'FA4' is no kernel"},
      {"generations/hopper.json", "/kernels/FA3 paged/like", "TRT-LLM", "kernels.FA3 paged.like",
       "that says all itself"},
      {"generations/hopper.json", "/kernels/FA3 paged/version_of", "FA3", "kernels.FA3 paged.like",
       "say one of them"},
      {"generations/hopper.json", "/linear/of_sm/unit", "us", "linear.of_sm.value", "'us'"},
      {"generations/hopper.json", "/linear/fusd", Json::object(), "linear",
       "did you mean 'fused'?"},
      {"generations/hopper.json", "/kernels/FA2/q_tile/unit", "us", "kernels.FA2.q_tile.value",
       "'us'"},
      {"transports/ib.json",
       "/rate",
       {{"value", 25}, {"unit", "GB/s"}, {"source", "x"}},
       "ib.json: rate",
       "write null"},
      {"transports/ib.json", "/all_reduce/stages/1/bytes/value", 1, "all_reduce.stages[1].bytes",
       "is not larger than the row's before"},
      {"transports/ib.json", "/all_reduce/stages/1/latency/value", 1,
       "all_reduce.stages[1].latency", "a longer message is never faster"},
      {"transports/ib.json", "/all_reduce/ring", nullptr, "all_reduce", "unknown key 'ring'"},
      {"transports/nvlink4.json", "/all_reduce/tree_scaling/value", 2,
       "all_reduce.tree_scaling.value", "2 is not in (0, 1]"},
      {"transports/nvlink4.json", "/rate", nullptr, "nvlink4.json", "needs its nominal rate"},
      {"transports/nvlink4.json", "/most", gbps, "nvlink4.json: most", "is a network's"},
      {"transports/nvlink4.json", "/scope", "inter", "nvlink4.json: scope",
       "medium nvlink is intra"},
      {"transports/nvlink4.json", "/p2p/0/up_to", nullptr, "p2p[0].up_to",
       "only the last segment has no end"},
      {"transports/nvlink4.json", "/p2p/1/up_to/value", 1, "p2p[1].up_to",
       "is not larger than the segment's before"},
      {"transports/nvlink4.json", "/p2p", Json::array(), "nvlink4.json: p2p", "has no segment"},
      {"transports/nvlink4.json", "/hop_latency/value", -1, "hop_latency.value",
       "-1 is not a time"},
      {"transports/pcie4.json", "/all_to_all_by_ranks/1/ranks/value", 2,
       "all_to_all_by_ranks[1].ranks", "is not larger"},
  };
  for (const BadValue& bad : cases) {
    INFO(bad.file << " " << bad.pointer << " = " << bad.value.dump());
    const Spoiled spoiled(bad.file, bad.pointer, bad.value);
    const std::string message = message_of<InputError>([&] { load_all(spoiled.folder()); });
    CHECK_THAT(message, StartsWith(spoiled.folder().string()));
    CHECK_THAT(message, ContainsSubstring(bad.key + ": "));
    CHECK_THAT(message, ContainsSubstring(bad.message));
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("a missing key, file or folder is named") {
  const Spoiled spoiled("machines/p4d.json", "/note", "x");
  Json json = read_json(spoiled.folder() / "machines/p4d.json");
  json.erase("sockets");
  spoiled.write("machines/p4d.json", json);
  CHECK_THAT(message_of<InputError>([&] { load_all(spoiled.folder()); }),
             EndsWith("p4d.json: key 'sockets' is missing"));
  fs::remove_all(spoiled.folder() / "generations");
  CHECK_THAT(message_of<InputError>([&] { Catalog(spoiled.folder()); }),
             ContainsSubstring("generations: is not a folder"));
  CHECK_THAT(message_of<InputError>([&] { (void)catalog().machine("./none.json", "--topology"); }),
             StartsWith("./none.json: cannot be read"));
  CHECK_THAT(message_of<InputError>([&] { (void)catalog().machine("dgx-h10", "--topology"); }),
             StartsWith("--topology: unknown machine 'dgx-h10' (did you mean 'dgx-h100'?)"));
  CHECK_THAT(message_of<InputError>([&] { (void)catalog().machine("zzzzzz", "--topology"); }),
             ContainsSubstring("(one of: 8xl20-pcie, "));
}

TEST_CASE("a GPU without matrix units for a type says which it has") {
  const GpuSpec v100 = catalog().gpu("v100", "--gpu");
  CHECK(message_of<InputError>([&] { (void)matrix_rate(v100, DType::bf16, "--dtype"); }) ==
        "--dtype: GPU 'v100-32g-sxm' has no matrix units for bf16 (one of: fp16, fp32)");
}

TEST_CASE("an unknown attention kernel is answered with those of the generation") {
  const GenerationSpec hopper = catalog().generation("hopper", "test");
  CHECK_THAT(message_of<InputError>([&] { (void)attention_kernel(hopper, "FA4", "stack.kernel"); }),
             StartsWith("stack.kernel: generation 'hopper' has no attention kernel 'FA4'"));
}

TEST_CASE("attention kernels are found by the short names that people write") {
  const GenerationSpec hopper = catalog().generation("hopper", "test");
  const auto found = [&](const std::string& name) {
    return attention_kernel(hopper, name, "test").kernel;
  };
  CHECK(found("fa2") == "FA2");
  CHECK(found("fa3") == "FA3");
  CHECK(found("cudnn") == "cuDNN 9");
  CHECK(found("CUDNN 9") == "cuDNN 9");
  CHECK(found("cudnn fp8") == "cuDNN 9 fp8");
  CHECK(found("fa3 or cudnn 9") == "FA3 or cuDNN 9");
  CHECK_THROWS_AS(found("cudnn 8"), InputError);
}
