// The kernels of a layer beside attention, and of a step beside its layers, as a calibration timed
// them on one machine: the object "layer" of a generation. Generations of topologies/ have none;
// what is not there costs what gemm_cost.hpp and the memory's rate say.
//
// A GEMM C[m,n] = A[m,k] B[k,n] of one kind (forward, and the gradients, which read one side
// transposed) takes
//
//   startup + waves * tile^2 * k * 2 / (matrix_rate / sms * efficiency)       (gemm_cost.hpp)
//           + ceil(n / block) * bytes of A / a + bytes of B / b + ceil(k / block) * bytes of C / c
//
// since a library packs B once, and touches A again for each block of columns and C for each block
// of the sum: that is what GEMMs with few rows, few columns (tensor parallelism) or a short sum
// take longer for. It never falls as m, n or k grow, and never beats the peak.
//
// A row-wise kernel takes startup + bytes / rate.
#pragma once

#include "base/json.hpp"
#include "base/units.hpp"
#include "schedule/row_function.hpp"

#include <map>
#include <optional>
#include <vector>

namespace spp {

struct MeasuredGemmSpec {
  Sourced<Seconds> startup;
  Sourced<double> efficiency;                  // of matrix_rate, where nothing else counts
  std::optional<Sourced<Bandwidth>> a, b, c;   // none: hidden behind the products
  std::optional<Sourced<std::int64_t>> block;  // none: A and C are touched once
};

struct StreamSpec {
  Sourced<Seconds> startup;
  Sourced<Bandwidth> rate;  // of bytes touched
};

struct LayerKernelsSpec {
  std::map<GemmKind, MeasuredGemmSpec> gemms;
  /// Profiles of earlier versions have no adam but "optimizer", which they derived of the sum.
  std::map<RowFunction, StreamSpec> rows;

  [[nodiscard]] bool empty() const { return gemms.empty() && rows.empty(); }
};

/// InputError names file and key.
LayerKernelsSpec read_layer_kernels(const JsonView& layer);

/// The writer of the same. Numbers as base/numbers.hpp has them; null: not said.
struct GemmKindNumbers {
  GemmKind kind = GemmKind::forward;
  Json startup, efficiency, a, b, c, block;
};
struct StreamNumbers {
  Json startup, rate;
};
struct LayerKernelNumbers {
  std::vector<GemmKindNumbers> gemms;
  std::map<RowFunction, StreamNumbers> rows;
};
/// Null if nothing was measured.
Json layer_kernels_json(LayerKernelNumbers numbers);

}  // namespace spp
