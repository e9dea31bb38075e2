// A layer, or a whole training step, simulated op by op: where its time goes, who waited for whom.
#include "report/calls.hpp"
#include "report/candidate.hpp"
#include "report/constants.hpp"
#include "report/kind.hpp"

#include <fmt/format.h>

namespace spp::report::kinds::layer {
namespace {

std::string of_scope(const JsonView& document, std::string_view layer, std::string_view step) {
  return std::string(document.at("scope").string() == "step" ? step : layer);
}

std::string subject(const JsonView& document) {
  return fmt::format("{} of {}", of_scope(document, "a layer", "a whole step"),
                     request_title(document.find("request")));
}

void add(const JsonView& document, Sheet& sheet) {
  const JsonView predicted = document.at("predicted");
  const auto interval = predicted.at("interval_s").elements();
  if (interval.size() != 2) {
    predicted.at("interval_s").fail("has not two ends");
  }
  const auto seconds = [](const JsonView& view) {
    return seconds_text(view.number(0, most_seconds_read));
  };
  sheet.verdict(Tone::plain, "Simulated op by op", plan_name(document.at("plan")));
  sheet.stats({{of_scope(document, "layer", "step"), seconds(predicted.at("step_s")),
                fmt::format("{} to {}", seconds(interval[0]), seconds(interval[1]))},
               {"ranks", text_at(document, "ranks"), ""}});
  add_calls(sheet, document.at("phases"),
            of_scope(document, "One layer", "The step") + " on the rank that ends last");
  add_machine(sheet, document.at("machine"));
  add_assumptions(sheet, document);
  add_request(sheet, document);
}

}  // namespace

extern const Kind entry{.format = "layer", .name = "Simulation", .subject = subject, .add = add};

}  // namespace spp::report::kinds::layer
