// What the conformance tests run over: legal plans of all strategies, for problems that vary in
// heads (MHA, GQA, MQA; divided, replicated, padded, uneven), mask, dtype and phase, and whose
// sequence does not divide.
#pragma once

#include "tests/support/plans.hpp"

#include <string>
#include <vector>

namespace spp::test {

/// Of cases that are alike, builds take one of so many: optimised ones all, sanitized ones, which
/// are some twenty times slower, few (SppTest.cmake).
inline constexpr std::size_t thinning = SPP_TEST_THINNING;
/// Where few are taken anyway: half of them but in optimised builds.
inline constexpr int halving = thinning > 1 ? 2 : 1;

struct Case {
  Problem problem;
  SequencePlan plan;
  Phase phase = Phase::forward;
  BuildOptions options;

  [[nodiscard]] const Strategy& strategy() const {
    return strategies::by_name(plan.strategy, "case");
  }
  /// Once the problem was changed.
  [[nodiscard]] bool legal() const { return why_not(strategy(), problem, plan).legal(); }
  [[nodiscard]] Schedule build() const { return strategy().build(problem, plan, phase, options); }
  [[nodiscard]] ClosedForm closed_form() const {
    return strategy().closed_form(problem, plan, phase, options);
  }
  [[nodiscard]] std::string text() const;
};

/// The problems over `ranks` ranks.
std::vector<Problem> problems(int ranks);

/// Cases over `ranks` ranks; at most `most` of each strategy (fewer in a Debug build), spread
/// evenly over all there are.
std::vector<Case> cases(int ranks, std::size_t most);

/// Its layout deals out each of the packed documents, or its strategy is for sparse masks.
bool made_for_documents(const SequencePlan& plan);

/// The same of packed documents, odd lengths and one of a single token among them, of such plans.
std::vector<Case> document_cases(int ranks, std::size_t most);

/// Forwards behind keys that are cached, more of them than queries and fewer, of strategies that
/// have them.
std::vector<Case> cached_cases(int ranks, std::size_t most);

/// Takes one of so many, the first of them first: for loops over many cases that are alike.
class OneIn {
 public:
  explicit OneIn(int count) : count_(count) {}
  [[nodiscard]] bool takes() { return seen_++ % count_ == 0; }

 private:
  int count_;
  int seen_ = 0;
};

/// All of these.
std::vector<Case> all_cases(int ranks, std::size_t most);

/// Worlds by how much of them a test can afford.
inline constexpr std::array small_worlds{1, 2, 3, 4, 5, 6, 7, 8, 9};
inline constexpr std::array middle_worlds{12, 16};
inline constexpr std::array large_worlds{25, 32, 36, 64};

}  // namespace spp::test
