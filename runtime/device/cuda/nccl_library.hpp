// NCCL as it is on this machine, if it is. It is loaded at the first use and not linked: NCCL is no
// part of the driver or the toolkit, and a program linked against it would not even print its help
// on the many machines that lack it. Types are those of nccl.h at compile time; NCCL keeps its
// binary interface within a major version.
#pragma once

#include <string>

#if defined(SPP_NCCL)
#include <nccl.h>
#endif

namespace spp::runtime::cuda {

bool nccl_compiled();
/// "" if NCCL can be loaded, else why not.
std::string why_not_nccl();
/// "2.28.9"; "" if there is none.
std::string nccl_version();
/// What NCCL has written about its connections since it was loaded; "" if it was told to write
/// elsewhere (NCCL_DEBUG, NCCL_DEBUG_FILE).
std::string nccl_log();

#if defined(SPP_NCCL)

/// NCCL's calls; tests give their own.
struct NcclApi {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommSplit) split = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
};
/// Loads NCCL; BackendError if there is none.
const NcclApi& nccl_api();

#endif

}  // namespace spp::runtime::cuda
