// The decision map: what plan() recommends at many lengths, of many questions, and where it
// changes.
//
// A line is one question (a model on so many GPUs of a machine); its cells are its lengths, each
// answered as plan() answers it. Between two neighbouring cells whose recommendations differ the
// interval is halved until it is `grain` wide: so many questions find the length at which the
// recommendation changes as a grid of that width would need times as many. What changes and changes
// back between two cells is not seen.
//
// Cells, then intervals, are worked on side by side. By how many threads changes nothing but the
// memory of each search, which they share: the answer, where that runs out.
#pragma once

#include "planner/plan.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

struct SweepQuestion {
  std::vector<Request> lines;         // their lengths do not count
  std::vector<std::int64_t> lengths;  // tokens, rising
  bool boundaries = true;
  std::int64_t grain = 0;  // tokens; 0: grain_between()
  int threads = 1;
};

enum class Verdict : std::uint8_t { plan, nothing_fits, no_legal_plan, unsearched };
std::string_view to_string(Verdict);

/// What one question's answer comes to.
Verdict verdict_of(const PlanResult& result);

struct SweepCell {
  std::int64_t seq = 0;
  Verdict verdict = Verdict::unsearched;  // unsearched: given up before
  PlanResult result;
};

/// The recommendation, or that there is none, changes between `from` and `to`.
struct Boundary {
  std::size_t line = 0;
  SweepCell from, to;
};

struct SweepResult {
  std::vector<std::vector<SweepCell>> cells;  // by line, by length
  std::vector<Boundary> boundaries;           // by line, rising
  std::int64_t questions = 0;                 // that were asked, those between cells included
  [[nodiscard]] bool any_plan() const;
};

/// `watch` is told questions; where it gives up, the sweep ends with what it has.
SweepResult sweep(const SweepQuestion& question, const Watch& watch = {});

/// How near a boundary is located: 1/64 of the interval as a power of two, 1,024 tokens at least.
std::int64_t grain_between(std::int64_t from, std::int64_t to);

/// What differs between two plans, by the names of the options that set it.
struct Difference {
  std::string what, before, after;
};
std::vector<Difference> differences(const StepPlan& before, const StepPlan& after);

/// Whether two answers recommend the same.
bool same_recommendation(const SweepCell& a, const SweepCell& b);

/// The candidate that runs as `plan` does; null: not among those that are shown.
const Candidate* candidate_like(const PlanResult& result, const StepPlan& plan);

}  // namespace spp
