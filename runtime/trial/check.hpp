// Is the result right? Every rank compares its outputs with single-device attention in fp64 on the
// same inputs.
//
// Where the whole comparison would take too long, a part is compared and said to be: some KV heads,
// and of each tile every n-th token. The fp64 lse and delta of all queries, which gradients need,
// are computed by all ranks together.
//
// Tolerance. With u the unit roundoff of the storage type (fp32 2^-24, fp16 2^-11, bf16 2^-8), v
// that of fp32, and `scale` the largest |value| of the tensor in the part compared:
//   storage  each result passes a few roundings to the storage type: P (or dS) before the second
//            product, the partial result of each of n steps, the final cast. Rounding errors of
//            independent parts add as sqrt(n):                            (4 + sqrt(n)) u
//   products scores are sums of D products, results sums over up to S keys or queries; such sums
//   err
//            by less than 4 sqrt(terms) v with near certainty (Higham and Mary, SIAM J. Sci.
//            Comput. 41, 2019); an error e of a score changes its weight by e:     (D + 4 sqrt(S))
//            v
// and twice that in a backward, whose dS multiplies two such factors. lse is stored in fp32, and
// nothing that was rounded to less goes into it: its u is 8 v, for an exponential and a logarithm.
// It is the logarithm of a sum, whose relative error is an error of lse in its own unit, small or
// not: that of the powers that were summed, which kernels for bf16 make to fewer digits
// (kernels/softmax.hpp).
//
// Roundings are as often up as down, so that over a tile of up to 256 tokens of a head they are
// half of that at most, root mean square, in units of the same of what is expected there. That is
// what shows a contribution that was lost: under a causal mask late tokens' values are a hundredth
// of the first one's, which the largest difference is measured by. Of whole layers:
// layer_check.hpp.
#pragma once

#include "runtime/comm/transport.hpp"
#include "runtime/memory.hpp"
#include "runtime/trial/comparison.hpp"
#include "runtime/trial/inputs.hpp"
#include "runtime/trial/layer_oracle.hpp"
#include "schedule/schedule.hpp"

namespace spp::runtime {

/// All ranks call it, after the phase ran; everybody gets the report. `memory` holds the outputs;
/// schedules with a graph are checked by `oracles`.
CheckReport check_forward(Transport& transport, const Schedule& schedule,
                          const StoredProgram& program, const HostMemory& memory,
                          const InputData& data, const CheckOptions& options,
                          SharedOracles& oracles);
CheckReport check_backward(Transport& transport, const Schedule& schedule,
                           const StoredProgram& program, const HostMemory& memory,
                           const InputData& data, const CheckOptions& options,
                           SharedOracles& oracles);

}  // namespace spp::runtime
