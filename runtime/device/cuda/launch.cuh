// Three shapes of kernels, made from functors ("ops") that know nothing of grids:
//
//   for_each   op(i) for i in [0, count), in any order
//   for_rows   rows that are worked on by a few neighbouring threads together:
//                State begin(row)               every thread of the row; reads
//                void piece(row, i, State&)     for i in [0, pieces), each by one thread
//                void end(row, State)           one thread, after all have begun; may overwrite
//                                               what begin() has read
//              With Op::sums, State is a number, added up over the threads before end().
//   for_passes rows likewise, whose pieces depend on sums over the row. State is a RowSums:
//                void add(int pass, row, i, State&)
//                                               each pass over all pieces, to of[pass]; the
//                                               passes before it have those of the whole row
//                void piece(row, i, const State&)
//                                               after all passes; may overwrite what they have
//                                               read of this piece
//                void end(row, const State&)    one thread
//
// Op::threads, where there is one, is the size of a block. Ops are SPP_HOST_DEVICE. Compiled by a
// host compiler instead of nvcc, the same ops run one index after the other: a launch then hands
// cudaLaunchKernel the address of a tag for the kernel and, as its only argument, a function that
// does the work, for a runtime that knows what to do with it. So tests without a GPU run all ops.
#pragma once

#include "runtime/device/cuda/cuda.hpp"
#include "runtime/kernels/host_device.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

namespace spp::runtime::cuda {

inline constexpr std::int64_t most_blocks = 4096;  // enough for any GPU; more work: grid-stride

template <class Op>
constexpr int threads_of() {
  if constexpr (requires { Op::threads; }) {
    return Op::threads;
  } else {
    return 256;
  }
}
/// For so many threads, as far as there are blocks.
template <class Op>
unsigned blocks_for(std::int64_t threads) {
  constexpr std::int64_t block = threads_of<Op>();
  return static_cast<unsigned>(
      std::clamp<std::int64_t>((threads + block - 1) / block, 1, most_blocks));
}
/// Threads that work on a row.
inline int lanes_for(std::int64_t pieces) {
  int lanes = 1;
  while (lanes < 32 && lanes < pieces) {
    lanes *= 2;
  }
  return lanes;
}

/// Sums over a row, `Numbers` of them for each of some passes.
template <int Passes, int Numbers>
struct RowSums {
  static constexpr int passes = Passes;
  float of[Passes][Numbers] = {};
};

#if defined(__CUDACC__)

template <class Op>
__global__ void each_kernel(std::int64_t count, const Op op) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    op(i);
  }
}

/// body(row, lane, mine) for the rows of the calling thread, `lanes`, a power of two up to 32,
/// threads a row. As often for all threads of a warp, which may meet in it; a row that is not
/// `mine` is none.
template <class Body>
__device__ void for_rows_of_thread(std::int64_t rows, int lanes, const Body& body) {
  constexpr int warp = 32;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int team = static_cast<int>(threadIdx.x) % warp / lanes;
  const std::int64_t teams = warp / lanes;  // of a warp
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / warp * teams;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x / warp * teams;
  for (std::int64_t base = first; base < rows; base += step) {  // alike for a whole warp
    body(base + team, lane, base + team < rows);
  }
}

/// x of all threads of a row.
template <class Number>
__device__ void add_up(Number& x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xffffffffU, x, offset);
  }
}

template <class Op>
__global__ void rows_kernel(std::int64_t rows, std::int64_t pieces, int lanes, const Op op) {
  for_rows_of_thread(rows, lanes, [&](std::int64_t row, int lane, bool mine) {
    typename Op::State state{};
    if (mine) {
      state = op.begin(row);
      for (std::int64_t i = lane; i < pieces; i += lanes) {
        op.piece(row, i, state);
      }
    }
    if constexpr (Op::sums) {
      add_up(state, lanes);
    }
    __syncwarp();
    if (mine && lane == 0) {
      op.end(row, state);
    }
  });
}

