// Folding of time: simulate few turns of a schedule that goes round (schedule.hpp, Turns).
//
// Where every op of a turn began as much later than the same op of the turn before as every other,
// on every rank, and no op needs what was given more than two turns before it, the next turn finds
// what this one found: so it is this turn again, that much later, and so are all others. Then few
// are enough: for each turn that was left out the end comes a period later, and what a turn adds to
// the ranks' accounts and to the links is added once more. If turns are not alike yet, more of them
// are simulated, in the end all.
//
// The host issues ops as fast as it can, and no op waits for it as long as it takes no longer for a
// turn than the turn takes.
#pragma once

#include "schedule/schedule.hpp"
#include "sim/rank_account.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace spp::sim {

/// Of a rank's program loops, or ops: where a turn and the one behind it begin, and where that
/// ends. Those from `second` to `end`, both included, do what those a turn before them do. A turn
/// may as well begin in the middle of the first: it is further from where ranks come into step, and
/// from where they come to an end and transfers wait that let no op wait.
template <class Place>
struct TwoTurns {
  Place first{}, middle{}, second{}, middle_of_second{}, end{};
};

/// The last two; nothing if a program does not go round twice.
std::optional<TwoTurns<std::size_t>> last_turns(const Program& program, int repeats);

/// Sees the ops of one rank go by, and remembers of its last two turns what tells whether they are
/// alike.
class TurnWatch {
 public:
  explicit TurnWatch(const TwoTurns<std::size_t>& loops) : loops_(loops) {}

  /// The rank has fetched an op, the first of a loop. `host`: when it will have issued all before.
  void fetched(std::size_t loop, std::int64_t op, double host);
  /// An op begins, nothing of which is in the rank's account yet.
  void begins(std::int64_t op, double now, const RankAccount& account);
  /// Where the turn begins and ends that stands for others; -1: not known yet.
  [[nodiscard]] std::int64_t begin() const { return ops_.middle; }
  [[nodiscard]] std::int64_t end() const { return ops_.middle_of_second; }
  /// What it was; nothing if the two turns were not alike.
  [[nodiscard]] std::optional<Turn> turn() const;

 private:
  TwoTurns<std::size_t> loops_;
  TwoTurns<std::int64_t> ops_{-1, -1, -1, -1, -1};
  TwoTurns<double> host_;
  std::vector<double> begins_;  // by op
  std::optional<RankAccount> from_, to_;
};

/// But for rounding.
bool lasts_as_long(const Turn& turn, const Turn& other);

}  // namespace spp::sim
