#include "planner/decisions.hpp"

#include "base/error.hpp"
#include "base/human.hpp"

#include <cmath>

namespace spp {
namespace {

std::string_view words_of(StepPart part) {
  switch (part) {
    case StepPart::attention:
      return "attention kernels";
    case StepPart::gemm:
      return "GEMMs";
    case StepPart::elementwise:
      return "small kernels";
    case StepPart::optimizer:
      return "the optimizer";
    case StepPart::launch:
      return "the host";
    case StepPart::cp:
      return "exposed sequence parallelism";
    case StepPart::tp:
      return "exposed tensor parallelism";
    case StepPart::ep:
      return "exposed expert parallelism";
    case StepPart::dp:
      return "exposed weights and gradients";
    case StepPart::pp:
      return "messages between stages";
    case StepPart::bubble:
      return "bubble or imbalance";
  }
  throw InternalError("unknown part of a step");
}

}  // namespace

std::string to_string(const Alternative& a, const Prediction& winner) {
  const std::string what = fmt::format("{} rather than {}{}", a.chosen, a.other,
                                       a.degrees.empty() ? "" : fmt::format(" ({})", a.degrees));
  if (!a.best) {
    constexpr double little = 1e8;
    constexpr double worth_saying = 1.1;
    const double beyond = a.beyond.as_double();
    const double faster = winner.step / a.bound;
    return fmt::format("{}, which is {}{} over memory{}", what, a.at_least ? "at least " : "",
                       beyond < little ? fmt::format("{:.0f} MB", std::ceil(beyond / 1e6))
                                       : fmt::format("{:.1f} GB", beyond / 1e9),
                       a.bound > Seconds(0) && faster > worth_saying
                           ? fmt::format(" (else up to {:.2g} times as fast)", faster)
                           : "");
  }
  // Of as many tokens, as far as replicas work on others.
  const double more = (winner.tokens_per_s / a.best->tokens_per_s - 1) * 100;
  const std::string_view at_most = a.at_most ? "at most " : "";
  if (a.by_memory) {
    const double bytes = a.best->memory.tensors().as_double() - winner.memory.tensors().as_double();
    return fmt::format(
        "{}, which needs {} ({:.1f} % {})", what,
        bytes > 0 ? fmt::format("{}{:.2f} GB more", at_most, bytes / 1e9) : "no less",
        std::abs(more), more > 0 ? "slower" : "faster");
  }
  const std::string_view tie = a.tie ? ", within the model's error" : "";
  constexpr double shown = 0.05;  // per cent: less would read 0.0
  if (more < shown) {
    return more > -shown ? fmt::format("{}, which is as fast", what)
                         : fmt::format("{}, which is {:.1f} % faster{}", what, -more, tie);
  }
  const double as_many = winner.tokens_per_s / a.best->tokens_per_s * (winner.step / a.best->step);
  const auto other = [&](StepPart p) { return a.best->parts_s[p] * as_many; };
  auto decides = StepPart::attention;
  const auto loss = [&](StepPart p) { return other(p) - winner.parts_s[p]; };
  for (std::size_t i = 1; i < step_parts; ++i) {
    if (loss(static_cast<StepPart>(i)) > loss(decides)) {
      decides = static_cast<StepPart>(i);
    }
  }
  const std::string theirs = human(Seconds(other(decides)));
  const std::string own = human(Seconds(winner.parts_s[decides]));
  const std::string loses = winner.parts_s[decides] <= 0 ? fmt::format("{} against none", theirs)
                            : theirs == own ? fmt::format("{} more", human(Seconds(loss(decides))))
                                            : fmt::format("{} against {}", theirs, own);
  return fmt::format("{}, which is {}{:.1f} % slower{} ({} {})", what, at_most, more, tie,
                     words_of(decides), loses);
}

bool is_other_kind(const SequencePlan& plan, const SequencePlan& winner) {
  return winner.ulysses > 1 ? plan.ulysses == 1 : plan.ring == 1;
}

std::string why_ulysses(const Candidate& winner, const Candidate& other, bool tie,
                        Objective objective) {
  const bool waits = other.predicted.parts_s[StepPart::cp] > winner.predicted.parts_s[StepPart::cp];
  return to_string({.chosen = fmt::format("Ulysses {}", winner.plan.attention.ulysses),
                    .other = fmt::format("{}", other.plan.attention.ulysses),
                    .best = other.predicted,
                    .best_name = short_name(other.plan),
                    .tie = tie,
                    .by_memory = objective == Objective::memory},
                   winner.predicted) +
         (waits ? ", bound by " + other.bound_by : "");
}

}  // namespace spp