template <class Op>
__global__ void passes_kernel(std::int64_t rows, std::int64_t pieces, int lanes, const Op op) {
  for_rows_of_thread(rows, lanes, [&](std::int64_t row, int lane, bool mine) {
    typename Op::State state{};
    for (int pass = 0; pass < Op::State::passes; ++pass) {
      for (std::int64_t i = lane; mine && i < pieces; i += lanes) {
        op.add(pass, row, i, state);
      }
      for (float& sum : state.of[pass]) {
        add_up(sum, lanes);
      }
    }
    for (std::int64_t i = lane; mine && i < pieces; i += lanes) {
      op.piece(row, i, state);
    }
    if (mine && lane == 0) {
      op.end(row, state);
    }
  });
}

template <class Op>
void load_each() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(each_kernel<Op>)),
        Op::name);
}
template <class Op>
void load_rows() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(rows_kernel<Op>)),
        Op::name);
}
template <class Op>
void load_passes() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(passes_kernel<Op>)),
        Op::name);
}

template <class Op>
void for_each(cudaStream_t stream, std::int64_t count, const Op& op) {
  if (count > 0) {
    each_kernel<<<blocks_for<Op>(count), threads_of<Op>(), 0, stream>>>(count, op);
    check(cudaGetLastError(), Op::name);
  }
}

template <class Op>
void for_rows(cudaStream_t stream, std::int64_t rows, std::int64_t pieces, const Op& op) {
  const int lanes = lanes_for(pieces);
  if (rows > 0) {
    rows_kernel<<<blocks_for<Op>(rows * lanes), threads_of<Op>(), 0, stream>>>(rows, pieces, lanes,
                                                                               op);
    check(cudaGetLastError(), Op::name);
  }
}

template <class Op>
void for_passes(cudaStream_t stream, std::int64_t rows, std::int64_t pieces, const Op& op) {
  const int lanes = lanes_for(pieces);
  if (rows > 0) {
    passes_kernel<<<blocks_for<Op>(rows * lanes), threads_of<Op>(), 0, stream>>>(rows, pieces,
                                                                                 lanes, op);
    check(cudaGetLastError(), Op::name);
  }
}

#else

template <class Op>
inline constexpr char kernel_tag = 0;

template <class Op>
void load_each() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, &kernel_tag<Op>), Op::name);
}
template <class Op>
void load_rows() {
  load_each<Op>();
}
template <class Op>
void load_passes() {
  load_each<Op>();
}

template <class Op>
void on_host(cudaStream_t stream, std::int64_t threads, std::function<void()> work) {
  auto owned = std::make_unique<std::function<void()>>(std::move(work));
  void* arguments[] = {owned.get()};
  check(cudaLaunchKernel(&kernel_tag<Op>, dim3(blocks_for<Op>(threads)), dim3(threads_of<Op>()),
                         arguments, 0, stream),
        Op::name);
  [[maybe_unused]] const auto* given = owned.release();  // whoever runs it deletes it
}

template <class Op>
void for_each(cudaStream_t stream, std::int64_t count, const Op& op) {
  if (count > 0) {
    on_host<Op>(stream, count, [count, op] {
      for (std::int64_t i = 0; i < count; ++i) {
        op(i);
      }
    });
  }
}

template <class Op>
void for_rows(cudaStream_t stream, std::int64_t rows, std::int64_t pieces, const Op& op) {
  if (rows > 0) {
    on_host<Op>(stream, rows * lanes_for(pieces), [rows, pieces, op] {
      for (std::int64_t row = 0; row < rows; ++row) {
        typename Op::State state = op.begin(row);
        for (std::int64_t i = 0; i < pieces; ++i) {
          op.piece(row, i, state);
        }
        op.end(row, state);
      }
    });
  }
}

template <class Op>
void for_passes(cudaStream_t stream, std::int64_t rows, std::int64_t pieces, const Op& op) {
  if (rows > 0) {
    on_host<Op>(stream, rows * lanes_for(pieces), [rows, pieces, op] {
      for (std::int64_t row = 0; row < rows; ++row) {
        typename Op::State state{};
        for (int pass = 0; pass < Op::State::passes; ++pass) {
          for (std::int64_t i = 0; i < pieces; ++i) {
            op.add(pass, row, i, state);
          }
        }
        for (std::int64_t i = 0; i < pieces; ++i) {
          op.piece(row, i, state);
        }
        op.end(row, state);
      }
    });
  }
}

#endif

}  // namespace spp::runtime::cuda
