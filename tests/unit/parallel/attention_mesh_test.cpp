#include "parallel/attention/attention_mesh.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <vector>

using namespace spp;

namespace {

constexpr std::array<std::array<Axis, 3>, 6> orders{{
    {Axis::ulysses, Axis::team, Axis::ring},
    {Axis::ulysses, Axis::ring, Axis::team},
    {Axis::team, Axis::ulysses, Axis::ring},
    {Axis::team, Axis::ring, Axis::ulysses},
    {Axis::ring, Axis::ulysses, Axis::team},
    {Axis::ring, Axis::team, Axis::ulysses},
}};

/// Many legal (U, R, C) in all orders.
std::vector<SequencePlan> plans() {
  std::vector<SequencePlan> result;
  for (const int ulysses : {1, 2, 3, 4}) {
    for (const int team : {1, 2, 3}) {
      for (const int sub_ring : {1, 2, 3, 5}) {
        for (const auto& order : orders) {
          result.push_back({.ulysses = ulysses,
                            .ring = team * team * sub_ring,
                            .own = {{&parameters::team, team}},
                            .order = order});
        }
      }
    }
  }
  return result;
}

std::vector<int> members(const RankGroup& group) {
  std::vector<int> ranks;
  for (int i = 0; i < group.size; ++i) {
    ranks.push_back(group.rank(i).value);
  }
  return ranks;
}

/// StarTrail's Algorithm 2: where GPU (T, m) sends its team's block; rank = T*C + m.
int initial_target(const AttentionMesh& mesh, Rank rank) {
  const Coordinates c = mesh.at(rank);
  const int team = mesh.team_of(c);
  const int target = c.member * mesh.sub_ring() + team / mesh.team();
  return mesh.rank_of_team(c.ulysses, target, team % mesh.team()).value;
}

/// StarTrail's Algorithm 3: the next GPU of the sub-ring.
int ring_next(const AttentionMesh& mesh, Rank rank) {
  const RankGroup group = mesh.ring_group(rank);
  return group.rank((group.index_of(rank) + 1) % group.size).value;
}

}  // namespace

TEST_CASE("ranks and coordinates are one to one in every mesh and order") {
  for (const SequencePlan& plan : plans()) {
    const AttentionMesh mesh(plan);
    REQUIRE(mesh.size() == plan.ranks());
    std::vector<bool> seen(static_cast<std::size_t>(mesh.size()));
    for (int u = 0; u < mesh.ulysses(); ++u) {
      for (int g = 0; g < mesh.team(); ++g) {
        for (int s = 0; s < mesh.sub_ring(); ++s) {
          for (int m = 0; m < mesh.team(); ++m) {
            const Coordinates c{.ulysses = u, .member = m, .position = s, .group = g};
            const Rank rank = mesh.rank(c);
            REQUIRE(rank.value >= 0);
            REQUIRE(rank.value < mesh.size());
            REQUIRE_FALSE(seen[rank.index()]);
            seen[rank.index()] = true;
            REQUIRE(mesh.at(rank) == c);
            REQUIRE(mesh.rank_of_team(u, mesh.team_of(c), m) == rank);
          }
        }
      }
    }
  }
}

TEST_CASE("a group differs in its own coordinate only, and all its members agree on it") {
  for (const SequencePlan& plan : plans()) {
    const AttentionMesh mesh(plan);
    for (int r = 0; r < mesh.size(); ++r) {
      const Rank rank(r);
      const auto check = [&](const RankGroup& group, int size, int Coordinates::* own,
                             RankGroup (AttentionMesh::*group_of)(Rank) const) {
        REQUIRE(group.size == size);
        REQUIRE(group.rank(group.index_of(rank)) == rank);
        for (int i = 0; i < group.size; ++i) {
          Coordinates expected = mesh.at(rank);
          expected.*own = i;
          REQUIRE(mesh.at(group.rank(i)) == expected);
          REQUIRE((mesh.*group_of)(group.rank(i)) == group);
        }
      };
      check(mesh.ulysses_group(rank), plan.ulysses, &Coordinates::ulysses,
            &AttentionMesh::ulysses_group);
      check(mesh.team_group(rank), plan.own[parameters::team], &Coordinates::member,
            &AttentionMesh::team_group);
      check(mesh.ring_group(rank), mesh.sub_ring(), &Coordinates::position,
            &AttentionMesh::ring_group);
    }
  }
}

TEST_CASE("the first axis of the order has adjacent ranks") {
  const AttentionMesh inner({.ulysses = 4, .ring = 2});
  CHECK(members(inner.ulysses_group(Rank(5))) == std::vector{4, 5, 6, 7});
  CHECK(members(inner.ring_group(Rank(5))) == std::vector{1, 5});
  const AttentionMesh outer({.ulysses = 4, .ring = 2, .order = orders[4]});
  CHECK(members(outer.ulysses_group(Rank(5))) == std::vector{1, 3, 5, 7});
  CHECK(members(outer.ring_group(Rank(5))) == std::vector{4, 5});
}

