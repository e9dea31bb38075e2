// A calibration profile. What is read is a machine that clusters are built of, and calibrates
// itself.
#include "machine/profile.hpp"

#include "tests/fuzz/clusters.hpp"
#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  spp::fuzz::allow_refusal([&] {
    const spp::Json json = spp::parse_json(spp::fuzz::text_of(data, size), "profile.json");
    const spp::Profile profile = spp::read_profile(spp::JsonView(json, "profile.json"));
    spp::ensure(profile.nodes >= 1, "a profile of no nodes");
    spp::fuzz::build_clusters(spp::calibrated(profile.machine, profile, "--profile"));
  });
  return 0;
}
