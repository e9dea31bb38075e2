// What tests of devices need: a reason to be skipped, and tensors there and back.
#pragma once

#include "runtime/device/cuda/cuda.hpp"
#include "runtime/device/device.hpp"
#include "tests/unit/runtime/tensors.hpp"

#include <cstdint>
#include <string>

namespace spp::test {

/// CUDA, cuDNN and NCCL on the host take the place of a GPU (host_cuda.cpp and the others).
inline bool emulated() { return runtime::cuda::device_info(0).name == "threads of the host"; }

/// A tensor in device memory; `host` is its source and its destination.
class OnDevice {
 public:
  OnDevice(HostTensor& host, const runtime::cuda::Stream& stream)
      : host_(&host),
        stream_(&stream),
        memory_(static_cast<std::size_t>(host.rows().bytes())),
        rows_(host.rows()) {
    rows_.data = memory_.data();
    runtime::cuda::copy(rows_.data, host.rows().data, memory_.size(), stream.get());
    stream.synchronize();
  }
  [[nodiscard]] const runtime::Rows& rows() const { return rows_; }
  /// Into the host's tensor, after all that the stream holds.
  void fetch() const {
    runtime::cuda::copy(host_->rows().data, rows_.data, memory_.size(), stream_->get());
    stream_->synchronize();
  }

 private:
  HostTensor* host_;
  const runtime::cuda::Stream* stream_;
  runtime::cuda::DeviceBuffer memory_;
  runtime::Rows rows_;
};

}  // namespace spp::test

/// Leaves the test case where there is no device.
#define SPP_NEED_DEVICE()                                                                     \
  if (const std::string why_not = ::spp::runtime::device::why_not_cuda(); !why_not.empty()) { \
    SPP_SKIP(why_not);                                                                        \
  }
