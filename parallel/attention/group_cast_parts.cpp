#include "parallel/attention/group_cast_parts.hpp"

#include "base/memo.hpp"
#include "schedule/balanced.hpp"

#include <algorithm>

namespace spp {

namespace parameters {
extern const Parameter overlap{
    .name = "overlap",
    .symbol = "O",
    .letter = "N",
    .words = "overlap degree",
    .help = "stages of a group-cast, each behind the kernel of another; N divides R",
    .most_tried = 2,
    .from_one = true};
}

namespace strategies::group_cast {
namespace {

/// Keys that neighbouring queries need.
Interval keys_of_queries(const TokenRange& queries, const Problem& problem) {
  const Mask& mask = problem.mask;
  const Interval whole{.begin = queries.begin - mask.place_of(queries.begin).position,
                       .end = queries.last() + 1};
  switch (mask.kind) {
    case MaskKind::causal:
      return whole;
    case MaskKind::window:
      return {.begin = std::max(whole.begin, queries.begin - mask.window + 1), .end = whole.end};
    case MaskKind::full: {
      const std::size_t document = mask.place_of(queries.last()).document;
      return {.begin = whole.begin,
              .end = document < mask.document_ends.size()
                         ? std::min(mask.document_ends[document], problem.seq)
                         : problem.seq};
    }
  }
  throw InternalError("unknown mask");
}

/// What all queries of a tile need, rising and apart.
std::vector<Interval> needs_of(const TokenSet& tile, const Problem& problem) {
  std::vector<Interval> needs;
  for (const TokenRange& queries : tile.ranges()) {
    needs.push_back(keys_of_queries(queries, problem));
  }
  std::ranges::sort(needs);
  std::vector<Interval> apart;
  for (const Interval& next : needs) {
    if (!apart.empty() && next.begin <= apart.back().end) {
      apart.back().end = std::max(apart.back().end, next.end);
    } else {
      apart.push_back(next);
    }
  }
  return apart;
}

/// Those of a tile's tokens that are needed, in its order.
TokenSet kept_of(const TokenSet& tile, const std::vector<Interval>& needs) {
  TokenSet part;
  for (const TokenRange& range : tile.ranges()) {
    const Interval tokens{.begin = range.begin, .end = range.last() + 1};
    auto need = std::ranges::upper_bound(needs, tokens.begin, {}, &Interval::end);
    for (; need != needs.end() && need->begin < tokens.end; ++need) {
      const std::int64_t begin = std::max(need->begin, tokens.begin);
      part.append({.begin = begin, .count = std::min(need->end, tokens.end) - begin});
    }
  }
  return part;
}

Needed found_needed(const Problem& padded, const AttentionMesh& mesh) {
  const int ring = mesh.ring();
  /// Tokens from the end of the range before on.
  struct Held {
    std::int64_t end = 0;
    int rank = 0;
  };
  std::vector<Held> held;  // all tokens, rising
  const TokenSet all({.begin = 0, .count = padded.seq});
  Needed found{.ring = ring,
               .tokens = std::vector<std::int64_t>(static_cast<std::size_t>(ring * ring))};
  for (int r = 0; r < ring; ++r) {
    const TokenSet own = mesh.team_tokens(padded, r);
    for (const TokenRange& range : own.ranges()) {
      held.push_back({.end = range.last() + 1, .rank = r});
    }
    found.keys.push_back(needs_of(own, padded));
    found.most_pairs = std::max(found.most_pairs, allowed_pairs(own, all, padded.mask));
  }
  std::ranges::sort(held, {}, &Held::end);
  for (int r = 0; r < ring; ++r) {
    for (const Interval& need : found.keys[static_cast<std::size_t>(r)]) {
      std::int64_t begin = need.begin;
      for (auto at = std::ranges::upper_bound(held, begin, {}, &Held::end); begin < need.end;
           ++at) {
        const std::int64_t count = std::min(at->end, need.end) - begin;
        if (const int distance = (r - at->rank + ring) % ring; distance > 0) {
          const int place = r * ring + distance;
          found.tokens[static_cast<std::size_t>(place)] += count;
          found.all_tokens += count;
        }
        begin += count;
      }
    }
  }
  return found;
}

}  // namespace

bool Needed::gets(int rank) const {
  return std::ranges::any_of(std::views::iota(1, ring), [&](int d) { return from(rank, d) > 0; });
}

bool Needed::gives(int rank) const {
  return std::ranges::any_of(std::views::iota(1, ring), [&](int d) { return to(rank, d) > 0; });
}

std::shared_ptr<const Needed> needed_of(const Problem& padded, const AttentionMesh& mesh) {
  constexpr std::size_t most = 32;  // rings of a search, under some layouts
  thread_local Memo<Dealing, Needed> known(most);
  return known.of(
      {.seq = padded.seq, .mask = padded.mask, .layout = mesh.layout(), .ranks = mesh.ring()},
      [&](const Dealing&) { return found_needed(padded, mesh); });
}

Parts::Parts(const Problem& padded, const AttentionMesh& mesh, const SequencePlan& plan,
             int position)
    : problem_(&padded),
      mesh_(&mesh),
      ring_(plan.ring),
      position_(position),
      stages_(plan.own[parameters::overlap]),
      own_(mesh.team_tokens(padded, position)),
      needed_(needed_of(padded, mesh)) {}

TokenSet Parts::from(int distance) const {
  return needed_->from(position_, distance) > 0
             ? kept_of(mesh_->team_tokens(*problem_, position_before(distance)),
                       needed_->keys[static_cast<std::size_t>(position_)])
             : TokenSet();
}

TokenSet Parts::to(int distance) const {
  return needed_->to(position_, distance) > 0
             ? kept_of(own_, needed_->keys[static_cast<std::size_t>(position_after(distance))])
             : TokenSet();
}

TokenSet Parts::keys_of(int stage) const {
  TokenSet keys;
  for (const int distance : distances(stage)) {
    const TokenSet arriving = from(distance);
    for (const TokenRange& range : arriving.ranges()) {
      keys.append(range);
    }
  }
  return keys;
}

TokenSet Parts::queries_of(const TokenSet& keys) const {
  const auto needs_any = [&](const TokenRange& queries) {
    const Interval need = keys_of_queries(queries, *problem_);
    return std::ranges::any_of(keys.ranges(), [&](const TokenRange& k) {
      return k.begin < need.end && k.last() >= need.begin;
    });
  };
  const auto ranges = own_.ranges();
  const auto first = std::ranges::find_if(ranges, needs_any);
  auto behind = ranges.end();
  while (behind != first && !needs_any(*(behind - 1))) {
    --behind;
  }
  TokenSet queries;
  std::for_each(first, behind, [&](const TokenRange& range) { queries.append(range); });
  return queries;
}

std::vector<std::int64_t> cuts_of(const Problem& padded, const AttentionMesh& mesh) {
  std::vector<std::int64_t> cuts;
  const auto needed = needed_of(padded, mesh);
  for (const std::vector<Interval>& needs : needed->keys) {
    for (const Interval& need : needs) {
      cuts.push_back(need.begin);
      cuts.push_back(need.end);
    }
  }
  std::ranges::sort(cuts);
  cuts.erase(std::ranges::unique(cuts).begin(), cuts.end());
  std::erase(cuts, 0);
  std::erase(cuts, padded.seq);
  return cuts;
}

}  // namespace strategies::group_cast
}  // namespace spp
