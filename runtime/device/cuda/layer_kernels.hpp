// The kernels of runtime/kernels/layer.hpp on a device: rows point to device memory, work is put on
// `stream`. Wrong shapes are an InternalError, a launch that fails is a BackendError.
#pragma once

#include "runtime/kernels/layer.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace spp::runtime::cuda {

/// Plain loops in fp32, obvious and slow, of any types: what `reference` attention is to attention.
void gemm(const GemmArgs& args, cudaStream_t stream);

void add_bias(const BiasArgs& args, cudaStream_t stream);
void bias_gradient(const BiasGradientArgs& args, cudaStream_t stream);
void bias_weights_gradient(const BiasWeightsArgs& args, cudaStream_t stream);

void rms_norm(const NormArgs& args, float epsilon, cudaStream_t stream);
void layer_norm(const NormArgs& args, float epsilon, cudaStream_t stream);

/// What a norm's backward keeps beside its rows in device memory, on a float's boundary: sums over
/// slices of rows, so that the weight's gradient adds up in the same order every time.
std::int64_t norm_backward_bytes(const Rows& x, const Rows& weight);
void rms_norm_backward(const NormBackwardArgs& args, std::byte* room, cudaStream_t stream);
void layer_norm_backward(const NormBackwardArgs& args, std::byte* room, cudaStream_t stream);

void split_heads(const SplitHeadsArgs& args, cudaStream_t stream);
/// What the backward through norms of heads keeps beside them, on a float's boundary.
std::int64_t join_heads_bytes(const Rows& q, const Rows& k);
/// `room`: where heads are normed.
void join_heads(const JoinHeadsArgs& args, std::byte* room, cudaStream_t stream);

void swiglu(const Rows& gate, const Rows& up, const Rows& a, cudaStream_t stream);
void swiglu_backward(const SwigluBackwardArgs& args, cudaStream_t stream);
void gelu(const Rows& h, const Rows& a, cudaStream_t stream);
void gelu_backward(const Rows& h, const Rows& d_a, const Rows& d_h, cudaStream_t stream);
void add(const Rows& x, const Rows& y, const Rows& z, cudaStream_t stream);

/// As load_kernels() in kernels.hpp.
void load_layer_kernels();

}  // namespace spp::runtime::cuda
