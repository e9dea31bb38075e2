// How a generation runs linear attention: the object "linear" of its file. machine/linear_cost.hpp
// has the formulas.
#pragma once

#include "base/json.hpp"
#include "base/units.hpp"

#include <optional>

namespace spp {

struct LinearSpec {
  Sourced<Bandwidth> of_sm;  // that one SM reads and writes
  Sourced<double> memory;    // part of the memory's rate
  Sourced<Bytes> l2_of_sm;   // an SM's part of the L2
  Sourced<Seconds> startup;  // of one kernel
  struct Chunked {
    Sourced<Seconds> startup;  // of its kernels together
    Sourced<Seconds> step;     // a chunk
    Sourced<double> backward;  // times the forward
    Sourced<Seconds> summary;  // a chunk, of the kernels that find what a rank's tokens do to a
                               // state that comes from other ranks
  };
  struct Fused {
    Sourced<Seconds> item;  // start and end of a head of a sequence
    Sourced<Seconds> step;  // a chunk
  };
  Chunked chunked;
  std::optional<Fused> fused;  // none: nobody measured such a kernel
};

/// Of a generation's document. InputError names the key; or says that there is none. Strict.
LinearSpec read_linear(const JsonView& generation);

}  // namespace spp
