// What published figures count as the FLOPs of one attention call, for TFLOP/s and MFU: the
// convention of FlashAttention's benchmarks (arXiv:2307.08691, section 4.1). It is not what kernels
// do (schedule/measure.hpp): a mask leaves half of all pairs whatever its shape, or counts in full,
// and a backward is 2.5 forwards even where values are narrower than keys. What counts for a whole
// model is transformer/model_flops.hpp.
#pragma once

#include "base/units.hpp"
#include "schedule/measure.hpp"

#include <cstdint>

namespace spp {

struct CountedCall {
  std::int64_t queries = 0, keys = 0;  // of a sequence
  std::int64_t batch = 1;
  int heads = 1;
  double qk_dim = 0, v_dim = 0;
  bool halved = false;  // pairs, for a mask
  bool forward = true, backward = false;
};

constexpr FlopCount counted_flops(const CountedCall& call) {
  const double pairs =
      static_cast<double>(call.queries) * static_cast<double>(call.keys) / (call.halved ? 2 : 1);
  const double forwards = (call.forward ? 1 : 0) + (call.backward ? 2.5 : 0);
  return FlopCount(flops_per_pair(Phase::forward, call.qk_dim, call.v_dim) *
                   static_cast<double>(call.batch) * call.heads * pairs * forwards);
}

}  // namespace spp
