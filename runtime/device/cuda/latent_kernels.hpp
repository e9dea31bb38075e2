// The kernels of runtime/kernels/latent.hpp on a device: as those of layer_kernels.hpp.
#pragma once

#include "runtime/kernels/latent.hpp"

#include <cuda_runtime_api.h>

namespace spp::runtime::cuda {

void latent_heads(const LatentHeadsArgs& args, cudaStream_t stream);
void join_latent_heads(const LatentHeadsArgs& args, cudaStream_t stream);

/// As load_kernels() in kernels.hpp.
void load_latent_kernels();

}  // namespace spp::runtime::cuda
