// GEMMs of a device by cuBLASLt: fp32 sums, rounded once. Same meaning as
// AttentionKernels::gemm; rows point to device memory, work is put on a stream.
//
// Ours are row-major, cuBLAS's column-major: what it takes for X^T is our X as it lies in memory.
// So it is asked for c^T = op(b)^T op(a)^T, operands exchanged, and nothing is moved.
#pragma once

#include "base/units.hpp"
#include "runtime/device/cuda/cuda.hpp"
#include "runtime/kernels/layer.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>

namespace spp::runtime::cuda {

/// "" if there is a cuBLASLt, else why not.
std::string cublas_why_not();

/// Of one rank: keeps what it has asked for, is used by one thread, and on one stream at a time.
class CublasGemm {
 public:
  /// `streams`: where its streams come from; null: the primary context. BackendError if there is no
  /// cuBLASLt.
  explicit CublasGemm(const StreamSource* streams);
  CublasGemm(const CublasGemm&) = delete;
  CublasGemm& operator=(const CublasGemm&) = delete;
  ~CublasGemm();

  /// Whether cuBLAS has such a product: a and b of one type, c of the same or of fp32, none of them
  /// empty.
  static bool takes(const GemmArgs& args);
  /// For cuBLAS to work in, on a boundary of 256 bytes: as much as its documentation asks for on
  /// Hopper, and enough elsewhere.
  static constexpr Bytes workspace{std::int64_t{32} << 20};

  /// Whether one of this shape, types and alignment was run.
  [[nodiscard]] bool knows(const GemmArgs& args) const;
  /// Of what it takes. The first of a shape asks cuBLAS how, which takes it about 100 us.
  void run(const GemmArgs& args, std::byte* room, cudaStream_t stream);

 private:
  class Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace spp::runtime::cuda
