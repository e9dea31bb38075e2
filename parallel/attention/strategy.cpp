#include "parallel/attention/strategy.hpp"

#include "base/suggest.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace spp {
namespace {

std::string unused_degree(const Strategy& strategy, const SequencePlan& plan) {
  if (!strategy.degrees.ulysses && plan.ulysses > 1) {
    return fmt::format("does not use a Ulysses degree ({})", plan.ulysses);
  }
  if (!strategy.degrees.ring && plan.ring > 1) {
    return fmt::format("does not use a ring degree ({})", plan.ring);
  }
  for (const auto& [parameter, value] : plan.own.values()) {
    if (std::ranges::find(strategy.parameters, parameter) == strategy.parameters.end()) {
      const bool vowel =
          std::string_view("aeiou").find(parameter->words.front()) < std::string_view::npos;
      return fmt::format("does not use {} {} ({})", vowel ? "an" : "a", parameter->words, value);
    }
  }
  return "";
}

std::string why_not_behind_cache(const Strategy& strategy, const Problem& problem,
                                 const SequencePlan& plan) {
  if (problem.cached == 0) {
    return "";
  }
  if (!strategy.behind_cache) {
    return fmt::format("{} passes no cached keys", strategy.name);
  }
  if (by_work(plan.layout) || !problem.mask.document_ends.empty()) {
    return "packed documents behind cached keys are not supported";
  }
  return "";
}

}  // namespace

WhyNot why_not(const Strategy& strategy, const Problem& problem, const SequencePlan& plan) {
  if (plan.ulysses < 1 || plan.ring < 1 ||
      std::ranges::any_of(plan.own.values(), [](const auto& own) { return own.value < 1; })) {
    return {"degrees", "degrees are at least 1"};
  }
  if (strategy.function != problem.function) {
    return {"function", fmt::format("{} splits {} attention, not {} attention", strategy.name,
                                    to_string(strategy.function), to_string(problem.function))};
  }
  if (const std::string unused = unused_degree(strategy, plan); !unused.empty()) {
    return {"degrees", fmt::format("{} {}", strategy.name, unused)};
  }
  for (const auto& [parameter, value] : plan.own.values()) {
    if (const std::string why = parameter->why_not(value, "the ring degree", plan.ring);
        !why.empty()) {
      return {std::string(parameter->name), fmt::format("{} {}", parameter->words, why)};
    }
  }
  if (std::ranges::find(strategy.layouts, plan.layout) == strategy.layouts.end()) {
    return {"layout",
            fmt::format("{} does not use the {} layout", strategy.name, to_string(plan.layout))};
  }
  if (needs_documents(plan.layout) && problem.mask.document_ends.empty()) {
    return {"layout", fmt::format("the {} layout deals out packed documents (--documents), and "
                                  "there are none",
                                  to_string(plan.layout))};
  }
  if (const std::string heads = HeadSplit::why_not(problem, plan.ulysses, plan.heads);
      !heads.empty()) {
    return {"heads", heads};
  }
  const std::int64_t shortest =  // two tokens a rank: every block has work
      plan.ranks() == 1 ? 1 : 2 * std::int64_t{plan.ranks()};
  if (problem.seq < shortest) {
    return {"sequence", fmt::format("{} tokens are too few for {} ranks (at least {})", problem.seq,
                                    plan.ranks(), shortest)};
  }
  if (const std::string cache = why_not_behind_cache(strategy, problem, plan); !cache.empty()) {
    return {"cached", cache};
  }
  if (WhyNot sinks = why_not_sinks(strategy); problem.sinks && !sinks.legal()) {
    return sinks;
  }
  if (std::string own = strategy.why_not(problem, plan); !own.empty()) {
    return {"strategy", fmt::format("{}: {}", strategy.name, own)};
  }
  return {};
}

WhyNot why_not_by_work(Layout layout) {
  return {"layout",
          fmt::format("the {} layout deals tokens out by one mask, and layers see by several",
                      to_string(layout))};
}

WhyNot why_not_sinks(const Strategy& strategy) {
  return strategy.no_sinks.empty()
             ? WhyNot{}
             : WhyNot{"sinks", fmt::format("{}: {}", strategy.name, strategy.no_sinks)};
}

WhyNot why_not(const Strategy& strategy, Phase phase) {
  if (phase == Phase::backward && !strategy.backward) {
    return {"phase", fmt::format("{} has no backward: it is for inference (--phase fwd or prefill)",
                                 strategy.name)};
  }
  return {};
}

WhyNot why_not_picked(const SequencePlan& plan) {
  if (plan.ranks() == 1) {
    return {};
  }
  if (!strategies::by_name(plan.strategy, "--strategy").gathers_keys) {
    return {
        "sparse",
        fmt::format("sparse attention picks among all keys, which its sequence ranks gather; {} "
                    "hands them on in parts",
                    plan.strategy)};
  }
  return plan.ulysses == 1
             ? WhyNot{}
             : WhyNot{"sparse",
                      "the keys that sparse attention picks are the same for all heads, which "
                      "Ulysses would deal out"};
}

namespace strategies {

std::span<const Parameter* const> parameters() {
  static const std::vector<const Parameter*> every = [] {
    std::vector<const Parameter*> found;
    for (const Strategy* s : all()) {
      for (const Parameter* parameter : s->parameters) {
        if (std::ranges::find(found, parameter) == found.end()) {
          found.push_back(parameter);
        }
      }
    }
    return found;
  }();
  return every;
}

const Strategy& gathering() {
  const auto at = std::ranges::find_if(all(), &Strategy::gathers_keys);
  ensure(at != all().end(), "a strategy that gathers keys");
  return **at;
}

const Strategy* simplest(const SequencePlan& plan, AttentionFunction function) {
  for (const Strategy* s : all()) {
    const bool has_degrees = plan.ring == 1
                                 ? s->degrees.ulysses
                                 : s->degrees.ring && (plan.ulysses == 1 || s->degrees.ulysses);
    if (s->function == function && has_degrees &&
        std::ranges::find(s->layouts, plan.layout) != s->layouts.end()) {
      return s;
    }
  }
  return nullptr;
}

const Strategy& by_name(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const Strategy* s : all()) {
    if (s->name == name) {
      return *s;
    }
    names.emplace_back(s->name);
  }
  // Megatron's and TransformerEngine's words (cp_comm_type), and those that others say.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> words{
      {{"p2p", "zigzag-ring"},
       {"a2a", "ulysses"},
       {"a2a+p2p", "usp"},
       {"all_gather", "all-gather"},
       {"allgather", "all-gather"},
       {"zigzag", "zigzag-ring"},
       {"striped", "striped-ring"}}};
  if (const auto* const word = std::ranges::find(words, name, &decltype(words)::value_type::first);
      word != words.end()) {
    throw InputError(where, fmt::format("'{}' is another's word for '{}'", name, word->second));
  }
  throw InputError(where, fmt::format("unknown strategy '{}'{}", name, did_you_mean(name, names)));
}

}  // namespace strategies
}  // namespace spp
