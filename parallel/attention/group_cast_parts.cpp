#include "parallel/attention/group_cast_parts.hpp"

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

/// found(begin, count) for each run of tokens of a tile that are needed, in its order.
template <class Found>
void find_needed(const TokenSet& tile, const std::vector<Interval>& needs, Found&& found) {
  for (const TokenRange& range : tile.ranges()) {
    const Interval tokens{.begin = range.begin, .end = range.last() + 1};
    auto need = std::ranges::upper_bound(needs, tokens.begin, {}, &Interval::end);
    for (; need != needs.end() && need->begin < tokens.end; ++need) {
      const std::int64_t begin = std::max(need->begin, tokens.begin);
      found(begin, std::min(need->end, tokens.end) - begin);
    }
  }
}

TokenSet needed_of(const TokenSet& tile, const std::vector<Interval>& needs) {
  TokenSet part;
  find_needed(tile, needs, [&](std::int64_t begin, std::int64_t count) {
    part.append({.begin = begin, .count = count});
  });
  return part;
}

}  // namespace

Parts::Parts(const Problem& padded, const AttentionMesh& mesh, const SequencePlan& plan,
             int position)
    : problem_(&padded),
      mesh_(&mesh),
      ring_(plan.ring),
      position_(position),
      stages_(plan.own[parameters::overlap]),
      own_(mesh.team_tokens(padded, position)),
      needs_(needs_of(own_, padded)) {}

TokenSet Parts::from(int distance) const {
  return needed_of(mesh_->team_tokens(*problem_, position_before(distance)), needs_);
}

TokenSet Parts::to(int distance) const {
  const TokenSet theirs = mesh_->team_tokens(*problem_, position_after(distance));
  return needed_of(own_, needs_of(theirs, *problem_));
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

std::int64_t Parts::count_from(int distance) const {
  const TokenSet theirs = mesh_->team_tokens(*problem_, position_before(distance));
  std::int64_t count = 0;
  find_needed(theirs, needs_, [&](std::int64_t, std::int64_t found) { count += found; });
  return count;
}

bool Parts::needs_others() const {
  std::int64_t needed = 0;
  for (const Interval& need : needs_) {
    needed += need.count();
  }
  return needed > own_.count();  // it needs all of its own
}

bool Parts::meets_others() const {
  return needs_others() ||
         std::ranges::any_of(std::views::iota(1, ring_), [&](int d) { return !to(d).empty(); });
}

std::vector<std::int64_t> cuts_of(const Problem& padded, const AttentionMesh& mesh) {
  std::vector<std::int64_t> cuts;
  for (int position = 0; position < mesh.ring(); ++position) {
    for (const Interval& need : needs_of(mesh.team_tokens(padded, position), padded)) {
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
