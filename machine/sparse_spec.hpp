// How a generation runs attention to picked keys: the object "sparse" of its file.
// machine/sparse_cost.hpp has the formulas.
#pragma once

#include "base/json.hpp"
#include "base/units.hpp"

namespace spp {

struct SparseSpec {
  Sourced<double> forward, backward;            // parts of the 16-bit peak
  Sourced<double> index;                        // part of the 8-bit peak
  Sourced<std::int64_t> heads, heads_backward;  // that a kernel works on at least
};

/// Of a generation's document, which has one. InputError names the key. Strict.
SparseSpec read_sparse(const JsonView& generation);

}  // namespace spp