// arXiv:2407.00611v2, Algorithms 2 and 3 and figure 5: teams {0,1} and {2,3} are the two groups.
TEST_CASE("StarTrail on 8 ranks in teams of 2 has the coordinates of the paper") {
  const AttentionMesh mesh({.ring = 8, .own = {{&parameters::team, 2}}});
  CHECK(mesh.teams() == 4);
  CHECK(mesh.sub_ring() == 2);
  std::vector<int> targets;
  std::vector<int> next;
  for (int r = 0; r < 8; ++r) {
    const Coordinates c = mesh.at(Rank(r));
    CHECK(mesh.team_of(c) == r / 2);
    CHECK(c.member == r % 2);
    targets.push_back(initial_target(mesh, Rank(r)));
    next.push_back(ring_next(mesh, Rank(r)));
  }
  CHECK(targets == std::vector{0, 4, 1, 5, 2, 6, 3, 7});
  CHECK(next == std::vector{2, 3, 0, 1, 6, 7, 4, 5});
}

// The same, figure 3: two nodes of eight; every sub-ring and team stays inside a node.
TEST_CASE("StarTrail on 16 ranks in teams of 2 has the coordinates of the paper") {
  const AttentionMesh mesh({.ring = 16, .own = {{&parameters::team, 2}}});
  CHECK(mesh.teams() == 8);
  CHECK(mesh.sub_ring() == 4);
  std::vector<int> targets;
  std::vector<int> next;
  for (int r = 0; r < 16; ++r) {
    const Coordinates c = mesh.at(Rank(r));
    CHECK(mesh.team_of(c) == r / 2);
    CHECK(c.member == r % 2);
    CHECK(c.group == r / 8);
    targets.push_back(initial_target(mesh, Rank(r)));
    next.push_back(ring_next(mesh, Rank(r)));
  }
  CHECK(targets == std::vector{0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15});
  CHECK(next == std::vector{2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9});
}

TEST_CASE("the other placement has adjacent sub-rings") {
  const AttentionMesh mesh({.ring = 16, .own = {{&parameters::team, 2}}, .order = orders[1]});
  CHECK(members(mesh.ring_group(Rank(5))) == std::vector{4, 5, 6, 7});
  CHECK(members(mesh.team_group(Rank(5))) == std::vector{1, 5});
}

TEST_CASE("degrees that do not divide are our bugs") {
  CHECK_THROWS_AS(AttentionMesh({.ring = 6, .own = {{&parameters::team, 2}}}), InternalError);
  CHECK_THROWS_AS(AttentionMesh({.ring = 2, .own = {{&parameters::team, 2}}}), InternalError);
}

TEST_CASE("home tokens partition the sequence, whatever the layout, mesh and order") {
  for (const Layout layout : {Layout::contiguous, Layout::zigzag, Layout::striped}) {
    for (SequencePlan plan : plans()) {
      plan.layout = layout;
      const AttentionMesh mesh(plan);
      const std::int64_t seq = 4 * mesh.size();
      std::vector<int> holders(static_cast<std::size_t>(seq));
      for (int r = 0; r < mesh.size(); ++r) {
        const TokenSet home = mesh.home_tokens({.seq = seq}, Rank(r));
        REQUIRE(home.count() == 4);
        for (std::int64_t t = 0; t < seq; ++t) {
          holders[static_cast<std::size_t>(t)] += home.contains(t) ? 1 : 0;
        }
      }
      REQUIRE(holders == std::vector<int>(holders.size(), 1));
    }
  }
}

TEST_CASE("home tokens are parts of ring tokens, ring tokens parts of team tokens, in order") {
  for (const Layout layout : {Layout::contiguous, Layout::zigzag, Layout::striped}) {
    for (SequencePlan plan : plans()) {
      plan.layout = layout;
      const AttentionMesh mesh(plan);
      const std::int64_t seq = 4 * mesh.size();
      for (int r = 0; r < mesh.size(); ++r) {
        const Coordinates c = mesh.at(Rank(r));
        const TokenSet team = mesh.team_tokens({.seq = seq}, mesh.team_of(c));
        const TokenSet ring = mesh.ring_tokens({.seq = seq}, Rank(r));
        REQUIRE(team.part(c.member, mesh.team()) == ring);
        REQUIRE(ring.part(c.ulysses, mesh.ulysses()) == mesh.home_tokens({.seq = seq}, Rank(r)));
      }
    }
  }
}
