// The JSON of topologies/ as specs. Only Catalog, profiles and imports use these. What a file names
// (a generation, a transport) is left as a name, for Catalog to look up; a profile has the thing
// itself in place of its name, in the same format.
#pragma once

#include "base/json.hpp"
#include "machine/machine.hpp"

namespace spp {

TransportSpec read_transport(const JsonView& document);
GenerationSpec read_generation(const JsonView& document);
/// `generation.name` is set, the rest of the generation is not.
GpuSpec read_gpu(const JsonView& document);
/// `gpu.name`, `intra.name` and `inter->transport.name` are set, the rest of these is not;
/// `intra_rate` is set only if the file has intra.rate. `intra.medium` is what the file claims.
/// In place of these names the things themselves may stand.
MachineSpec read_machine(const JsonView& document);
/// A machine that says everything itself: `gpu`, its `generation`, `intra.transport` and
/// `inter.transport` are objects in the formats above. Complete and checked.
MachineSpec read_whole_machine(const JsonView& document);

/// What is left when all parts of `machine` are there: the file's claim about the medium inside a
/// node is true, rates that it leaves open are the transport's, and everything fits (check).
void complete(MachineSpec& machine, const std::string& claimed_medium, std::string_view where);

}  // namespace spp
