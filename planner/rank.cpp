// The order of simulated plans: which of them the model cannot tell apart, which of these is
// recommended, and what it has over the others, in a sentence.
#include "base/human.hpp"
#include "planner/search.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace spp {
namespace {

/// Degrees whose collectives, several in each layer, leave the node.
int beyond_node(const StepPlan& step, const Request& request) {
  const SequencePlan& p = step.attention;
  const int node = request.cluster != nullptr ? request.cluster->gpus_per_node() : step.world();
  const int ulysses = p.order.front() == Axis::ulysses ? p.ulysses : p.ranks();
  const auto leaves = [&](int degree, int ranks) { return degree > 1 && ranks > node ? 1 : 0; };
  return leaves(step.tensor, step.tensor) + leaves(p.ulysses, step.tensor * ulysses) +
         leaves(step.expert, step.expert * step.expert_tensor);
}

/// Mechanisms that a plan needs; of two plans that tie, the one with fewer is recommended. Where
/// the mask gives ranks unequal work, zigzag is as usual as contiguous.
int complexity(const StepPlan& step, const Request& request) {
  const Mask& mask = request.problem.mask;
  const auto count = [](bool used) { return used ? 1 : 0; };
  const SequencePlan& p = step.attention;
  return count(step.tensor > 1) + count(step.pipeline > 1) + count(step.virtual_stages > 1) +
         count(step.pipeline_order().cuts_backward) + count(step.expert > 1) +
         count(step.recompute.kind != Recompute::none) + count(step.zero > 1) +
         count(p.ulysses > 1) + count(p.ring > 1) + 2 * static_cast<int>(p.own.values().size()) +
         count(p.heads != HeadPolicy::divide) + count(p.rank_order != RankOrder::block) +
         count(p.layout != Layout::contiguous &&
               (p.layout != Layout::zigzag || mask.kind == MaskKind::full)) +
         beyond_node(step, request);
}

/// Seconds squared, of the difference of two plans: a block that both run moves both, others err
/// alone.
double variance_of_measurements(const MeasuredTimes& a, const MeasuredTimes& b) {
  double variance = 0;
  for (const auto& [block, time] : a) {
    const auto same = b.find(block);
    const double seconds = time.seconds - (same == b.end() ? 0 : same->second.seconds);
    variance += std::pow(seconds * time.standard_error, 2);
  }
  for (const auto& [block, time] : b) {
    variance += a.contains(block) ? 0 : std::pow(time.seconds * time.standard_error, 2);
  }
  return variance;
}

std::string percent_faster(const Prediction& a, const Prediction& b) {
  return fmt::format("{:.1f} %", (b.step.count() / a.step.count() - 1) * 100);
}

/// Whether both compute the same, on ranks that lie elsewhere.
bool same_work(StepPlan a, const StepPlan& b) {
  a.attention.order = b.attention.order;
  a.attention.rank_order = b.attention.rank_order;
  return a == b;
}

/// What makes `best` faster than `other`: the component that differs most.
std::string advantage(const Candidate& best, const Candidate& other) {
  const Prediction& a = best.predicted;
  const Prediction& b = other.predicted;
  std::size_t decides = 0;
  for (std::size_t i = 1; i < components; ++i) {
    if (b.parts[i] - a.parts[i] > b.parts[decides] - a.parts[decides]) {
      decides = i;
    }
  }
  const bool slowed = decides == 0 && same_work(best.plan, other.plan);
  const std::string own = human(Seconds(a.parts[decides]));
  const std::string theirs = human(Seconds(b.parts[decides]));
  return fmt::format(
      "{} faster than {} ({}{}: {})", percent_faster(a, b), short_name(other.plan),
      to_string(static_cast<Component>(decides)),
      slowed ? ", which transfers beside them slow less" : "",
      own == theirs ? fmt::format("{} less", human(Seconds(b.parts[decides] - a.parts[decides])))
                    : fmt::format("{} against {}", own, theirs));
}

/// The plans that the model cannot tell from the fastest, and which of them it recommends.
struct Ties {
  int plans = 1;
  std::size_t chosen = 0;     // its place among the candidates
  bool simpler_ones = false;  // there are, but each is slower than a plan as simple
};

/// `list`: the fastest first. A plan ties where no plan before it is faster out of reach.
Ties ties_of(const std::vector<Candidate>& list, const Request& request,
             const ComponentSeconds& spreads) {
  Ties ties;
  int least = complexity(list[0].plan, request);  // of the plans so far, ties or not
  const Seconds most = (1 + most_slower) * list[0].predicted.step;
  for (std::size_t i = 1; i < list.size() && list[i].predicted.step <= most; ++i) {
    const int mechanisms = complexity(list[i].plan, request);
    const bool tie = std::all_of(
        list.begin(), list.begin() + static_cast<std::ptrdiff_t>(i), [&](const Candidate& faster) {
          return within_reach(faster.predicted, list[i].predicted, spreads);
        });
    if (tie) {
      ++ties.plans;
      if (mechanisms < least) {
        ties.chosen = i;
        ties.simpler_ones = false;
      } else if (mechanisms < complexity(list[ties.chosen].plan, request)) {
        ties.simpler_ones = true;
      }
    }
    least = std::min(least, mechanisms);
  }
  return ties;
}

/// One sentence: what the recommended plan has over the others; empty: there are none.
std::string reason(const std::vector<Candidate>& list, const Ties& ties,
                   const ComponentSeconds& spreads) {
  const Prediction& best = list[0].predicted;
  std::string text;
  if (ties.plans > 1) {
    const std::string_view what = ties.simpler_ones ? "best" : "simplest";
    const std::string_view why = ties.simpler_ones ? "simpler ones lose to others as simple; " : "";
    // Not every plan that is shown before a tie is one: parts may differ that are well known.
    const auto next = std::find_if(list.begin() + 1, list.end(), [&](const Candidate& c) {
      return within_reach(best, c.predicted, spreads) || within_reach(c.predicted, best, spreads);
    });
    const Candidate& tie = next == list.end() ? list[1] : *next;
    const double more = tie.predicted.step.count() / best.step.count() - 1;
    text =
        fmt::format("the {} of {} plans that the model cannot tell apart ({}next: {}, {:+.1f} %)",
                    what, ties.plans, why, short_name(tie.plan), more * 100);
  }
  const auto slower = std::ranges::find_if(list, [&](const Candidate& c) {
    return c.predicted.step > best.step && !within_reach(best, c.predicted, spreads);
  });
  if (slower != list.end()) {
    text += fmt::format("{}{}", text.empty() ? "" : "; ", advantage(list[0], *slower));
  }
  return text;
}

/// Of the plan that needs least.
std::string reason_by_memory(const std::vector<Candidate>& list) {
  const Candidate& next = list[1];
  const Bytes spared = next.predicted.memory.tensors() - list[0].predicted.memory.tensors();
  const double slower = list[0].predicted.step / next.predicted.step - 1;
  constexpr double little = 5e6;  // bytes
  const std::string needs = spared.as_double() < little
                                ? fmt::format("needs as little memory as {}", short_name(next.plan))
                                : fmt::format("needs {:.2f} GB less memory than {}",
                                              spared.as_double() / 1e9, short_name(next.plan));
  constexpr double same = 5e-4;
  return std::abs(slower) < same
             ? needs + ", and takes as long"
             : fmt::format("{}, and takes {:.1f} % {}", needs, std::abs(slower) * 100,
                           slower > 0 ? "longer" : "less time");
}

/// Of the plan that works through most tokens.
std::string reason_by_rate(const std::vector<Candidate>& list) {
  const double more = list[0].predicted.tokens_per_s / list[1].predicted.tokens_per_s - 1;
  return fmt::format("{:.1f} % more tokens a second than {}", more * 100, short_name(list[1].plan));
}

/// Where it has no other beside it.
std::string reason_alone(const Request& request, const PlanResult& result) {
  if (request.top == 1 && result.searched > 1) {
    return "no other is better";
  }
  const std::int64_t unsettled = result.unsettled;
  const StepChoices& step = request.step;
  const bool given = step.tensor || step.data || step.pipeline || step.expert ||
                     request.fixed.ulysses || request.fixed.ring || request.framework != nullptr;
  return unsettled == 0 ? request.whole_step() && !given ? "no plan of other degrees fits"
                          : request.whole_step()         ? "no other plan that is left open fits"
                                                         : "the only legal plan that fits"
                        : fmt::format(
                              "the only plan found to fit before the search ended; {} that "
                              "may be faster were not looked at (see --budget)",
                              unsettled);
}

}  // namespace

