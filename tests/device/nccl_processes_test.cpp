// NCCL between processes, on however few GPUs there are: two ranks as torchrun would start them. On
// one GPU they share it, each a host of its own to NCCL, so that communicators are made, split and
// used where a single GPU is all there is.
#include "base/json.hpp"
#include "runtime/device/device.hpp"
#include "tests/cli/program.hpp"
#include "tests/device/device.hpp"
#include "tests/support/catch.hpp"

#include <unistd.h>

#include <array>
#include <thread>

using namespace spp;
using namespace spp::test;

TEST_CASE("two processes compute over NCCL what one device computes, be it on one GPU") {
  SPP_NEED_DEVICE();
  if (const std::string why_not = runtime::device::why_not_nccl(); !why_not.empty()) {
    SPP_SKIP(why_not);
  }
  const std::string port = std::to_string(20000 + ::getpid() % 20000);
  std::array<Result, 2> results;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      results[static_cast<std::size_t>(rank)] = sp_plan(
          "run --device cuda --comm nccl --kernels reference --heads 4 --kv-heads 2 "
          "--head-dim 64 --seq 512 --ulysses 1 --ring 2 --iters 2 --check --json",
          {.environment = {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", "2"},
                           {"LOCAL_RANK", std::to_string(rank)},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", port}}});
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  INFO(results[0].err << results[1].err);
  REQUIRE(results[0].code == 0);
  REQUIRE(results[1].code == 0);
  const Json document = Json::parse(results[0].out);
  CHECK(document.at("passed") == true);
}
