// The kernels of a layer beside attention, and those that a step has beside its layers, as probes:
// which shapes are timed, and what each kernel reads and writes. A linear layer y [M,N] = x [M,K] w
// [K,N] has three GEMMs; row-wise functions are counted by the bytes they touch.
#pragma once

#include "runtime/calibrate/probes.hpp"
#include "schedule/op.hpp"

#include <variant>
#include <vector>

namespace spp::runtime {

/// A tensor that a kernel reads or writes: rows x heads x width numbers, `middle` plus or minus
/// `reach`. `ref`: of the kernel's own graph, or of attention.
struct LayerOperand {
  TensorRef ref;
  std::int64_t rows = 0;
  int heads = 1;
  std::int64_t width = 1;
  DType dtype = DType::fp32;
  float middle = 0;
  float reach = 1;
  bool is_words = false;  // its numbers say which rows of another operand are touched
  int in_place = -1;      // of one that is written: which of those read it is
  [[nodiscard]] std::int64_t bytes() const { return rows * heads * width * size_of(dtype); }
  [[nodiscard]] Buffer buffer(BufferRole role) const;
};

/// Operands in the order that the op has them (schedule/op.hpp).
struct LayerKernel {
  std::variant<GemmKind, RowFunction> what;
  Graph graph;  // of one definition
  std::vector<LayerOperand> reads, writes;
  std::int64_t tokens = 0;  // of x, whose rows are read; of an update rows of the parameter

  /// The op on these buffers, where the definition has another number.
  [[nodiscard]] OpBody on(const BufferList& read, const BufferList& written, int definition) const;
  /// Bytes, as schedule/measure.hpp counts them.
  [[nodiscard]] std::int64_t touched() const;
};
LayerKernel kernel_of(const GemmBlock& gemm);
/// `shape`: heads, their dimension and the type (row_operands.cpp).
LayerKernel kernel_of(const RowWork& work, const Problem& shape);
/// The function over values of so many bytes in fp32, in rows as wide as models have them; of an
/// embedding a table of so many, of an update all that it reads.
RowWork work_of(const RowFunction& function, std::int64_t bytes, const Problem& shape);

/// GEMMs of few and many rows, narrow, square and wide, of all three kinds, by rising FLOPs: those
/// whose operands have at most `largest` bytes each, the smallest anyway.
std::vector<Probe> gemm_probes(DType dtype, const Crew& crew, std::int64_t largest);
/// Every row-wise function and its gradient, over values (logits, parameters, tables) of 256 KiB,
/// 2 MiB, … in fp32, up to `largest`. Sizes are bytes touched.
std::vector<Probe> row_probes(const Problem& shape, const Crew& crew, std::int64_t largest);

}  // namespace spp::runtime
