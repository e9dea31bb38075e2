// A gate on a stream: what is enqueued behind it waits on the device until the host opens it. So
// the host can put a whole program on its streams before the clock starts, and nothing that it does
// (launches, meeting peers) counts as time of the device.
//
// A gate opens by itself after a while: a call that waits for the device behind a closed gate is
// late, not lost. One that was opened stays open when the next, on any stream, is closed.
#pragma once

#include "runtime/device/cuda/cuda.hpp"
#include "runtime/device/cuda/kernels.hpp"

#include <atomic>
#include <cstdint>
#include <new>

namespace spp::runtime::cuda {

class Gate {
 public:
  Gate() : flag_(new(memory_.data()) std::uint32_t(0)) {}

  void close(cudaStream_t stream) { hold_for(flag_, ++round_, patience, stream); }
  /// Harmless when it is open.
  void open() noexcept { std::atomic_ref(*flag_).store(round_); }

 private:
  static constexpr Seconds patience{2.0};

  PinnedBuffer memory_{sizeof(std::uint32_t)};
  std::uint32_t* flag_;
  std::uint32_t round_ = 0;
};

}  // namespace spp::runtime::cuda
