// What tests of devices need: a reason to be skipped, and tensors there and back.
#pragma once

#include "runtime/device/cuda/cuda.hpp"
#include "runtime/device/device.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/runtime/tensors.hpp"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

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
    send();
  }
  [[nodiscard]] const runtime::Rows& rows() const { return rows_; }
  /// What the host's tensor holds now, after all that the stream holds.
  void send() const {
    runtime::cuda::copy(rows_.data, host_->rows().data, memory_.size(), stream_->get());
    stream_->synchronize();
  }
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

/// A tensor here and a copy of it there.
struct Both {
  HostTensor host;
  OnDevice device;
  Both(DType type, const Shape& shape, std::mt19937& random, const runtime::cuda::Stream& stream)
      : host(random_tensor(type, shape, random)), device(host, stream) {}
  /// What the device has made of it lies as near to what the host has: both have rounded sums of
  /// some hundred numbers in fp32 once or twice to the type. `host` then has the device's.
  void check(DType type) {
    const std::vector<double> expected = host.values();
    device.fetch();
    const double limit = (2 * unit_of(type) + 600 * 0x1p-24) * magnitude(expected);
    CHECK(distance(host.values(), expected) <= limit);
  }
};

/// Sides of it.
inline constexpr auto host_of = [](Both& tensor) { return tensor.host.rows(); };
inline constexpr auto device_of = [](Both& tensor) { return tensor.device.rows(); };

}  // namespace spp::test

/// Leaves the test case where there is no device.
#define SPP_NEED_DEVICE()                                                                     \
  if (const std::string why_not = ::spp::runtime::device::why_not_cuda(); !why_not.empty()) { \
    SPP_SKIP(why_not);                                                                        \
  }
