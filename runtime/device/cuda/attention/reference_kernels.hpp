// Launches the ops of attention_ops.cuh. `seen` is in device memory.
#pragma once

#include "runtime/device/cuda/attention_ops.cuh"
#include "runtime/kernels/attention.hpp"

#include <cuda_runtime_api.h>

namespace spp::runtime::cuda {

void reference_forward(const AttentionForwardArgs& args, const SeenKeyRows* seen,
                       cudaStream_t stream);
void reference_backward(const AttentionBackwardArgs& args, const SeenKeyRows* seen,
                        cudaStream_t stream);

/// As load_kernels() of runtime/device/cuda/kernels.hpp.
void load_reference_kernels();

}  // namespace spp::runtime::cuda
