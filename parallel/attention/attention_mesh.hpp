// The ranks of one attention call: which has which coordinates, who its peers are and which tokens
// it holds at home.
//
// Coordinates. The P ranks are U (Ulysses) times R (ring dimension). The ring dimension is split as
// in StarTrail (reference: arXiv:2407.00611v2, Algorithms 2 and 3): R = C * C * S with C members a
// team, D = R/C teams, S = R/C^2 teams a team group. C = 1 is the plain ring: D = S = R.
//
//   axis     coordinate
//   ulysses  ulysses  u in [0, U)    which heads after the all-to-all
//   team     member   m in [0, C)    place in the team
//   ring     position s in [0, S)    place in the sub-ring
//   group    group    g in [0, C)    which team group; team T = g*S + s
//
// Ranks are numbered with `order[0]` innermost; `group` is always outermost. So ulysses,team,ring
// is the paper's Collect_intra placement (a team is contiguous), ulysses,ring,team is P2P_intra.
#pragma once

#include "parallel/attention/plan.hpp"
#include "schedule/mesh.hpp"

#include <memory>
#include <vector>

namespace spp {

namespace parameters {
extern const Parameter team;  // C of StarTrail; 1 is the plain ring
}

/// Ranks along an axis of a plan.
int size_of(const SequencePlan& plan, Axis axis);

struct Coordinates {
  int ulysses = 0;
  int member = 0;
  int position = 0;
  int group = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

class AttentionMesh {
 public:
  /// The plan must be legal: U, R, C >= 1 and C*C divides R.
  explicit AttentionMesh(const SequencePlan& plan);
  /// The same for one problem, padded: knows who holds which tokens of layouts that the mask
  /// decides, too.
  AttentionMesh(const SequencePlan& plan, const Problem& padded);

  [[nodiscard]] const Mesh& mesh() const { return mesh_; }
  [[nodiscard]] Layout layout() const { return plan_.layout; }
  [[nodiscard]] int size() const { return mesh_.size(); }
  [[nodiscard]] int ulysses() const { return plan_.ulysses; }
  [[nodiscard]] int ring() const { return plan_.ring; }                      // R
  [[nodiscard]] int team() const { return plan_.own[parameters::team]; }     // C
  [[nodiscard]] int sub_ring() const { return ring() / (team() * team()); }  // S
  [[nodiscard]] int teams() const { return team() * sub_ring(); }            // D

  [[nodiscard]] Coordinates at(Rank rank) const;
  [[nodiscard]] Rank rank(const Coordinates& c) const;
  /// T = g*S + s.
  [[nodiscard]] int team_of(const Coordinates& c) const {
    return c.group * sub_ring() + c.position;
  }
  /// The first and the last chunk's rank of Ulysses part 0. Under a causal mask the last chunk has
  /// most work, of uneven heads the first part has most.
  [[nodiscard]] std::array<Rank, 2> ends() const;
  /// The same Ulysses coordinate, another place in the ring dimension: team T, member m.
  [[nodiscard]] Rank rank_of_team(int ulysses, int team, int member) const;

  /// The Ulysses group of a rank, ordered by u.
  [[nodiscard]] RankGroup ulysses_group(Rank rank) const { return mesh_.group(rank, ulysses_); }
  /// The members of a rank's team, ordered by m.
  [[nodiscard]] RankGroup team_group(Rank rank) const { return mesh_.group(rank, team_); }
  /// The sub-ring of a rank, ordered by s (for C = 1: the whole ring).
  [[nodiscard]] RankGroup ring_group(Rank rank) const { return mesh_.group(rank, ring_); }
  /// One of these.
  [[nodiscard]] RankGroup group(Rank rank, Axis axis) const;

  /// Tokens whose queries a rank holds before and after the call: its Ulysses part of its member
  /// part of its team's chunk. `problem` is padded.
  [[nodiscard]] TokenSet home_tokens(const Problem& problem, Rank rank) const;
  /// Those of a rank's ring part, after the Ulysses all-to-all has gathered them.
  [[nodiscard]] TokenSet ring_tokens(const Problem& problem, Rank rank) const;
  /// Those of team T.
  [[nodiscard]] TokenSet team_tokens(const Problem& problem, int team) const;
  /// Those of a rank's ring part that are cached, of which a Ulysses part holds its heads' from the
  /// beginning on; and all whose keys the ring part has.
  [[nodiscard]] TokenSet cached_tokens(const Problem& problem, Rank rank) const;
  [[nodiscard]] TokenSet ring_keys(const Problem& problem, Rank rank) const;

 private:
  SequencePlan plan_;
  Mesh mesh_;
  std::shared_ptr<const std::vector<TokenSet>> dealt_;         // tokens of each team, if by_work()
  std::size_t ulysses_ = 0, team_ = 0, ring_ = 0, group_ = 0;  // axes of the mesh
};

}  // namespace spp
