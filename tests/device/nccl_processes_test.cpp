// NCCL between processes, on however few GPUs there are: two ranks as torchrun would start them. On
// one GPU they share it, each a host of its own to NCCL, so that communicators are made, split and
// used where a single GPU is all there is.
#include "base/json.hpp"
#include "runtime/device/device.hpp"
#include "tests/device/device.hpp"
#include "tests/device/two_processes.hpp"
#include "tests/support/catch.hpp"

using namespace spp;
using namespace spp::test;

TEST_CASE("two processes compute over NCCL what one device computes, be it on one GPU") {
  SPP_NEED_DEVICE();
  if (const std::string why_not = runtime::device::why_not_nccl(); !why_not.empty()) {
    SPP_SKIP(why_not);
  }
  const std::array<Result, 2> results = two_processes([](int) { return RunOptions{}; });
  INFO(results[0].err << results[1].err);
  REQUIRE(results[0].code == 0);
  REQUIRE(results[1].code == 0);
  const Json document = Json::parse(results[0].out);
  CHECK(document.at("passed") == true);
}
