// Is a layer right? Every rank compares its outputs, kept values and gradients of parameters among
// them, with the graph evaluated in fp64 (layer_oracle.hpp).
//
// Tolerance, in units of a tensor's largest value. Each of the n definitions behind a result rounds
// to the storage type of roundoff u a few times and sums K products in fp32 (roundoff v); what it
// passes on it passes on with a factor of about one, since norms keep rows near one and residual
// sums only add. Errors of independent definitions add as sqrt(n):
//
//   sqrt(n) * (4 u + (D + 4 sqrt(K)) v),  K the longest sum: columns of a matrix, keys, tokens
//
// and in a backward, which runs over the forward's results, of twice as many definitions and twice
// that: its products are of two such factors. The average of a tile (comparison.hpp) may be off by
// a quarter of it: of four roundings, as often up as down, half of one is left. Squares of
// gradients have twice their errors. What an update makes of a parameter is compared by its change,
// and what it makes of a moving average by what the gradient adds, for that is small beside what
// stays. In fp16 gradients of a mean over many tokens underflow: u is what that takes from a row,
// where it is more.
#pragma once

#include "runtime/trial/check.hpp"

namespace spp::runtime {

/// Before anything runs, of a schedule with a graph: InputError if the oracles would compute more
/// than options.flops, or rounding alone may make up so much of a result that a wrong one could
/// pass.
void expect_checkable(const Schedule& schedule, const std::vector<StoredProgram>& programs,
                      const CheckOptions& options, const SharedOracles& oracles);

/// After a phase of such a schedule.
CheckReport check_layer(Transport& transport, const Schedule& schedule,
                        const StoredProgram& program, const HostMemory& memory,
                        const InputData& data, SharedOracles& oracles);

}  // namespace spp::runtime
