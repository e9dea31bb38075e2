#include "machine/linear_spec.hpp"

namespace spp {

namespace {

/// Of profiles from before these keys.
constexpr double usual_backward = 3;
constexpr Seconds usual_summary(4.8e-6);
constexpr double usual_spread = 0.35;

Sourced<double> backward_of(const JsonView& chunked) {
  constexpr double most = 8;
  const auto said = chunked.find("backward");
  return said ? read_fraction(*said, most)
              : Sourced<double>{
                    .value = usual_backward, .spread = usual_spread, .source = "assumed as H200"};
}

Sourced<Seconds> summary_of(const JsonView& chunked) {
  const auto said = chunked.find("summary");
  return said ? read_seconds(*said)
              : Sourced<Seconds>{
                    .value = usual_summary, .spread = usual_spread, .source = "assumed as H200"};
}

}  // namespace

LinearSpec read_linear(const JsonView& generation) {
  const auto view = generation.find("linear");
  if (!view) {
    generation.fail("does not say how linear attention runs (key 'linear')");
  }
  view->allow_only({"of_sm", "memory", "l2_of_sm", "startup", "chunked", "fused"});
  const JsonView chunked = view->at("chunked");
  chunked.allow_only({"startup", "step", "backward", "summary"});
  LinearSpec spec{.of_sm = read_bandwidth(view->at("of_sm")),
                  .memory = read_fraction(view->at("memory")),
                  .l2_of_sm = read_bytes(view->at("l2_of_sm")),
                  .startup = read_seconds(view->at("startup")),
                  .chunked = {.startup = read_seconds(chunked.at("startup")),
                              .step = read_seconds(chunked.at("step")),
                              .backward = backward_of(chunked),
                              .summary = summary_of(chunked)},
                  .fused = std::nullopt};
  if (const auto fused = view->find("fused")) {
    fused->allow_only({"item", "step"});
    spec.fused = {.item = read_seconds(fused->at("item")), .step = read_seconds(fused->at("step"))};
  }
  return spec;
}

}  // namespace spp
