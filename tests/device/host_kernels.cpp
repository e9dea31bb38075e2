// The GPU's kernels compiled by the host's compiler (runtime/device/cuda/launch.cuh says how).
#include "runtime/device/cuda/attention/reference_kernels.cu"  // NOLINT(bugprone-suspicious-include)
#include "runtime/device/cuda/expert_kernels.cu"   // NOLINT(bugprone-suspicious-include)
#include "runtime/device/cuda/kernels.cu"          // NOLINT(bugprone-suspicious-include)
#include "runtime/device/cuda/latent_kernels.cu"   // NOLINT(bugprone-suspicious-include)
#include "runtime/device/cuda/layer_kernels.cu"    // NOLINT(bugprone-suspicious-include)
#include "runtime/device/cuda/product_kernels.cu"  // NOLINT(bugprone-suspicious-include)
#include "runtime/device/cuda/word_kernels.cu"     // NOLINT(bugprone-suspicious-include)
