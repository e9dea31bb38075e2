// The kernels of runtime/kernels/experts.hpp on a device: rows point to device memory, work is put
// on `stream`. Wrong shapes are an InternalError, a launch that fails is a BackendError.
#pragma once

#include "runtime/kernels/experts.hpp"

#include <cuda_runtime_api.h>

namespace spp::runtime::cuda {

void route(const RouteArgs& args, cudaStream_t stream);
void route_backward(const RouteBackwardArgs& args, cudaStream_t stream);
void expert_swiglu(const ExpertSwigluArgs& args, cudaStream_t stream);
void expert_swiglu_backward(const ExpertSwigluBackwardArgs& args, cudaStream_t stream);

/// As load_kernels() in kernels.hpp.
void load_expert_kernels();

}  // namespace spp::runtime::cuda
