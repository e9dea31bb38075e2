// Which keys the ranks of a group-cast need of each other, and what that costs in closed form.
//
// Queries [a, b) of neighbouring tokens, which begin in a document that begins at e, need the keys
//
//   causal [e, b)      window [max(e, a - W + 1), b)      full [e, end of the document of b - 1)
//
// and no others: each of these is seen by one of them.
#pragma once

#include "parallel/attention/attention_mesh.hpp"
#include "parallel/attention/closed_form.hpp"

#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <vector>

namespace spp {

namespace parameters {
extern const Parameter overlap;  // stages of remote keys; 1: all in one
}

namespace strategies::group_cast {

/// Distances whose keys come in a stage: as many in each.
inline auto distances_of(int stage, int stages, int ring) {
  const auto first = [&](int s) { return 1 + s * (ring - 1) / stages; };
  return std::views::iota(first(stage), first(stage + 1));
}

/// What the ranks of a ring need of each other. Whoever has which heads, and in how many stages it
/// comes, it is the same.
struct Needed {
  int ring = 1;
  std::vector<std::vector<Interval>> keys;  // by rank; its own with them: rising and apart
  std::vector<std::int64_t> tokens;         // [rank][distance]: of the rank so far before
  std::int64_t all_tokens = 0;
  std::int64_t most_pairs = 0;  // of a rank's queries

  [[nodiscard]] std::int64_t from(int rank, int distance) const {
    const int place = rank * ring + distance;
    return tokens[static_cast<std::size_t>(place)];
  }
  [[nodiscard]] std::int64_t to(int rank, int distance) const {
    return from((rank + distance) % ring, distance);
  }
  /// Any rank gives it anything.
  [[nodiscard]] bool gets(int rank) const;
  /// It gives any rank anything.
  [[nodiscard]] bool gives(int rank) const;
};

/// Every program of every rank asks, so the last answers are remembered.
std::shared_ptr<const Needed> needed_of(const Problem& padded, const AttentionMesh& mesh);

/// What one rank gets from others and gives them, by distance: rank r gets from r - d, gives to
/// r + d.
class Parts {
 public:
  Parts(const Problem& padded, const AttentionMesh& mesh, const SequencePlan& plan, int position);

  [[nodiscard]] int stages() const { return stages_; }
  [[nodiscard]] auto distances(int stage) const { return distances_of(stage, stages_, ring_); }
  [[nodiscard]] int position_before(int distance) const {
    return (position_ - distance + ring_) % ring_;
  }
  [[nodiscard]] int position_after(int distance) const { return (position_ + distance) % ring_; }

  [[nodiscard]] const TokenSet& own() const { return own_; }
  /// Tokens of the rank before that this one needs.
  [[nodiscard]] TokenSet from(int distance) const;
  /// Own tokens that the rank behind needs.
  [[nodiscard]] TokenSet to(int distance) const;
  /// All that comes in a stage, in the order of distances.
  [[nodiscard]] TokenSet keys_of(int stage) const;
  /// Own queries from the first to the last chunk that need any of these keys: rows that lie
  /// together.
  [[nodiscard]] TokenSet queries_of(const TokenSet& keys) const;
  /// Any rank gives it anything.
  [[nodiscard]] bool needs_others() const { return needed_->gets(position_); }
  /// Or gets anything from it.
  [[nodiscard]] bool meets_others() const { return needs_others() || needed_->gives(position_); }

 private:
  const Problem* problem_;
  const AttentionMesh* mesh_;
  int ring_, position_, stages_;
  TokenSet own_;
  std::shared_ptr<const Needed> needed_;
};

/// Where parts begin and end, over all ranks: the grain's cuts.
std::vector<std::int64_t> cuts_of(const Problem& padded, const AttentionMesh& mesh);

/// Over ranks and distances, as documents decide what each of them needs.
ClosedForm group_cast_form(const Problem& requested, const SequencePlan& plan, Phase phase,
                           const BuildOptions& options);

}  // namespace strategies::group_cast
}  // namespace spp
