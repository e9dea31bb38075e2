// What cuBLASLt asks of those who call it (host_cublas.cpp), and how often it is asked.
#include "base/error.hpp"
#include "runtime/device/cuda/cublas/gemm.hpp"
#include "runtime/device/cuda/green_context.hpp"
#include "tests/device/device.hpp"
#include "tests/device/host_cuda.hpp"
#include "tests/support/catch.hpp"

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

/// 3 x 4 x 5, in memory of a device.
struct Operands {
  std::mt19937 random{31};
  Both a, b, c;
  explicit Operands(const cuda::Stream& stream)
      : a(DType::bf16, {3, 1, 1, 5}, random, stream),
        b(DType::bf16, {5, 1, 1, 4}, random, stream),
        c(DType::fp32, {3, 1, 1, 4}, random, stream) {}
  GemmArgs args() { return {.a = a.device.rows(), .b = b.device.rows(), .c = c.device.rows()}; }
};

}  // namespace

TEST_CASE("cuBLAS is asked once how to multiply a shape") {
  if (const std::string why = cuda::cublas_why_not(); !why.empty()) {
    SPP_SKIP(why);
  }
  const cuda::Stream stream(0);
  Operands operands(stream);
  const cuda::DeviceBuffer room(static_cast<std::size_t>(cuda::CublasGemm::workspace.value()));
  cuda::CublasGemm gemm(nullptr);
  const int before = host::seen().gemm_heuristics;
  GemmArgs args = operands.args();
  gemm.run(args, room.data(), stream.get());
  args.add = true;  // of the same sums
  gemm.run(args, room.data(), stream.get());
  CHECK(host::seen().gemm_heuristics == before + 1);
  CHECK(host::seen().gemm_sms == 132);
  // Of fewer rows it may be another one; and of the same rows elsewhere, where memory is less
  // aligned.
  args.a.count = 2;
  args.c.count = 2;
  gemm.run(args, room.data(), stream.get());
  CHECK(host::seen().gemm_heuristics == before + 2);
  args.a.data += matrix_columns(args.a) * size_of(args.a.dtype);
  gemm.run(args, room.data(), stream.get());
  CHECK(host::seen().gemm_heuristics == before + 3);
  stream.synchronize();
}

TEST_CASE("cuBLAS runs in the context of its streams, for the SMs of their share") {
  if (const std::string why = cuda::cublas_why_not(); !why.empty()) {
    SPP_SKIP(why);
  }
  const auto shares = cuda::split_device(0, 4);
  const cuda::Stream stream(0, shares[1].get());
  Operands operands(stream);
  const cuda::DeviceBuffer room(static_cast<std::size_t>(cuda::CublasGemm::workspace.value()));
  cuda::CublasGemm gemm(shares[1].get());
  gemm.run(operands.args(), room.data(), stream.get());
  stream.synchronize();
  CHECK(host::seen().gemm_sms == 32);
}

TEST_CASE("cuBLAS takes what it has: one type for what is multiplied, that or fp32 for the sum") {
  const cuda::Stream stream(0);
  Operands operands(stream);
  const auto takes = [&](DType a, DType b, DType c) {
    GemmArgs args = operands.args();
    args.a.dtype = a;
    args.b.dtype = b;
    args.c.dtype = c;
    return cuda::CublasGemm::takes(args);
  };
  CHECK(takes(DType::bf16, DType::bf16, DType::bf16));
  CHECK(takes(DType::fp16, DType::fp16, DType::fp32));
  CHECK(takes(DType::fp32, DType::fp32, DType::fp32));
  CHECK_FALSE(takes(DType::bf16, DType::fp32, DType::fp32));
  CHECK_FALSE(takes(DType::bf16, DType::bf16, DType::fp16));
  CHECK_FALSE(takes(DType::fp32, DType::fp32, DType::bf16));
  GemmArgs none = operands.args();
  none.a.count = 0;
  none.c.count = 0;
  CHECK_FALSE(cuda::CublasGemm::takes(none));
}
