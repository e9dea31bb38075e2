// The kernels of runtime/kernels/products.hpp on a device: rows point to device memory, work is put
// on `stream`. Plain loops, as the reference attention's: nothing here is fast.
#pragma once

#include "runtime/device/cuda/attention_ops.cuh"
#include "runtime/kernels/products.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace spp::runtime::cuda {

void scores(const Rows& rows, const Rows& columns, const Rows& to, std::int64_t first,
            cudaStream_t stream);
/// `seen`: of the rows' tokens, in device memory (seen_rows.hpp).
void softmax(const Rows& scores, const Rows& weights, const SeenKeyRows* seen, float scale,
             cudaStream_t stream);
void softmax_backward(const Rows& weights, const Rows& d_weights, const Rows& d_scores, float scale,
                      cudaStream_t stream);
void weigh(const Rows& weights, const Rows& values, const Rows& to, std::int64_t first,
           bool initial, cudaStream_t stream);
void weigh_back(const Rows& weights, const Rows& rows, const Rows& to, std::int64_t first,
                cudaStream_t stream);

/// Room for states of chunks: fp32 in device memory, linear_bytes() of it.
struct LinearRoom {
  std::byte* data = nullptr;
  std::int64_t chunk = 1;  // rows of one
};
/// For linear_forward; linear_backward needs as much, too.
std::int64_t linear_bytes(const Rows& k, std::int64_t chunk);
void linear_forward(const Rows& q, const Rows& k, const Rows& v, const Rows& out,
                    const LinearRoom& room, cudaStream_t stream);
void linear_backward(const LinearBackwardArgs& args, const LinearRoom& room, cudaStream_t stream);

void make_state(const Rows& rows, const Rows& values, const Rows& to, cudaStream_t stream);
void sum_states(const Rows& from, const Rows& to, cudaStream_t stream);
void apply_state(const Rows& rows, const Rows& state, const Rows& to, StateUse use,
                 cudaStream_t stream);

/// As load_kernels() in kernels.hpp.
void load_product_kernels();

}  // namespace spp::runtime::cuda
