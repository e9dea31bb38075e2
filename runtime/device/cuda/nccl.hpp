// `nccl`: a GPU for every rank; ranks are threads or processes. The control plane (a Transport)
// carries the unique id; everything else is NCCL.
//
//   exchange, all_to_all   grouped ncclSend and ncclRecv
//   all_gather             ncclAllGather where the parts lie one after the other, else grouped
//   reduce_scatter         ncclReduceScatter where they do and the type stays the same (each
//                          addition is rounded to it, as on the host), else grouped sends and
//                          receives and a sum in fp32
//   all_reduce             ncclAllReduce
//
// The communicator of all ranks, from which the others are split, is non-blocking: what must wait
// for peers is polled, so that an abort of the run, a failure inside NCCL or a time-out ends it
// with a BackendError. Those that ops use are blocking: NCCL starts a thread for every group of a
// non-blocking one, which takes longer than a small message. A host thread that is stuck inside a
// call, waiting for a peer or because the device's queue is full of work that never ends, is freed
// by a watchdog thread, which aborts the communicators.
#pragma once

#include "runtime/device/cuda/communicator.hpp"
#include "runtime/device/cuda/nccl_library.hpp"
#include "runtime/engine.hpp"

#include <memory>
#include <string>
#include <vector>

namespace spp::runtime::cuda {

/// For the rank of parts.transport, on the current device. All ranks call it together. BackendError
/// if NCCL is not there.
std::unique_ptr<DeviceCommunicator> make_nccl_communicator(const EngineParts& parts);

#if defined(SPP_NCCL)
/// The same over calls that a test brings along.
std::unique_ptr<DeviceCommunicator> make_nccl_communicator(const EngineParts& parts,
                                                           const NcclApi& api);
#endif

}  // namespace spp::runtime::cuda
