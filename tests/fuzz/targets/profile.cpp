// A calibration profile. What is read is a machine that clusters are built of, and calibrates
// itself.
#include "machine/profile.hpp"

#include "tests/fuzz/clusters.hpp"
#include "tests/fuzz/target.hpp"

namespace spp::fuzz::targets::profile {

extern const Target entry{"profile", Form::json, [](std::string_view text) {
                            allow_refusal([&] {
                              const Json json = parse_json(text, "profile.json");
                              const Profile profile = read_profile(JsonView(json, "profile.json"));
                              ensure(profile.nodes >= 1, "a profile of no nodes");
                              build_clusters(calibrated(profile.machine, profile, "--profile"));
                            });
                          }};

}  // namespace spp::fuzz::targets::profile
