// Layers that are run for real, checked against the graph in fp64.
#pragma once

#include "tests/conformance/layer_cases.hpp"
#include "tests/conformance/trials.hpp"
#include "tests/support/patience.hpp"

namespace spp::test {

/// Both phases once, behind cached keys the forward, with a check; without kernels or engines,
/// which are for the caller to choose.
inline runtime::TrialRequest trial_of(const LayerCase& c) {
  runtime::TrialRequest request;
  request.forward = c.build(Phase::forward);
  if (c.attention.problem.cached == 0) {
    request.backward = c.build(Phase::backward);
  }
  request.transport = &runtime::transports::by_name("inproc", "test");
  request.warmup = 0;
  request.iterations = 1;
  request.execution.timeout = patient(Seconds(20));
  return request;
}

inline runtime::TrialRequest trial_of(const StepCase& c) {
  runtime::TrialRequest request = trial_of(c.layer);
  request.forward = c.build();
  request.backward.reset();
  return request;
}

}  // namespace spp::test
