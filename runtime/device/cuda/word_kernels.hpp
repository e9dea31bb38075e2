// The kernels of runtime/kernels/words.hpp on a device: rows point to device memory, work is put on
// `stream`. Wrong shapes are an InternalError, a launch that fails is a BackendError.
#pragma once

#include "runtime/kernels/words.hpp"

#include <cuda_runtime_api.h>

namespace spp::runtime::cuda {

void embedding(const EmbeddingArgs& args, cudaStream_t stream);
void embedding_backward(const EmbeddingBackwardArgs& args, cudaStream_t stream);
void word_sums(const WordSumsArgs& args, cudaStream_t stream);
void word_loss(const WordLossArgs& args, cudaStream_t stream);
void word_sums_backward(const WordSumsBackwardArgs& args, cudaStream_t stream);
void adam(const AdamArgs& args, cudaStream_t stream);

/// As load_kernels() in kernels.hpp.
void load_word_kernels();

}  // namespace spp::runtime::cuda
