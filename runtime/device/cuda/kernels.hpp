// The kernels around attention, on a device: same meaning as runtime/kernels/elementwise.hpp, rows
// point to device memory, work is put on `stream`. Wrong shapes are an InternalError, a launch that
// fails is a BackendError.
#pragma once

#include "base/units.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

namespace spp::runtime::cuda {

void row_dot(const Rows& out, const Rows& d_out, const Rows& delta, cudaStream_t stream);
void merge(const Rows& out, const Rows& lse, const Rows& part_out, const Rows& part_lse,
           bool initial, cudaStream_t stream);
void sink(const SinkArgs& args, cudaStream_t stream);
void sink_backward(const SinkBackwardArgs& args, cudaStream_t stream);
void rescale(const Rows& out, const Rows& lse, const Rows& gathered, const Rows& scaled,
             const Rows& global_lse, cudaStream_t stream);
void accumulate(const Rows& sum, const Rows& part, bool initial, cudaStream_t stream);
void fill(const Rows& rows, float value, cudaStream_t stream);
/// out = delta / |d_out|^2 * d_out, row by row: rows with rowsum(d_out * out) = delta.
void project(const Rows& d_out, const Rows& delta, const Rows& out, cudaStream_t stream);
void move(const Box& from, const Box& to, std::int64_t rows, std::int64_t batch, int heads,
          int width, bool add, cudaStream_t stream);

/// to [columns, rows] <- from [rows, columns], fp32.
void transpose(const std::byte* from, std::byte* to, std::int64_t rows, std::int64_t columns,
               cudaStream_t stream);

/// Elements [0, count) of `to` <- the sum of those of all parts, in fp32, in the order of `parts`;
/// rounded to its type after every 64 of them, which is what one kernel takes.
struct SumArgs {
  std::span<const std::byte* const> parts;
  DType from = DType::fp32;
  std::byte* to = nullptr;
  DType to_type = DType::fp32;
  std::int64_t count = 0;
};
void sum(const SumArgs& args, cudaStream_t stream);

/// *at <- the device's clock, in ns.
void stamp(std::uint64_t* at, cudaStream_t stream);
/// The stream goes on when `after` has passed since *at. One warp spins, which fits beside the
/// blocks of attention on an SM.
void hold_until(const std::uint64_t* at, Seconds after, cudaStream_t stream);
/// The stream goes on when *flag, memory of the host, is `value`, or `patience` has passed.
void hold_for(const std::uint32_t* flag, std::uint32_t value, Seconds patience,
              cudaStream_t stream);

/// Brings all kernels of this file to the current device. CUDA loads a kernel at its first launch
/// otherwise, and may wait for the whole device then.
void load_kernels();

}  // namespace spp::runtime::cuda