bool within_reach(const Prediction& a, const Prediction& b, const ComponentSeconds& spreads) {
  double variance = variance_of_measurements(a.measured, b.measured);
  ComponentSeconds apart{};
  for (std::size_t i = 0; i < components; ++i) {
    apart[i] = (a.parts[i] - b.parts[i]) * spreads[i];
  }
  constexpr auto attention = static_cast<std::size_t>(Component::attention);
  constexpr auto gemm = static_cast<std::size_t>(Component::gemm);
  constexpr auto bubble = static_cast<std::size_t>(Component::bubble);
  // Waiting for others' kernels errs with these.
  for (const std::size_t waited_for : {attention, gemm}) {
    if (spreads[bubble] == spreads[waited_for]) {
      apart[waited_for] += std::exchange(apart[bubble], 0);
    }
  }
  for (const double seconds : apart) {
    variance += seconds * seconds;
  }
  const double difference = std::abs(a.step.count() - b.step.count());
  return difference <=
         std::max(std::sqrt(variance), least_gain * std::min(a.step.count(), b.step.count()));
}

void rank(PlanResult& result, const Request& request, const ComponentSeconds& spreads) {
  auto& list = result.candidates;
  Ties ties;
  const auto faster = [&request](const Candidate& a, const Candidate& b) {
    const auto order = [&](const Candidate& c) {
      return std::tuple(c.predicted.step, complexity(c.plan, request), c.plan.attention.order);
    };
    return order(a) < order(b);
  };
  if (request.objective == Objective::memory) {
    std::ranges::stable_sort(list, [&](const Candidate& a, const Candidate& b) {
      const Bytes x = a.predicted.memory.tensors();
      const Bytes y = b.predicted.memory.tensors();
      return x != y ? x < y : faster(a, b);
    });
  } else if (request.counts_replicas()) {
    std::ranges::stable_sort(list, std::ranges::greater(),
                             [](const Candidate& c) { return c.predicted.tokens_per_s; });
  } else {
    std::ranges::stable_sort(list, faster);
    ties = ties_of(list, request, spreads);
    const auto chosen = list.begin() + static_cast<std::ptrdiff_t>(ties.chosen);
    std::rotate(list.begin(), chosen, chosen + 1);
  }
  result.ties = ties.plans;
  list[0].why = list.size() == 1                         ? ""
                : request.objective == Objective::memory ? reason_by_memory(list)
                : request.counts_replicas()              ? reason_by_rate(list)
                                                         : reason(list, ties, spreads);
  if (list[0].why.empty()) {
    list[0].why = reason_alone(request, result);
  }
  for (std::size_t i = 1; i < list.size(); ++i) {
    const Prediction& own = list[i].predicted;
    const Prediction& best = list[0].predicted;
    const double rate = (own.tokens_per_s / best.tokens_per_s - 1) * 100;
    const double time = (own.step.count() / best.step.count() - 1) * 100;
    list[i].why = fmt::format("{:+.1f} % {} against the recommended plan",
                              request.counts_replicas() ? rate : time,
                              request.counts_replicas() ? "tokens a second" : "time");
  }
}

}  // namespace spp
