// The JSON of topologies/: a transport, a generation, a GPU, a machine; and a machine that says
// everything itself becomes a cluster.
#include "base/json.hpp"
#include "machine/machine_json.hpp"
#include "tests/fuzz/clusters.hpp"
#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/target.hpp"

using spp::fuzz::allow_refusal;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  allow_refusal([&] {
    const spp::Json json = spp::parse_json(spp::fuzz::text_of(data, size), "input.json");
    const spp::JsonView view(json, "input.json");
    allow_refusal([&] { (void)spp::read_transport(view); });
    allow_refusal([&] { (void)spp::read_generation(view); });
    allow_refusal([&] { (void)spp::read_gpu(view); });
    allow_refusal([&] { (void)spp::read_machine(view); });
    allow_refusal([&] { spp::fuzz::build_clusters(spp::read_whole_machine(view)); });
  });
  return 0;
}
