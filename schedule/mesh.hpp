// The mesh of a sequence-parallel group: which rank has which coordinates, who its peers are and
// which tokens it holds at home.
//
// Coordinates. The P ranks are U (Ulysses) times R (ring dimension). The ring dimension is split as
// in StarTrail (reference: arXiv:2407.00611v2, Algorithms 2 and 3): R = C * C * S with C members a
// team, D = R/C teams, S = R/C^2 teams a team group. C = 1 is the plain ring: D = S = R.
//
//   ulysses  u in [0, U)    which heads after the all-to-all
//   member   m in [0, C)    place in the team
//   position s in [0, S)    place in the sub-ring
//   group    g in [0, C)    which team group; team T = g*S + s
//
// Ranks are numbered with `order[0]` innermost; `group` is always outermost. So ulysses,team,ring
// is the paper's Collect_intra placement (a team is contiguous), ulysses,ring,team is P2P_intra.
#pragma once

#include "base/id.hpp"
#include "schedule/problem.hpp"

namespace spp {

/// Ranks first, first+stride, …: `size` of them. Every group of a mesh is of this form.
struct RankGroup {
  int first = 0;
  int stride = 1;
  int size = 1;
  [[nodiscard]] Rank rank(int index) const { return Rank(first + index * stride); }
  /// Index of a rank that is a member.
  [[nodiscard]] int index_of(Rank r) const { return size == 1 ? 0 : (r.value - first) / stride; }
  friend bool operator==(const RankGroup&, const RankGroup&) = default;
};

struct Coordinates {
  int ulysses = 0;
  int member = 0;
  int position = 0;
  int group = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

class Mesh {
 public:
  Mesh() = default;
  /// The plan must be legal: U, R, C >= 1 and C*C divides R.
  explicit Mesh(const SequencePlan& plan);

  [[nodiscard]] int size() const { return ulysses_ * ring(); }
  [[nodiscard]] int ulysses() const { return ulysses_; }
  [[nodiscard]] int ring() const { return team_ * team_ * sub_ring_; }  // R
  [[nodiscard]] int team() const { return team_; }                      // C
  [[nodiscard]] int sub_ring() const { return sub_ring_; }              // S
  [[nodiscard]] int teams() const { return team_ * sub_ring_; }         // D

  [[nodiscard]] Coordinates at(Rank rank) const;
  [[nodiscard]] Rank rank(const Coordinates& c) const;
  /// T = g*S + s.
  [[nodiscard]] int team_of(const Coordinates& c) const { return c.group * sub_ring_ + c.position; }
  /// The same Ulysses coordinate, another place in the ring dimension: team T, member m.
  [[nodiscard]] Rank rank_of_team(int ulysses, int team, int member) const;

  /// The Ulysses group of a rank, ordered by u.
  [[nodiscard]] RankGroup ulysses_group(Rank rank) const;
  /// The members of a rank's team, ordered by m.
  [[nodiscard]] RankGroup team_group(Rank rank) const;
  /// The sub-ring of a rank, ordered by s (for C = 1: the whole ring).
  [[nodiscard]] RankGroup ring_group(Rank rank) const;

 private:
  int ulysses_ = 1;
  int team_ = 1;
  int sub_ring_ = 1;
  int ulysses_stride_ = 1;
  int member_stride_ = 1;
  int position_stride_ = 1;
  int group_stride_ = 1;
};

/// Tokens of ring chunk `index` of `chunks` under a layout. zigzag: chunks index and
/// 2*chunks-1-index of 2*chunks equal ones; striped: every chunks-th token.
/// `seq` must divide (see padded()).
TokenSet chunk_tokens(std::int64_t seq, Layout layout, int index, int chunks);

/// Tokens that a rank holds before and after the call: its Ulysses part of its member part of its
/// team's chunk.
TokenSet home_tokens(const Problem& padded_problem, Layout layout, const Mesh& mesh, Rank rank);
/// Tokens of a rank's ring part, after the Ulysses all-to-all has gathered them.
TokenSet ring_tokens(const Problem& padded_problem, Layout layout, const Mesh& mesh, Rank rank);
/// Tokens of team T.
TokenSet team_tokens(const Problem& padded_problem, Layout layout, const Mesh& mesh, int team);

}  // namespace spp
