#include "machine/linear_spec.hpp"

namespace spp {

LinearSpec read_linear(const JsonView& generation) {
  const auto view = generation.find("linear");
  if (!view) {
    generation.fail("does not say how linear attention runs (key 'linear')");
  }
  view->allow_only({"of_sm", "memory", "l2_of_sm", "startup", "chunked", "fused"});
  constexpr double most_times = 8;
  const JsonView chunked = view->at("chunked");
  chunked.allow_only({"startup", "step", "backward", "summary"});
  LinearSpec spec{.of_sm = read_bandwidth(view->at("of_sm")),
                  .memory = read_fraction(view->at("memory")),
                  .l2_of_sm = read_bytes(view->at("l2_of_sm")),
                  .startup = read_seconds(view->at("startup")),
                  .chunked = {.startup = read_seconds(chunked.at("startup")),
                              .step = read_seconds(chunked.at("step")),
                              .backward = read_fraction(chunked.at("backward"), most_times),
                              .summary = read_seconds(chunked.at("summary"))},
                  .fused = std::nullopt};
  if (const auto fused = view->find("fused")) {
    fused->allow_only({"item", "step"});
    spec.fused = {.item = read_seconds(fused->at("item")), .step = read_seconds(fused->at("step"))};
  }
  return spec;
}

}  // namespace spp
