#include "tests/conformance/trials.hpp"

#include "tests/support/patience.hpp"

namespace spp::test {

runtime::TrialRequest trial_of(const Case& c) {
  const Strategy& strategy = c.strategy();
  runtime::TrialRequest request;
  request.forward = strategy.build(c.problem, c.plan, Phase::forward, c.options);
  if (strategy.backward && c.problem.cached == 0) {
    request.backward = strategy.build(c.problem, c.plan, Phase::backward, c.options);
  }
  request.transport = &runtime::transports::by_name("inproc", "test");
  request.warmup = 0;
  request.iterations = 1;
  request.execution.timeout = patient(Seconds(20));
  return request;
}

std::string failures(const runtime::TrialResult& result) {
  std::string text;
  for (const auto& phase : {result.forward, result.backward}) {
    if (!phase) {
      continue;
    }
    for (const runtime::TensorCheck& t : phase->check->tensors) {
      if (!t.passed()) {
        text += fmt::format("{}: {:.3g} of {:.3g}, tiles {:.3g} of {:.3g} ({}); ", t.tensor,
                            t.error, t.limit.largest, t.mean_error, t.limit.mean, t.wrong());
      }
    }
  }
  return text;
}

}  // namespace spp::test
