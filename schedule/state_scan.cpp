#include "schedule/state_scan.hpp"

#include "base/error.hpp"

namespace spp {

FlopCount forward_flops(const StateScan& scan, double tokens) {
  const double chunk = scan.chunk;
  const double key = scan.key_dim;
  const double value = scan.value_dim;
  switch (scan.rule) {
    case StateRule::gated_delta:
      return FlopCount(tokens * scan.value_heads *
                       (2 * chunk * (3 * key + 2 * value) + 6 * key * value));
    case StateRule::mamba2:
      return FlopCount(tokens * (scan.value_heads * (4 * value * key + chunk * value) +
                                 scan.key_heads * chunk * key));
  }
  throw InternalError("no such StateRule");
}

}  // namespace spp
