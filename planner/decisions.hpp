// Why a step's plan is what it is: each of its degrees against the nearest other that there is.
#pragma once

#include "planner/plan.hpp"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spp {

/// A degree of the winner and one that it was chosen over: the best plan that has it, or how much
/// the leanest such plan goes beyond memory.
struct Alternative {
  std::string chosen, other;  // "TP 4", "8"
  std::optional<Prediction> best;
  std::string best_name;
  std::string degrees;   // of `best`, where it differs in others, too: "TP2 PP2"
  bool tie = false;      // the model cannot tell `best` from the winner
  bool at_most = false;  // not all plans that have it were looked at: one may be better than `best`
  Bytes beyond{};
  bool at_least = false;  // that much is known of `beyond`; it may be more
  /// Of the leanest such plan: with that memory it would take so long, or longer, for as many
  /// prompts as the winner works on.
  Seconds bound{};
  bool by_memory = false;  // that is what decides; `best` needs least then
};
/// "TP 4 rather than 8, which is 6.2 % slower (exposed tensor parallelism 0.81 s against 0.42 s)";
/// where that takes other degrees "EP 8 rather than 4 (PP2 EP4), which is 88 % slower (…)";
/// where better plans may be left, "which is at most 6.2 % slower"; of a tie "1.2 % slower" or
/// "faster, within the model's error"; "pipeline 4 rather than 2, which is 12.1 GB over memory";
/// where that much is lost for lack of it, "pipeline 1 rather than 2, which is 31 MB over memory
/// (else up to 34 times as fast)". By memory: "TP 8 rather than 4, which needs 3.1 GB more (12.0 %
/// faster)".
std::string to_string(const Alternative& alternative, const Prediction& winner);

/// It deals out heads alone where the winner of an attention call does not deal out any, or hands
/// on keys alone where the winner deals out heads.
bool is_other_kind(const SequencePlan& plan, const SequencePlan& winner);
/// Why not the best of the other kind, and what that would wait for. "Ulysses 1 rather than 8,
/// which is 41 % slower (exposed sequence parallelism 0.131 s against 0.011 s), bound by intra-node
/// all-to-all (rank 0 -> 7, 0.7 GB/s between the two)".
std::string why_ulysses(const Candidate& winner, const Candidate& other, bool tie,
                        Objective objective);

/// Of an ordered list of values, those next to `chosen`.
template <class T>
std::vector<T> neighbours(std::span<const T> values, const T& chosen) {
  std::vector<T> result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == chosen) {
      if (i > 0) {
        result.push_back(values[i - 1]);
      }
      if (i + 1 < values.size()) {
        result.push_back(values[i + 1]);
      }
    }
  }
  return result;
}

}  // namespace spp
