// Communication ops on CUDA streams: what the executor of a device enqueues. Back ends: `inproc`
// (inproc.hpp, ranks are threads that may share a GPU), `nccl` (nccl.hpp, a GPU for every rank).
//
// Same meaning as runtime/comm/collectives.hpp. A call may wait on the host until peers have come
// to the same op, never for the device: ranks that call in the order of their programs all come
// through, since the proof has run the programs in that order.
#pragma once

#include "runtime/device/cuda/cuda.hpp"
#include "runtime/ops.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spp::runtime::cuda {

/// Which op, and the stream that it is put on.
struct OpOnStream {
  cudaStream_t stream = nullptr;
  StreamId stream_id;     // ops of one stream match in order
  std::int32_t op = 0;    // in the rank's program
  std::string_view name;  // "exchange"
};

/// Of one rank, used by its thread.
class DeviceCommunicator {
 public:
  DeviceCommunicator() = default;
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;
  virtual ~DeviceCommunicator() = default;

  // Each gives the bytes that this rank sends to other ranks.
  virtual std::int64_t exchange(const OpOnStream& at, const ExchangeParts& parts) = 0;
  virtual std::int64_t all_to_all(const OpOnStream& at, const RankGroup& group,
                                  const AllToAllParts& parts) = 0;
  virtual std::int64_t all_gather(const OpOnStream& at, const RankGroup& group,
                                  const AllGatherParts& parts) = 0;
  /// Sums in fp32, which are rounded to the result's type after every 64 parts (kernels.hpp); where
  /// a library adds up parts of that type, each addition may be rounded to it.
  virtual std::int64_t reduce_scatter(const OpOnStream& at, const RankGroup& group,
                                      const ReduceScatterParts& parts) = 0;
  /// Additions may be rounded to the parts' type.
  virtual std::int64_t all_reduce(const OpOnStream& at, const RankGroup& group,
                                  const AllReduceParts& parts) = 0;

  /// Before any run: takes the memory and whatever else may wait for a device, or be slow, that an
  /// op will need. All ranks do so before one of them runs.
  virtual void prepare(const OpOnStream& /*at*/) {}
  virtual void prepare_reduce_scatter(const OpOnStream& at, const RankGroup& /*group*/,
                                      const ReduceScatterParts& /*parts*/) {
    prepare(at);
  }

  /// Around the ops of one run of a program. What comes on `at.stream` after the beginning waits on
  /// the device until all ranks have come so far.
  virtual void begin_run(const OpOnStream& at) = 0;
  virtual void end_run() noexcept {}
  /// Called while the host waits for the device: throws BackendError when the library has failed.
  virtual void poll() {}
  /// How it copies between memories of devices, if it does that itself.
  [[nodiscard]] virtual std::optional<CopyWay> copies() const { return std::nullopt; }
  /// After a failure: ends what waits for peers on the device, so that streams run dry.
  virtual void abort() noexcept {}

  /// `act` is called, again and again, while the host waits long for a peer's: that one may wait
  /// for its device, which waits for what this rank holds back.
  void when_peers_are_late(std::function<void()> act) { when_late_ = std::move(act); }

 protected:
  void peers_are_late() const {
    if (when_late_) {
      when_late_();
    }
  }

 private:
  std::function<void()> when_late_;
};

}  // namespace spp::runtime::cuda
