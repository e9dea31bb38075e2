#include "sim/turns.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace spp::sim {
namespace {

/// Of a period: sums of times that are some periods long.
constexpr double rounding = 1e-11;

}  // namespace

std::optional<TwoTurns<std::size_t>> last_turns(const Program& program, int repeats) {
  const std::vector<Loop>& loops = program.loops;
  std::set<std::size_t> repeated;
  for (const Loop& loop : loops) {
    if (loop.like != Loop::none) {
      repeated.insert(loop.like);
    }
  }
  const std::size_t turn = repeated.size() * static_cast<std::size_t>(repeats);
  std::size_t run = 0;  // of loops that are like those of the turn before
  for (std::size_t end = loops.size(); end-- > turn && turn > 0;) {
    const bool alike = loops[end].like != Loop::none && loops[end].like == loops[end - turn].like;
    run = alike ? run + 1 : 0;
    if (run == turn + 1) {
      return TwoTurns<std::size_t>{.first = end - turn,
                                   .middle = end - turn / 2,
                                   .second = end,
                                   .middle_of_second = end + (turn - turn / 2),
                                   .end = end + turn};
    }
  }
  return std::nullopt;
}

void TurnWatch::fetched(std::size_t loop, std::int64_t op, double host) {
  using Loops = TwoTurns<std::size_t>;
  using Ops = TwoTurns<std::int64_t>;
  using Hosts = TwoTurns<double>;
  const auto keep = [&](std::size_t Loops::* at, std::int64_t Ops::* first, double Hosts::* then) {
    if (loop == loops_.*at) {
      ops_.*first = op;
      host_.*then = host;
    }
  };
  keep(&Loops::first, &Ops::first, &Hosts::first);
  keep(&Loops::middle, &Ops::middle, &Hosts::middle);
  keep(&Loops::second, &Ops::second, &Hosts::second);
  keep(&Loops::middle_of_second, &Ops::middle_of_second, &Hosts::middle_of_second);
  keep(&Loops::end, &Ops::end, &Hosts::end);
}

void TurnWatch::begins(std::int64_t op, double now, const RankAccount& account) {
  if (std::cmp_less_equal(begins_.size(), op)) {
    begins_.resize(static_cast<std::size_t>(op) + 1);
  }
  begins_[static_cast<std::size_t>(op)] = now;
  if (op == begin()) {
    from_ = account;
  } else if (op == end()) {
    to_ = account;
  }
}

std::optional<Turn> TurnWatch::turn() const {
  const std::int64_t ops = ops_.end - ops_.second;
  const bool seen = std::min({ops_.first, ops_.middle, ops_.second, ops_.middle_of_second}) >= 0;
  if (!seen || ops <= 0 || ops != ops_.second - ops_.first) {  // a loop may have no ops at all
    return std::nullopt;
  }
  const auto later = [&](std::int64_t op) {
    return begins_[static_cast<std::size_t>(op)] - begins_[static_cast<std::size_t>(op - ops)];
  };
  const double seconds = later(ops_.end);
  for (std::int64_t op = ops_.second; op < ops_.end; ++op) {
    if (std::abs(later(op) - seconds) > rounding * seconds) {
      return std::nullopt;
    }
  }
  const double host = host_.middle_of_second - host_.middle;
  if (host > (1 + rounding) * seconds) {
    return std::nullopt;
  }
  return Turn{.from = *from_,
              .to = *to_,
              .first_op = begin(),
              .ops = ops,
              .begin = begins_[static_cast<std::size_t>(begin())],
              .seconds = seconds,
              .host = host};
}

bool lasts_as_long(const Turn& turn, const Turn& other) {
  return std::abs(turn.seconds - other.seconds) <= rounding * other.seconds;
}

}  // namespace spp::sim
