// NCCL between processes, without a GPU: what each of two ranks does to the GPUs of its host
// (host_cuda.hpp keeps a log), and as whom it comes to NCCL (host_nccl.cpp refuses two ranks of a
// host on one GPU, as NCCL does).
#include "base/file.hpp"
#include "base/json.hpp"
#include "tests/device/two_processes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <set>
#include <sstream>

using namespace spp;
using namespace spp::test;

namespace {

struct Ranks {
  Json document;
  std::array<std::set<std::string>, 2> logs;  // lines
};

Ranks run_on(int gpus) {
  const TempDir dir;
  const auto log = [&](int rank) { return dir.path() / ("rank" + std::to_string(rank)); };
  const std::array<Result, 2> results = two_processes([&](int rank) {
    return RunOptions{.program = "tests/sp-plan-on-host-cuda",
                      .environment = {{"SPP_HOST_CUDA_DEVICES", std::to_string(gpus)},
                                      {"SPP_HOST_CUDA_LOG", log(rank).string()},
                                      {"SPP_HOST_NCCL_FOLDER", dir.path().string()}}};
  });
  INFO(results[0].err << results[1].err);
  REQUIRE(results[0].code == 0);
  REQUIRE(results[1].code == 0);
  Ranks ranks{.document = Json::parse(results[0].out), .logs = {}};
  for (int rank = 0; rank < 2; ++rank) {
    std::istringstream lines(system_text(log(rank)));
    for (std::string line; std::getline(lines, line);) {
      ranks.logs[static_cast<std::size_t>(rank)].insert(line);
    }
  }
  CHECK(ranks.document.at("passed") == true);
  return ranks;
}

}  // namespace

TEST_CASE("a process makes a context on the GPU of its rank, and on no other") {
  const Ranks ranks = run_on(2);
  CHECK(ranks.logs[0] ==
        std::set<std::string>{"context on GPU 0",
                              "NCCL rank 0 of 2 on GPU 0000:00:00.0 of host here"});
  CHECK(ranks.logs[1] ==
        std::set<std::string>{"context on GPU 1",
                              "NCCL rank 1 of 2 on GPU 0000:01:00.0 of host here"});
  CHECK(ranks.document.at("warnings").dump().find("share a GPU") == std::string::npos);
  CHECK(ranks.document.at("backend").at("gpu").at("gpus") == 2);
}

TEST_CASE("processes that share a GPU come to NCCL as hosts of their own, and say so") {
  const Ranks ranks = run_on(1);
  CHECK(ranks.logs[0] ==
        std::set<std::string>{"context on GPU 0",
                              "NCCL rank 0 of 2 on GPU 0000:00:00.0 of host sp-plan-rank-0"});
  CHECK(ranks.logs[1] ==
        std::set<std::string>{"context on GPU 0",
                              "NCCL rank 1 of 2 on GPU 0000:00:00.0 of host sp-plan-rank-1"});
  CHECK(ranks.document.at("backend").at("gpu").at("gpus") == 1);
  const std::string warnings = ranks.document.at("warnings").dump();
  CHECK(warnings.find("ranks share a GPU over NCCL") != std::string::npos);
}
