// The JSON of topologies/ as specs. Only Catalog uses these: what a file names (a generation, a
// transport) is left as a name, for Catalog to look up.
#pragma once

#include "base/json.hpp"
#include "sim/machine.hpp"

namespace spp::sim {

TransportSpec read_transport(const JsonView& document);
GenerationSpec read_generation(const JsonView& document);
/// `generation.name` is set, the rest of the generation is not.
GpuSpec read_gpu(const JsonView& document);
/// `gpu.name`, `intra.name` and `inter->transport.name` are set, the rest of these is not;
/// `intra_rate` is set only if the file has intra.rate. `intra.medium` is what the file claims.
MachineSpec read_machine(const JsonView& document);

}  // namespace spp::sim
