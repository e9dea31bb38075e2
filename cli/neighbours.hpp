// Questions beside the one that was asked: where that has no answer, those that have one; fewer
// GPUs that are faster.
#pragma once

#include "base/progress.hpp"
#include "cli/search_job.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

/// A question beside one that has no answer, and its answer.
struct Neighbour {
  std::string change;   // "ZeRO 3", "16 nodes instead of 4"
  std::string command;  // "sp-plan plan --model …"
  Candidate best;       // a plan that fits, found by a short search: not its best
};

struct Neighbours {
  std::optional<Neighbour> first;       // that has an answer; nothing: none that was asked has
  std::vector<std::string_view> tried;  // kinds of questions: "other degrees", "more GPUs"
  bool ended = false;                   // before all were asked
};

/// The first question that has a plan which fits, of those nearest to this one: more saved (ZeRO,
/// recomputation), a micro-batch of one sequence, degrees that were fixed left open, larger global
/// batches, activations and states in the host's memory, more GPUs, weights in fp8, and last a
/// shorter sequence. All together they take as long as the request's own search may.
Neighbours first_that_fits(const Arguments& arguments, const Job& job, const Watch& watch);

/// Where GPUs lie unevenly on nodes, or the best plan pads heads or deals them out unevenly: the
/// next smaller even number of them; where it waits for other nodes a third of its time: one node.
/// If a plan of these takes less time than the best one. `result` has plans that fit; what its
/// search left of its limit may be taken.
std::optional<Neighbour> faster_on_fewer(const Arguments& arguments, const Job& job,
                                         const PlanResult& result, const Watch& watch);

/// The longest sequence for which a plan of this request fits, to 1/512; 0: none does. What
/// --seq says is not read.
std::int64_t longest_that_fits(const Arguments& arguments, const Watch& watch);

}  // namespace spp::cli
