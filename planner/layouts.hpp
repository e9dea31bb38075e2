// What the layouts of packed documents make of one plan: how evenly each deals out the work, what
// it pads, and how long the step then takes.
//
//   balanced          small chunks of the whole sequence, so chosen that the work is even
//   whole-documents   documents, so chosen likewise, each on as few ranks as it needs
//   document-zigzag   every document in 2R pieces, padded to them: all ranks have the same work
//   zigzag            the whole sequence in 2R chunks: whose documents are long, decides
//   striped           every R-th token
//   contiguous        the whole sequence in R chunks
//
// document-contiguous is document-zigzag with less balance. Which documents make a sequence
// (WLB-LLM) is taken as given.
#pragma once

#include "planner/plan.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace spp {

/// A layout under the degrees of a reference plan.
struct LayoutWork {
  StepPlan plan;  // the reference with this layout, by the strategy that is fastest
  std::int64_t padding_tokens = 0;
  /// (query, key) pairs of one head that the mask allows the tokens of each ring rank (StarTrail:
  /// team) as queries, padding included.
  std::vector<std::int64_t> pairs;
  double imbalance = 0;         // the busiest over the mean of all, less 1
  std::optional<Seconds> step;  // nothing: a simulation would take too much
};

/// The layouts that can split packed documents with the degrees of the best plan that has a ring,
/// each by the fastest of the strategies that promise most there; the fastest first, those without
/// a step last. Empty: there are no documents, no such plan is among the candidates, or the
/// documents are too many for its ring to be looked at.
std::vector<LayoutWork> compare_layouts(const Request& request, const PlanResult& result);

/// How much longer than the first the second takes: of the list above. Nothing without two steps.
std::optional<double> gain_of(const std::vector<LayoutWork>& layouts);

}  // namespace spp
