// The JSON of topologies/: a transport, a generation, a GPU, a machine; and a machine that says
// everything itself becomes a cluster.
#include "base/json.hpp"
#include "machine/machine_json.hpp"
#include "tests/fuzz/clusters.hpp"
#include "tests/fuzz/target.hpp"

namespace spp::fuzz::targets::machine {

extern const Target entry{"machine", Form::json, [](std::string_view text) {
                            allow_refusal([&] {
                              const Json json = parse_json(text, "input.json");
                              const JsonView view(json, "input.json");
                              allow_refusal([&] { (void)read_transport(view); });
                              allow_refusal([&] { (void)read_generation(view); });
                              allow_refusal([&] { (void)read_gpu(view); });
                              allow_refusal([&] { (void)read_machine(view); });
                              allow_refusal([&] { build_clusters(read_whole_machine(view)); });
                            });
                          }};

}  // namespace spp::fuzz::targets::machine
