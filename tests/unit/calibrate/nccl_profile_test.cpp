// Output of NCCL's own tests, made a profile. The samples say in their README how their times were
// made up: latency + bytes sent / rate.
#include "base/error.hpp"
#include "calibrate/nccl.hpp"
#include "machine/profile.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

#include <fmt/format.h>

using namespace spp;
using Catch::Approx;
using spp::test::catalog;
using spp::test::message_of;

namespace {

std::string sample(std::string_view name) {
  return test::source_path(fmt::format("tests/support/data/nccl-tests/{}", name)).string();
}

Profile profile_of(const std::vector<std::string>& files, const std::string& machine = "dgx-h100") {
  const std::vector<std::string_view> views(files.begin(), files.end());
  const calibrate::NcclProfile made =
      calibrate::profile_of_nccl_tests(views, machine, "test", catalog());
  CHECK(made.warnings.empty() == (machine == "dgx-h100"));  // the samples are an H100's
  return read_profile(JsonView(made.document, "profile"));
}

/// Seconds of `bytes` sent by one of `ranks`.
double seconds(const TransportSpec& link, CommKind kind, double bytes, Bandwidth nominal,
               int ranks) {
  return link
      .time(kind, Bytes(static_cast<std::int64_t>(bytes)),
            nominal * (kind == CommKind::send_recv || kind == CommKind::all_to_all
                           ? 1
                           : link.own_copy_factor(ranks)))
      .count();
}

}  // namespace

TEST_CASE("links inside a node are those of the tests, on the machine's nominal rates") {
  const Profile p = profile_of({sample("all_gather.txt"), sample("node.txt")});
  const MachineSpec& m = p.machine;
  CHECK(m.name == "dgx-h100");
  CHECK(m.gpu.name == "h100-80g-sxm");
  CHECK(m.intra.name == "nvlink4");
  CHECK(m.intra_rate.value() == Approx(450e9));
  const double bytes = 64e6;
  const auto time = [&](CommKind kind) { return seconds(m.intra, kind, bytes, m.intra_rate, 8); };
  // A ring's hops come on top: 7 x 0.84 us.
  CHECK(time(CommKind::all_gather) == Approx(6e-6 + bytes / 330e9).epsilon(0.01));
  CHECK(time(CommKind::reduce_scatter) == Approx(6.5e-6 + bytes / 310e9).epsilon(0.01));
  CHECK(time(CommKind::send_recv) == Approx(12e-6 + bytes / 340e9).epsilon(0.01));
  const double all_to_all = m.intra
                                .time(CommKind::all_to_all, Bytes(64'000'000),
                                      m.intra_rate * m.intra.all_to_all_factor(8))
                                .count();
  CHECK(all_to_all == Approx(14e-6 + bytes / 300e9).epsilon(0.01));
}

TEST_CASE("links between nodes are those of one rank's NIC") {
  const Profile p =
      profile_of({sample("two-nodes-all_gather.txt"), sample("two-nodes-alltoall.json")});
  REQUIRE(p.machine.inter.has_value());
  CHECK(p.nodes == 2);
  const InterSpec& inter = *p.machine.inter;
  CHECK(inter.transport.name == "ib");
  CHECK(inter.nics.value == 8);
  const auto rate = [&](CommKind kind) {
    return inter.transport.segment(kind, Bytes(64'000'000)).fraction.value * 50e9;
  };
  CHECK(rate(CommKind::all_gather) == Approx(45e9).epsilon(0.01));
  CHECK(rate(CommKind::all_to_all) == Approx(44e9).epsilon(0.01));
  // What was not measured is the catalog's.
  CHECK(inter.transport.segments.at(static_cast<std::size_t>(CommKind::send_recv)).size() > 1);
}

TEST_CASE("a rate beyond which cards carry no more ends with the tests, not what it said") {
  const std::string machine = "cloud-a100-ethernet";
  const MachineSpec known = catalog().machine(machine, "--topology");
  REQUIRE(known.inter->transport.most.has_value());
  const double bytes = 64e6;
  const auto time = [&](const MachineSpec& m, CommKind kind) {
    return seconds(m.inter->transport, kind, bytes, m.inter->rate(), 16);
  };
  const auto rate = [&](const MachineSpec& m, CommKind kind) {
    return m.inter->transport.segment(kind, Bytes(static_cast<std::int64_t>(bytes)))
               .fraction.value *
           m.inter->rate().value();
  };
  const std::vector some{sample("two-nodes-alltoall.json")};
  const MachineSpec measured = profile_of(some, machine).machine;
  CHECK_FALSE(measured.inter->transport.most.has_value());
  CHECK(rate(measured, CommKind::all_to_all) == Approx(12.5e9).epsilon(0.01));  // a card, filled
  for (const CommKind kept :
       {CommKind::send_recv, CommKind::all_gather, CommKind::reduce_scatter}) {
    CAPTURE(to_string(kept));
    CHECK(time(measured, kept) == Approx(time(known, kept)).epsilon(1e-4));
  }
}

TEST_CASE("tests that say nothing of plans are not used") {
  const std::string reduce = sample("all_reduce.txt");
  const std::string gather = sample("all_gather.txt");
  const auto made =
      calibrate::profile_of_nccl_tests({reduce, gather}, "dgx-h100", "test", catalog());
  REQUIRE(made.warnings.size() == 1);
  CHECK_THAT(made.warnings[0], Catch::Matchers::ContainsSubstring("all_reduce is not used"));
  CHECK_THAT(message_of<InputError>([&] {
               (void)calibrate::profile_of_nccl_tests({reduce}, "dgx-h100", "test", catalog());
             }),
             Catch::Matchers::ContainsSubstring("--nccl-tests: none of these tests"));
  const auto elsewhere = calibrate::profile_of_nccl_tests({gather}, "dgx-a100", "test", catalog());
  REQUIRE(elsewhere.warnings.size() == 1);
  CHECK_THAT(elsewhere.warnings[0],
             Catch::Matchers::ContainsSubstring("'NVIDIA H100 80GB HBM3', but dgx-a100 has"));
}
