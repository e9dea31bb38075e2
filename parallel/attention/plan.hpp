// The plan that splits one attention call over P = U * R ranks.
// Words as in docs/glossary.md: U = ulysses, R = ring.
#pragma once

#include "parallel/attention/parameter.hpp"
#include "schedule/problem.hpp"

#include <array>
#include <compare>
#include <string>
#include <string_view>

namespace spp {

/// Axes that a plan orders. `team` is the member inside a StarTrail team, `ring` the position in a
/// (sub-)ring.
enum class Axis : std::uint8_t { ulysses, team, ring };
std::string_view to_string(Axis);

/// How one attention call is split over P = ulysses * ring ranks.
struct SequencePlan {
  std::string strategy = "ring";
  int ulysses = 1;
  int ring = 1;
  ParameterValues own;  // how the strategy splits the ring further
  Layout layout = Layout::contiguous;
  HeadPolicy heads = HeadPolicy::divide;
  std::array<Axis, 3> order{Axis::ulysses, Axis::team,
                            Axis::ring};  // innermost (adjacent ranks) first
  RankOrder rank_order = RankOrder::block;

  [[nodiscard]] int ranks() const { return ulysses * ring; }
  friend auto operator<=>(const SequencePlan&, const SequencePlan&) = default;
};

/// Why a plan is not legal: a rule's name and its details. Empty rule = legal.
struct WhyNot {
  std::string rule, detail;
  [[nodiscard]] bool legal() const { return rule.empty(); }
};

/// "ulysses,team,ring" in any order, each at most once; axes not named follow in the default order.
std::array<Axis, 3> parse_order(std::string_view, std::string_view where);
std::string to_string(const std::array<Axis, 3>& order);

/// What `plan` needs the length of a sequence to be a multiple of: contiguous, striped and whole
/// documents P tokens, zigzag 2P (two equal chunks on every rank), balanced 8P (chunks_of_rank);
/// layouts that deal documents out likewise of every document.
std::int64_t unit_of(const SequencePlan& plan);

/// The same of cached tokens in front of it: ranks of a Ulysses group hold them by heads.
std::int64_t unit_of_cached(const SequencePlan& plan);

/// The problem as `plan` deals it out: cached tokens padded to unit_of_cached(), with tokens like
/// others, as those of the sequence are numbered behind them; layouts that deal documents out: each
/// document likewise to a multiple of unit_of(), and cut into one piece for each team
/// (document-zigzag: two). A window over all tokens is one over their padding, too. Dealt out
/// already: itself.
Problem dealt(const Problem& problem, const SequencePlan& plan);

/// The problem as it is dealt out, padded so that `plan` divides it: the sequence to unit_of(),
/// with HeadPolicy::pad heads by whole KV groups of zero heads.
Problem padded(const Problem& problem, const SequencePlan& plan);

}  // namespace spp
