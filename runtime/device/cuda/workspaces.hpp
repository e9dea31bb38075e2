// What a rank on a device needs beside the buffers of its programs, told before anything is
// allocated. About: cuDNN's plans are not compiled for it, and nobody but NCCL knows its buffers.
#pragma once

#include "runtime/device/cuda/attention.hpp"
#include "schedule/storage.hpp"

#include <span>
#include <vector>

namespace spp::runtime::cuda {

using PhasesOfAll = std::span<const std::vector<StoredProgram>* const>;  // programs of all ranks

/// What an op that is no fused attention needs beside its buffers, for itself; 0 of most.
Bytes room_of(const OpBody& body, const Schedule& schedule, std::span<const Buffer> buffers);

/// Workspaces of attention and of GEMMs, and room_of() all ops: every stream with attention has
/// one, of its largest call, in each phase, every stream with GEMMs one more. `schedule`: of any
/// phase.
Bytes attention_workspaces(const DeviceAttentionBackend& attention, Rank rank,
                           const Schedule& schedule, PhasesOfAll phases);

/// Over NCCL: the buffers of its channels to peers (as many as over NVLink), and where the parts of
/// a reduce_scatter come together that it does not add up itself (nccl.hpp), once for every stream.
Bytes nccl_workspaces(Rank rank, const Schedule& schedule, PhasesOfAll phases);

}  // namespace spp::runtime::cuda
