// StarTrail against the tables of its algorithm: who sends what to whom, which key blocks meet
// whose queries at which step; and what happens without the initial exchange.
#include "parallel/attention/attention_mesh.hpp"
#include "schedule/coverage.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/support/catch.hpp"

namespace spp {
namespace {

constexpr std::array collect_intra{Axis::ulysses, Axis::team, Axis::ring};
constexpr std::array p2p_intra{Axis::ulysses, Axis::ring, Axis::team};

AttentionMesh mesh_of(int ring, int team, std::array<Axis, 3> order = collect_intra) {
  return AttentionMesh(
      {.strategy = "startrail", .ring = ring, .own = {{&parameters::team, team}}, .order = order});
}

Schedule startrail(int ring, int team, Phase phase, std::array<Axis, 3> order = collect_intra) {
  const Problem problem{.seq = std::int64_t{ring} * 4,
                        .q_heads = 2,
                        .kv_heads = 2,
                        .head_dim = 8,
                        .mask = {.kind = MaskKind::full}};
  const SequencePlan plan{
      .strategy = "startrail", .ring = ring, .own = {{&parameters::team, team}}, .order = order};
  const Strategy& strategy = strategies::by_name("startrail", "test");
  REQUIRE(why_not(strategy, problem, plan).legal());
  return strategy.build(problem, plan, phase, {});
}

template <class T>
std::vector<T> ops_of_kind(const Schedule& schedule, int rank) {
  std::vector<T> result;
  for (const Op& op : ops_of(schedule.program(Rank(rank)))) {
    if (const T* found = op_if<T>(op.body)) {
      result.push_back(*found);
    }
  }
  return result;
}

/// A row of the table: where the rank's team block goes first, its blocks by step, its neighbour.
struct Row {
  int first_to;
  std::vector<int> blocks;
  int next;
};

/// Tokens of a team: those of its gathered queries.
std::int64_t team_size(const Schedule& schedule) {
  return ops_of_kind<Collective>(schedule, 0).at(0).to_tokens.count();
}

/// Team block that holds a token set (contiguous layout).
int block_of(const TokenSet& tokens, const Schedule& schedule) {
  return static_cast<int>(tokens.ranges()[0].begin / team_size(schedule));
}

Row forward_row(const Schedule& schedule, int rank) {
  const auto exchanges = ops_of_kind<Exchange>(schedule, rank);
  Row row{.first_to = exchanges.at(0).to.value, .blocks = {}, .next = exchanges.at(1).to.value};
  for (const auto& attention : ops_of_kind<AttentionForward>(schedule, rank)) {
    CHECK(attention.q_tokens.count() == team_size(schedule));
    row.blocks.push_back(block_of(attention.k_tokens, schedule));
  }
  return row;
}

void check_rows(const Schedule& schedule, const std::vector<Row>& rows) {
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    INFO("rank " << rank);
    const Row row = forward_row(schedule, static_cast<int>(rank));
    CHECK(row.first_to == rows[rank].first_to);
    CHECK(row.blocks == rows[rank].blocks);
    CHECK(row.next == rows[rank].next);
  }
}

// The paper's Figure 5: 4 teams {0,1} {2,3} {4,5} {6,7} in 2 team groups.
TEST_CASE("StarTrail over 8 ranks, C = 2: exchange, key blocks and sub-rings") {
  check_rows(startrail(8, 2, Phase::forward), {{0, {0, 2}, 2},
                                               {4, {1, 3}, 3},
                                               {1, {2, 0}, 0},
                                               {5, {3, 1}, 1},
                                               {2, {0, 2}, 6},
                                               {6, {1, 3}, 7},
                                               {3, {2, 0}, 4},
                                               {7, {3, 1}, 5}});
}

// The paper's Figure 3: 8 teams, the two team groups are two nodes of 8 ranks.
TEST_CASE("StarTrail over 16 ranks, C = 2: exchange, key blocks and sub-rings") {
  check_rows(startrail(16, 2, Phase::forward), {{0, {0, 6, 4, 2}, 2},
                                                {8, {1, 7, 5, 3}, 3},
                                                {1, {2, 0, 6, 4}, 4},
                                                {9, {3, 1, 7, 5}, 5},
                                                {2, {4, 2, 0, 6}, 6},
                                                {10, {5, 3, 1, 7}, 7},
                                                {3, {6, 4, 2, 0}, 0},
                                                {11, {7, 5, 3, 1}, 1},
                                                {4, {0, 6, 4, 2}, 10},
                                                {12, {1, 7, 5, 3}, 11},
                                                {5, {2, 0, 6, 4}, 12},
                                                {13, {3, 1, 7, 5}, 13},
                                                {6, {4, 2, 0, 6}, 14},
                                                {14, {5, 3, 1, 7}, 15},
                                                {7, {6, 4, 2, 0}, 8},
                                                {15, {7, 5, 3, 1}, 9}});
}

// (T, m) is rank T*C + m in one placement and (g*C + m)*S + s, T = g*S + s, in the other.
TEST_CASE("both placements of StarTrail run the same algorithm on other ranks") {
  for (const auto& [ring, team] :
       std::vector<std::pair<int, int>>{{8, 2}, {16, 2}, {9, 3}, {36, 3}, {64, 4}}) {
    const int sub_ring = ring / team / team;
    const Schedule teams_adjacent = startrail(ring, team, Phase::forward, collect_intra);
    const Schedule rings_adjacent = startrail(ring, team, Phase::forward, p2p_intra);
    for (int t = 0; t < ring / team; ++t) {
      for (int m = 0; m < team; ++m) {
        const int collect = t * team + m;
        const int p2p = (t / sub_ring * team + m) * sub_ring + t % sub_ring;
        INFO("R=" << ring << " C=" << team << " team " << t << " member " << m);
        CHECK(mesh_of(ring, team, collect_intra).rank_of_team(0, t, m) == Rank(collect));
        CHECK(mesh_of(ring, team, p2p_intra).rank_of_team(0, t, m) == Rank(p2p));
        const auto here = ops_of_kind<AttentionForward>(teams_adjacent, collect);
        CHECK(ops_of_kind<AttentionForward>(rings_adjacent, p2p) == here);
        REQUIRE(here.size() == static_cast<std::size_t>(sub_ring));
        for (int i = 0; i < sub_ring; ++i) {  // b(T, m, i) = C*((T - i) mod S) + m
          CHECK(block_of(here[static_cast<std::size_t>(i)].k_tokens, teams_adjacent) ==
                team * ((t - i + sub_ring) % sub_ring) + m);
        }
      }
    }
  }
}

TEST_CASE("the backward of StarTrail moves query blocks past the team's keys") {
  const Schedule schedule = startrail(16, 2, Phase::backward);
  const auto attention = ops_of_kind<AttentionBackward>(schedule, 5);  // team 2, member 1
  REQUIRE(attention.size() == 4);
  const std::array queries{5, 3, 1, 7};
  for (std::size_t i = 0; i < attention.size(); ++i) {
    CHECK(block_of(attention[i].k_tokens, schedule) == 2);
    CHECK(block_of(attention[i].q_tokens, schedule) == queries.at(i));
  }
}

/// The schedule with its first exchange turned into a copy: every rank starts from its own team.
Schedule without_initial_exchange(Schedule schedule) {
  schedule.program = [whole = schedule.program](Rank rank) {
    Program program = whole(rank);
    const auto first = std::ranges::find_if(program.loops, [](const Loop& loop) {
      OpList ops;
      loop.body(0, ops);
      return std::ranges::any_of(ops,
                                 [](const Op& op) { return op_if<Exchange>(op.body) != nullptr; });
    });
    REQUIRE(first != program.loops.end());
    first->body = [body = first->body, rank](std::int64_t i, OpList& ops) {
      body(i, ops);
      for (Op& op : ops) {
        if (auto* exchange = op_if<Exchange>(op.body)) {
          exchange->to = rank;
          exchange->from = rank;
        }
      }
    };
    return program;
  };
  return schedule;
}

TEST_CASE("StarTrail without its initial exchange is refused") {
  for (const auto& [ring, team] :
       std::vector<std::pair<int, int>>{{4, 2}, {8, 2}, {16, 2}, {16, 4}, {9, 3}}) {
    const Schedule sound = startrail(ring, team, Phase::forward);
    REQUIRE(prove(sound).proven);
    const Proof proof = prove(without_initial_exchange(sound));
    INFO(proof.counter_example);
    CHECK_FALSE(proof.proven);
    CHECK_FALSE(proof.counter_example.empty());
    CHECK_FALSE(prove(without_initial_exchange(startrail(ring, team, Phase::backward))).proven);
  }
}

/// The same, and kernels attend to what is really there: at step i the keys of team (T - i) of the
/// own team group.
Schedule sketch(const Schedule& sound, const AttentionMesh& mesh) {
  Schedule schedule = without_initial_exchange(sound);
  schedule.program = [inner = schedule.program, problem = schedule.contract.attention,
                      mesh](Rank rank) {
    Program program = inner(rank);
    for (Loop& loop : program.loops) {
      loop.body = [=, body = loop.body](std::int64_t i, OpList& ops) {
        body(i, ops);
        for (Op& op : ops) {
          if (auto* attention = op_if<AttentionForward>(op.body)) {
            Coordinates at = mesh.at(rank);
            const auto step = static_cast<int>(i);
            at.position = (at.position - step + mesh.sub_ring()) % mesh.sub_ring();
            attention->k_tokens = mesh.team_tokens(problem, mesh.team_of(at));
          }
        }
      };
    }
    return program;
  };
  return schedule;
}

// Over 16 ranks with C = 2, half of the 64 pairs of blocks are met twice and the others never.
TEST_CASE("starting from the own team's keys meets pairs twice") {
  const Proof proof = prove(sketch(startrail(16, 2, Phase::forward), mesh_of(16, 2)));
  CHECK_FALSE(proof.proven);
  CHECK_THAT(proof.counter_example, Catch::Matchers::ContainsSubstring("twice"));
}

}  // namespace
}  // namespace spp
