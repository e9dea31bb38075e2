// Fits of a layer's kernels beside attention, and of a step's beside its layers: samples of the
// suite "layer" to the constants of machine/layer_kernels.hpp.
#pragma once

#include "base/numbers.hpp"
#include "machine/machine_write.hpp"
#include "samples/series.hpp"

#include <array>
#include <map>
#include <vector>

namespace spp::calibrate {

struct FittedLayer {
  struct Gemm {
    Fitted startup;               // seconds
    Fitted efficiency;            // of the matrix rate
    std::array<Fitted, 3> rates;  // bytes/s of A, B and C; 0: hidden behind the products
    std::int64_t block = 0;       // as MeasuredGemmSpec has it; 0: none
  };
  struct Stream {
    Fitted startup;  // seconds
    Fitted rate;     // bytes/s
  };
  std::map<GemmKind, Gemm> gemms;
  std::map<RowFunction, Stream> rows;
};
/// `gpu`: its matrix rate, its SMs, the tile of its GEMMs and, of a device, its memory's bandwidth.
/// GEMMs of `dtype` count. What was not timed is left out; what few or small sizes cannot tell is
/// assumed (no samples). `block`: as a library is known to cut columns and sums; 0: not known.
FittedLayer fit_layer(const std::vector<Series>& series, const GpuSpec& gpu, DType dtype,
                      std::int64_t block = 0);

/// As a generation has it; null if nothing was timed.
Json fitted_layer(const FittedLayer& layer, const Numbers& numbers);

}  // namespace spp::calibrate
