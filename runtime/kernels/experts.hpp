// What experts need beside products (which run expert by expert), on the host. As the kernels of
// layer.hpp: rows are matrices, computed in fp32, rounded once.
#pragma once

#include "runtime/kernels/rows.hpp"
#include "schedule/routing.hpp"
#include "schedule/tokens.hpp"

namespace spp::runtime {

/// weights [n, b, chosen, 1] (fp32) = softmax over the scores [n, b, 1, experts] of a token's own
/// experts. `tokens`: row i is the i-th of them.
struct RouteArgs {
  Rows scores, weights;
  TokenSet tokens;
  Routing routing;
};
void route(const RouteArgs& args);
/// d_scores [n, b, 1, experts], overwritten: w_j (d_w_j - sum over i of w_i d_w_i) of a token's own
/// experts, 0 of others.
struct RouteBackwardArgs {
  Rows weights, d_weights, d_scores;
  TokenSet tokens;
  Routing routing;
};
void route_backward(const RouteBackwardArgs& args);

/// a [n, b, 1, f] = weight silu(gate) up, of gate_up [n, b, 1, 2 f] = [gate | up] and weights
/// [n, b, 1, 1] in fp32.
struct ExpertSwigluArgs {
  Rows gate_up, weights, a;
};
void expert_swiglu(const ExpertSwigluArgs& args);
/// d_gate_up like gate_up, d_weights like weights; d_a like a.
struct ExpertSwigluBackwardArgs {
  Rows gate_up, weights, d_a, d_gate_up, d_weights;
  bool add = false;  // to the d_weights that are there
};
void expert_swiglu_backward(const ExpertSwigluBackwardArgs& args);

}  // namespace spp::runtime
