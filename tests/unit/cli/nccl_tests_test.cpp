// Output of NCCL's own tests: read, refused, and made a profile. The samples say in their README
// how their times were made up: latency + bytes sent / rate.
#include "cli/nccl_tests.hpp"

#include "base/error.hpp"
#include "sim/profile.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

#include <fmt/format.h>

using namespace spp;
using Catch::Approx;
using spp::test::message_of;

namespace {

std::string sample(std::string_view name) {
  return test::source_path(fmt::format("tests/support/data/nccl-tests/{}", name)).string();
}

sim::Profile profile_of(const std::vector<std::string>& files) {
  const std::vector<std::string_view> views(files.begin(), files.end());
  const cli::NcclProfile made = cli::profile_of_nccl_tests(views, "dgx-h100", "test");
  CHECK(made.warnings.empty());
  return sim::read_profile(JsonView(made.document, "profile"));
}

/// Seconds of `bytes` sent by one of `ranks`.
double seconds(const sim::TransportSpec& link, CommKind kind, double bytes, Bandwidth nominal,
               int ranks) {
  return link
      .time(kind, Bytes(static_cast<std::int64_t>(bytes)),
            nominal * (kind == CommKind::send_recv || kind == CommKind::all_to_all
                           ? 1
                           : link.own_copy_factor(ranks)))
      .count();
}

std::string refusal(const std::string& text, const std::string& name = "all_gather.txt") {
  const test::TempDir dir;
  const auto file = dir.write(name, text);
  std::string message = message_of<InputError>([&] { (void)cli::read_nccl_tests(file.string()); });
  CHECK(message.starts_with(file.string()));
  return message.substr(file.string().size());
}

constexpr const char* head =
    "# nThread 1 nGpus 2 minBytes 1024 maxBytes 1024 step: 2(factor)\n"
    "#  Rank  0 Group  0 Pid 1 on a device  0 [0000:07:00] NVIDIA H100\n"
    "#  Rank  1 Group  0 Pid 1 on a device  1 [0000:08:00] NVIDIA H100\n"
    "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n";

}  // namespace

TEST_CASE("text of nccl-tests says what ran where") {
  const auto tests = cli::read_nccl_tests(sample("node.txt"));
  REQUIRE(tests.size() == 3);
  CHECK(tests[0].name == "reduce_scatter");
  CHECK(tests[1].name == "alltoall");
  CHECK(tests[2].name == "sendrecv");
  CHECK(tests[0].ranks() == 8);
  CHECK(tests[0].hosts.size() == 1);
  CHECK(tests[0].gpu == "NVIDIA H100 80GB HBM3");
  CHECK(tests[0].nccl == "2.29.7");
  REQUIRE(tests[0].rows.size() == 10);
  CHECK(tests[0].rows.back().size == 268435456);
  CHECK(tests[0].rows.back().seconds == Approx(770.06e-6));
}

TEST_CASE("JSON of nccl-tests lists processes by their first GPU") {
  const auto tests = cli::read_nccl_tests(sample("two-nodes-alltoall.json"));
  REQUIRE(tests.size() == 1);
  CHECK(tests[0].ranks() == 16);
  CHECK(tests[0].hosts == std::vector<std::string>{"h100-a", "h100-b"});
  CHECK(tests[0].rows.front().seconds == Approx(51.915e-6).epsilon(1e-3));
}

TEST_CASE("columns without a value, tags of mpirun and other lines do no harm") {
  const test::TempDir dir;
  const auto file = dir.write(
      "alltoall.txt",
      "node1: some log line\n" + std::string(head) +
          "[1,0]<stdout>:     0     0  float   0.10  0.00  0.00  0  0.10  0.00  0.00  N/A\n"
          "[1,0]<stdout>:  1024   256  float  12.50  0.08  0.04  0  11.50  0.08  0.04  N/A\n"
          "2026-01-15 12:00:00 done\n");
  const auto tests = cli::read_nccl_tests(file.string());
  REQUIRE(tests.size() == 1);
  CHECK(tests[0].name == "alltoall");
  REQUIRE(tests[0].rows.size() == 1);
  CHECK(tests[0].rows[0].seconds == Approx(12.5e-6));
}

TEST_CASE("wrong output of nccl-tests is refused with file and line") {
  const std::string two = head;
  CHECK(refusal("hello\n").starts_with(": no line '# nThread"));
  CHECK(refusal(two).starts_with(":1: no sizes and times follow"));
  CHECK(refusal(two + "1024 256 float none -1 x 0.1 0.1 0 1 1 1 0\n").starts_with(":5: "));
  CHECK(refusal(two + "1024 256\n").starts_with(":5: 2 columns"));
  CHECK(refusal(two + "1024 256 float none -1 12 0.1 0.1 7 1 1 1 0\n")
            .starts_with(":5: 7 wrong elements"));
  CHECK(refusal(two + "1024 256 float none -1 0 0.1 0.1 0 1 1 1 0\n") ==
        ":5: 0 is not a positive number");
  CHECK(refusal(two + "1024 256 float none -1 1e-300 0.1 0.1 0 1 1 1 0\n") ==
        ":5: 1e-300 us is out of range (0.001 to 1e+12 us)");
  CHECK(refusal(two, "broadcast.txt").starts_with(":1: which test is this?"));
  CHECK(refusal("# nThread 1 nGpus 1\n#  Rank  0 on\n").starts_with(":2: a rank's line is"));
  CHECK(refusal("{\"args\": [\"broadcast_perf\"]}", "x.json").starts_with(": args: names none"));
}

TEST_CASE("links inside a node are those of the tests, on the machine's nominal rates") {
  const sim::Profile p = profile_of({sample("all_gather.txt"), sample("node.txt")});
  const sim::MachineSpec& m = p.machine;
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
  const sim::Profile p =
      profile_of({sample("two-nodes-all_gather.txt"), sample("two-nodes-alltoall.json")});
  REQUIRE(p.machine.inter.has_value());
  CHECK(p.nodes == 2);
  const sim::InterSpec& inter = *p.machine.inter;
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

TEST_CASE("tests that say nothing of plans are not used") {
  const std::string reduce = sample("all_reduce.txt");
  const std::string gather = sample("all_gather.txt");
  const auto made = cli::profile_of_nccl_tests({reduce, gather}, "dgx-h100", "test");
  REQUIRE(made.warnings.size() == 1);
  CHECK_THAT(made.warnings[0], Catch::Matchers::ContainsSubstring("all_reduce is not used"));
  CHECK_THAT(message_of<InputError>(
                 [&] { (void)cli::profile_of_nccl_tests({reduce}, "dgx-h100", "test"); }),
             Catch::Matchers::ContainsSubstring("--nccl-tests: none of these tests"));
  const auto elsewhere = cli::profile_of_nccl_tests({gather}, "dgx-a100", "test");
  REQUIRE(elsewhere.warnings.size() == 1);
  CHECK_THAT(elsewhere.warnings[0],
             Catch::Matchers::ContainsSubstring("'NVIDIA H100 80GB HBM3', but dgx-a100 has"));
}
