// What a proof lets through is right: of right schedules with a slip in them each is refused, by
// the reader, by the proof or because it cannot be stored; or it computes, run for real, what one
// device computes, in fp64.
#include "base/error.hpp"
#include "runtime/kernels/attention.hpp"
#include "schedule/coverage.hpp"
#include "schedule/storage.hpp"
#include "schedule/text.hpp"
#include "tests/conformance/layer_trials.hpp"
#include "tests/conformance/mutant.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <random>

using namespace spp;
using namespace spp::test;

namespace {

/// What became of the mutants, counted.
struct Fates {
  int unreadable = 0, refuted = 0, misplaced = 0, right = 0;
};

/// The mutant, if it is proven and can be stored.
std::optional<Schedule> accepted(const std::string& text, Fates& fates) {
  std::optional<Schedule> mutant;
  try {
    mutant = parse_schedule(text, "mutant");
  } catch (const InputError&) {
    ++fates.unreadable;
    return std::nullopt;
  }
  if (!prove(*mutant).proven) {
    ++fates.refuted;
    return std::nullopt;
  }
  if (!misplaced(*mutant).empty()) {
    ++fates.misplaced;
    return std::nullopt;
  }
  return mutant;
}

std::string failures_of(const runtime::TrialRequest& request) {
  try {
    return failures(runtime::run_trial(request));
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
}

/// Mutants of both phases of cases taken at random, a few of each.
template <class C>
void expect_sound(std::vector<C> cases, int mutants, std::uint64_t seed) {
  constexpr int of_each = 12;
  std::mt19937_64 random(seed);
  Fates fates;
  for (int made = 0; made < mutants;) {
    const C& c = cases[random() % cases.size()];
    runtime::TrialRequest request = trial_of(c);
    request.kernels = &runtime::attention_kernels::by_name("reference", "test");
    const bool backward = request.backward && random() % 2 == 0;
    Schedule& schedule = backward ? *request.backward : *request.forward;
    const Schedule right = schedule;
    ScheduleMutator mutator(right, random());
    for (int i = 0; i < of_each; ++i, ++made) {
      const auto mutant = mutator.next();
      if (!mutant) {
        continue;
      }
      INFO(c.text() << (backward ? ", backward: " : ": ") << mutant->slip);
      if (auto proven = accepted(mutant->text, fates)) {
        schedule = std::move(*proven);
        CHECK(failures_of(request) == "");
        ++fates.right;
      }
    }
  }
  // A mutator that finds nothing to change, or a proof that refuses everything, would pass, too.
  CHECK(fates.refuted > mutants / 4);
  CHECK(fates.right > mutants / 100);
}

constexpr int few_heads = 33;  // for speed

/// In fp32, whose tolerance shows the loss of a single product.
std::vector<Case> attention_calls() {
  std::vector<Case> calls;
  for (const int ranks : {2, 3, 4}) {
    for (Case c : cases(ranks, std::numeric_limits<std::size_t>::max())) {
      c.problem.dtype = DType::fp32;
      if (c.problem.q_heads <= few_heads && c.phase == Phase::forward && c.legal()) {
        calls.push_back(std::move(c));
      }
    }
  }
  return calls;
}

std::vector<LayerCase> layers() {
  std::vector<LayerCase> some = layers_behind_cache();
  for (const auto& [sequence, tensor] : {std::pair{2, 1}, {1, 2}, {2, 2}}) {
    std::ranges::copy(layer_cases(sequence, tensor, 6), std::back_inserter(some));
  }
  std::erase_if(some, [](LayerCase& c) {
    c.attention.problem.dtype = DType::fp32;
    return c.attention.problem.q_heads > few_heads || !c.attention.legal();
  });
  return some;
}

std::vector<StepCase> steps() {
  std::vector<StepCase> some;
  for (const auto& more :
       {step_cases(2, 1, 6), step_cases(1, 2, 4), hybrid_cases(), expert_cases(), sink_cases()}) {
    std::ranges::copy_if(more, std::back_inserter(some), [](const StepCase& c) {
      return c.layer.attention.problem.q_heads <= few_heads && c.build().mesh.size() <= 6;
    });
  }
  return some;
}

}  // namespace

TEST_CASE("an attention call with a slip is refused, or right") {
  expect_sound(attention_calls(), 240, 1);
}

TEST_CASE("a layer with a slip is refused, or right") { expect_sound(layers(), 180, 2); }

TEST_CASE("a step with a slip is refused, or right") { expect_sound(steps(), 120, 3); }

TEST_CASE("whatever the slip", "[.all]") {
  for (std::uint64_t seed = 10; seed < 40; ++seed) {
    expect_sound(attention_calls(), 400, seed);
    expect_sound(layers(), 300, seed);
    expect_sound(steps(), 200, seed);
  }
}
