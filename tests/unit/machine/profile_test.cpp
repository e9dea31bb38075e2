#include "machine/profile.hpp"

#include "base/error.hpp"
#include "sim/cluster.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

using namespace spp;
using namespace spp::sim;
using namespace spp::unit_literals;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using spp::test::message_of;

namespace {

Json example() { return read_json(test::source_path("tests/support/data/cpu-2x2.json")); }

Profile read(const Json& json) { return read_profile(JsonView(json, "p.json")); }

/// The complaint about the example with one value replaced, or (null) taken away.
std::string complaint(const std::string& pointer, const Json& value) {
  Json json = example();
  const Json::json_pointer at(pointer);
  if (value.is_null()) {
    json.at(at.parent_pointer()).erase(at.back());
  } else {
    json[at] = value;
  }
  return message_of<InputError>([&] { read(json); });
}

}  // namespace

TEST_CASE("a profile describes its machine with everything in place") {
  const Profile p = read(example());
  CHECK(p.name == "cpu-2x2");
  CHECK(p.date == "2025-01-31");
  CHECK(p.nodes == 2);
  CHECK(p.environment.front() == std::pair<std::string, std::string>("cpu", "an example core"));
  const MachineSpec& m = p.machine;
  CHECK(m.gpu.compute_capability == 0);
  CHECK(m.gpu.sms.value == 1);
  CHECK(m.gpu.generation.attention.kernel == "onednn");
  CHECK(matrix_rate(m.gpu, DType::fp32, "test").value() == Approx(170e9));
  CHECK(m.intra.medium == "host");
  CHECK(m.intra.cpu_share->value == 1);
  CHECK(m.intra_rate == 10.0_GBps);
  CHECK(m.inter->transport.cpu_share->value == 0.25);
  REQUIRE(m.host.has_value());
  CHECK(m.host->cores.value == 2);
  CHECK(m.host->nodes == 0);
  REQUIRE(m.gpu.measured.size() == 12);
  CHECK(m.gpu.measured[0].q == TokenSet({.begin = 0, .count = 256}));
  CHECK(m.gpu.measured[0].spread == 0.03);
  CHECK(m.gpu.pace->median.count() == 0.0007);
  const Cluster cluster(m, p.nodes, 4);
  const Link& nic_out = cluster.links()[cluster.link(LinkKind::nic_out, 0).index()];
  CHECK(nic_out.capacity.value() == Approx(119.5e6));
  CHECK(cluster.ranks_per_core() == 2);
}

TEST_CASE("a wrong profile is refused with file and key") {
  const auto expect = [](const std::string& pointer, const Json& value, const std::string& where,
                         const std::string& what) {
    const std::string message = complaint(pointer, value);
    CHECK_THAT(message, ContainsSubstring("p.json: " + where));
    CHECK_THAT(message, ContainsSubstring(what));
  };
  expect("/format", "sp-plan/plan", "format", "is not 'sp-plan/profile'");
  expect("/format_version", "2.0", "format_version", "is not understood");
  expect("/attentoin", 1, "unknown key 'attentoin'", "did you mean 'attention'?");
  expect("/date", "31.1.2025", "date", "YYYY-MM-DD");
  expect("/name", nullptr, "key 'name' is missing", "");
  expect("/environment", "linux", "environment", "is not an object");
  expect("/environment/cpu", 3, "environment.cpu", "3 is not a string");
  expect("/nodes", 2, "nodes", "without its unit");
  expect("/samples", 3, "samples", "neither a list nor an object");
  expect("/machine/gpu", "h100", "machine.gpu", "is not an object");
  expect("/machine/gpu/generation", "hopper", "machine.gpu.generation", "is not an object");
  expect("/machine/gpu/compute_capability", 9, "machine.gpu.compute_capability", "0 is a CPU core");
  expect("/machine/intra/medium", "nvlink", "machine: intra.medium", "'shared-memory' is host");
  expect("/machine/intra/transport/cpu_share", nullptr, "machine.intra.transport: cpu_share",
         "need it");
  expect("/machine/intra/transport/sms", 4, "machine.intra.transport.sms", "no SMs");
  expect("/machine/inter/transport/cpu_share/value", 1.5, "machine.inter.transport.cpu_share",
         "not in (0, 1]");
  expect("/machine/host/shared_by", "rack", "machine.host.shared_by", "unknown value 'rack'");
  expect("/machine/host/shared_by", 0, "machine.host.shared_by", "(1 to");
  expect("/machine/host/cores/value", 0, "machine.host.cores", "from 1");
  expect("/machine/host/cores/source", "", "machine.host.cores.source", "is empty");
  expect("/machine/host/cores/assumed", "x", "machine.host.cores.assumed", "");
  expect("/date", "2026-13-45", "date", "does not begin with a date");
  expect("/attention/0/phase", "forward", "attention[0].phase", "'forward'");
  expect("/attention/0/q_tokens", "0-64", "attention[0].q_tokens", "");
  expect("/attention/0/kv_heads", 3, "attention[0].kv_heads", "does not divide");
  expect("/attention/0/median_s", 0, "attention[0].median_s", "is not a positive number");
  expect("/attention/0/median_s", 1e-9, "attention[0].median_s", "faster than the peak rate");
  expect("/attention/0/dtype", "fp16", "attention[0]", "no matrix units for fp16");
  expect("/attention/0/n", 0, "attention[0].n", "out of range");
  expect("/pace/median_s", 1e-9, "pace.median_s", "faster than the peak rate");
  expect("/attention/1", example()["attention"][0], "attention[1]", "same kernel and block");
}

TEST_CASE("cores and SMs do not mix on a machine") {
  const Profile p = read(example());
  const auto refused = [](const MachineSpec& spec) {
    return message_of<InputError>([&] { check(spec, "m"); });
  };
  MachineSpec m = p.machine;
  m.inter->transport.cpu_share.reset();
  CHECK_THAT(refused(m), ContainsSubstring("m: inter.transport: 'tcp' has no cpu_share"));
  MachineSpec gpus = test::catalog().machine("dgx-h100", "test");
  gpus.host = p.machine.host;
  CHECK_THAT(refused(gpus), ContainsSubstring("m: host"));
  gpus.host.reset();
  gpus.intra.cpu_share = Sourced<double>{.value = 0.5};
  CHECK_THAT(refused(gpus), ContainsSubstring("has a cpu_share, but ranks are GPUs"));
}

TEST_CASE("a profile calibrates a machine of the same GPU") {
  const Catalog& catalog = test::catalog();
  const MachineSpec dgx = catalog.machine("dgx-h100", "test");
  Profile p{.name = "mine", .machine = dgx};
  p.machine.gpu.generation.launch.value = Seconds(9e-6);
  p.machine.intra.hop_latency.value = Seconds(3e-6);
  p.machine.inter->transport.name = "my network";
  p.machine.inter->transport.hop_latency.value = Seconds(5e-6);
  const MachineSpec better = calibrated(dgx, p, "--profile");
  CHECK(better.gpu.generation.launch.value == Seconds(9e-6));
  CHECK(better.intra.hop_latency.value == Seconds(3e-6));
  CHECK(better.inter->transport.hop_latency.value ==  // another transport: as it was
        dgx.inter->transport.hop_latency.value);
  CHECK_THAT(message_of<InputError>(
                 [&] { (void)calibrated(catalog.machine("dgx-a100", "test"), p, "--profile"); }),
             ContainsSubstring("--profile: 'mine' was measured on GPU 'h100-80g-sxm'"));
}
