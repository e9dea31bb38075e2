// Output of NCCL's own tests: read and refused. The samples say in their README
// how their times were made up: latency + bytes sent / rate.
#include "machine/nccl_tests.hpp"

#include "base/error.hpp"
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

std::string refusal(const std::string& text, const std::string& name = "all_gather.txt") {
  const test::TempDir dir;
  const auto file = dir.write(name, text);
  std::string message = message_of<InputError>([&] { (void)read_nccl_tests(file.string()); });
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
  const auto tests = read_nccl_tests(sample("node.txt"));
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
  const auto tests = read_nccl_tests(sample("two-nodes-alltoall.json"));
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
  const auto tests = read_nccl_tests(file.string());
  REQUIRE(tests.size() == 1);
  CHECK(tests[0].name == "alltoall");
  REQUIRE(tests[0].rows.size() == 1);
  CHECK(tests[0].rows[0].seconds == Approx(12.5e-6));
}

TEST_CASE("the command that was typed says which test it is") {
  const test::TempDir dir;
  const auto file = dir.write(
      "log.txt", "$ mpirun -np 2 ./build/alltoall_perf -b 1K -e 1K\n" + std::string(head) +
                     "1024 256 float 12.50 0.08 0.04 0 11.50 0.08 0.04 N/A\n");
  const auto tests = read_nccl_tests(file.string());
  REQUIRE(tests.size() == 1);
  CHECK(tests[0].name == "alltoall");
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
