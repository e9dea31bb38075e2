// Two shapes of kernels, made from functors ("ops") that know nothing of grids:
//
//   for_each   op(i) for i in [0, count), in any order
//   for_rows   rows that are worked on by a few neighbouring threads together:
//                State begin(row)               every thread of the row; reads
//                void piece(row, i, State&)     for i in [0, pieces), each by one thread
//                void end(row, State)           one thread, after all have begun; may overwrite
//                                               what begin() has read
//              With Op::sums, State is a number, added up over the threads before end().
//
// Ops are SPP_HOST_DEVICE. Compiled by a host compiler instead of nvcc, the same ops run one index
// after the other as a host function of the stream: so tests without a GPU run all of them.
#pragma once

#include "runtime/device/cuda/cuda.hpp"
#include "runtime/kernels/host_device.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

namespace spp::runtime::cuda {

#if defined(__CUDACC__)

inline constexpr int block_threads = 256;
inline constexpr std::int64_t most_blocks = 4096;  // enough for any GPU; more work: grid-stride

template <class Op>
__global__ void each_kernel(std::int64_t count, const Op op) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    op(i);
  }
}

/// `lanes`, a power of two up to 32, threads a row.
template <class Op>
__global__ void rows_kernel(std::int64_t rows, std::int64_t pieces, int lanes, const Op op) {
  constexpr int warp = 32;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int team = static_cast<int>(threadIdx.x) % warp / lanes;
  const std::int64_t teams = warp / lanes;  // of a warp
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / warp * teams;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x / warp * teams;
  for (std::int64_t base = first; base < rows; base += step) {  // alike for a whole warp
    const std::int64_t row = base + team;
    const bool mine = row < rows;
    typename Op::State state{};
    if (mine) {
      state = op.begin(row);
      for (std::int64_t i = lane; i < pieces; i += lanes) {
        op.piece(row, i, state);
      }
    }
    if constexpr (Op::sums) {
      for (int offset = lanes / 2; offset > 0; offset /= 2) {
        state += __shfl_xor_sync(0xffffffffU, state, offset);
      }
    }
    __syncwarp();
    if (mine && lane == 0) {
      op.end(row, state);
    }
  }
}

inline unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>(
      std::clamp<std::int64_t>((threads + block_threads - 1) / block_threads, 1, most_blocks));
}

template <class Op>
void for_each(cudaStream_t stream, std::int64_t count, const Op& op) {
  if (count > 0) {
    each_kernel<<<blocks_for(count), block_threads, 0, stream>>>(count, op);
    check(cudaGetLastError(), Op::name);
  }
}

template <class Op>
void for_rows(cudaStream_t stream, std::int64_t rows, std::int64_t pieces, const Op& op) {
  int lanes = 1;
  while (lanes < 32 && lanes < pieces) {
    lanes *= 2;
  }
  if (rows > 0) {
    rows_kernel<<<blocks_for(rows * lanes), block_threads, 0, stream>>>(rows, pieces, lanes, op);
    check(cudaGetLastError(), Op::name);
  }
}

#else

inline void on_host(cudaStream_t stream, std::function<void()> work, std::string_view name) {
  auto owned = std::make_unique<std::function<void()>>(std::move(work));
  check(cudaLaunchHostFunc(
            stream,
            [](void* data) {
              const std::unique_ptr<std::function<void()>> mine(
                  static_cast<std::function<void()>*>(data));
              (*mine)();
            },
            owned.get()),
        name);
  (void)owned.release();  // the function deletes it
}

template <class Op>
void for_each(cudaStream_t stream, std::int64_t count, const Op& op) {
  on_host(
      stream,
      [count, op] {
        for (std::int64_t i = 0; i < count; ++i) {
          op(i);
        }
      },
      Op::name);
}

template <class Op>
void for_rows(cudaStream_t stream, std::int64_t rows, std::int64_t pieces, const Op& op) {
  on_host(
      stream,
      [rows, pieces, op] {
        for (std::int64_t row = 0; row < rows; ++row) {
          typename Op::State state = op.begin(row);
          for (std::int64_t i = 0; i < pieces; ++i) {
            op.piece(row, i, state);
          }
          op.end(row, state);
        }
      },
      Op::name);
}

#endif

}  // namespace spp::runtime::cuda
