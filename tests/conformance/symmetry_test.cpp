// What a schedule claims in Schedule::symmetry: along these axes every rank runs the program of the
// rank at coordinate 0, with peers and tokens moved along the axis. That is what lets one rank
// stand for all (sim/folding).
#include "parallel/attention/attention_mesh.hpp"
#include "schedule/measure.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cmath>

namespace spp {
namespace {

using test::Case;

bool symmetric(const Schedule& schedule, std::string_view axis) {
  return std::ranges::any_of(schedule.symmetry, [&](const SymmetricAxis& s) {
    return s.axis == axis && s.under != AxisMoves::alike && s.under != AxisMoves::equal;
  });
}

/// A shift along the symmetric axes.
struct Translation {
  const Schedule* schedule;
  const AttentionMesh* mesh;
  int ulysses = 0;
  int position = 0;

  [[nodiscard]] Rank operator()(Rank rank) const { return shifted(rank, ulysses); }

  /// Home tokens move along both axes. What the Ulysses group shares moves along the ring only, as
  /// whole chunks (parts of chunks are needed under masks that leave no ring symmetry); so do
  /// cached tokens.
  [[nodiscard]] bool maps(const TokenSet& here, const TokenSet& there) const {
    for (int r = 0; r < schedule->mesh.size(); ++r) {
      if (here == home(Rank(r)) && there == home((*this)(Rank(r)))) {
        return true;
      }
    }
    if (position == 0) {
      return here == there;
    }
    for (int r = 0; r < schedule->mesh.size(); ++r) {
      const Rank moved = shifted(Rank(r), 0);
      if (!meet_alike(here, home(Rank(r)), there, home(moved)) ||
          !meet_alike(here, cached(Rank(r)), there, cached(moved))) {
        return false;
      }
    }
    return here.count() == there.count();
  }
  [[nodiscard]] bool maps(const RankGroup& here, const RankGroup& there) const {
    std::vector<Rank> moved;
    std::vector<Rank> members;
    for (int i = 0; i < here.size; ++i) {
      moved.push_back((*this)(here.rank(i)));
      members.push_back(there.rank(i));
    }
    std::ranges::sort(moved);
    std::ranges::sort(members);
    return here.size == there.size && moved == members;
  }

 private:
  /// Both sets have the first token of a chunk, or neither has it.
  static bool meet_alike(const TokenSet& here, const TokenSet& chunk, const TokenSet& there,
                         const TokenSet& moved) {
    return chunk.empty() ||
           here.contains(chunk.ranges()[0].begin) == there.contains(moved.ranges()[0].begin);
  }
  [[nodiscard]] TokenSet home(Rank rank) const {
    return mesh->ulysses() > 1 ? mesh->home_tokens(schedule->contract.attention, rank)
                               : mesh->ring_keys(schedule->contract.attention, rank);
  }
  [[nodiscard]] TokenSet cached(Rank rank) const {
    return mesh->cached_tokens(schedule->contract.attention, rank);
  }
  [[nodiscard]] Rank shifted(Rank rank, int by_ulysses) const {
    Coordinates c = mesh->at(rank);
    c.ulysses = (c.ulysses + by_ulysses) % mesh->ulysses();
    c.position = (c.position + position) % mesh->sub_ring();
    return mesh->rank(c);
  }
};

bool same_size(const Buffer& a, const Buffer& b) {
  return a.name == b.name && a.tensor == b.tensor && a.role == b.role && a.dtype == b.dtype &&
         a.tokens == b.tokens && a.heads == b.heads;
}

/// Token sets and groups of two ops of one kind correspond.
bool same_places(const OpBody& here, const OpBody& there, const Translation& moved) {
  return visit_op(
      [&]<class T>(const T& a) {
        const T& b = *op_if<T>(there);
        if constexpr (requires { a.q_tokens; }) {
          return moved.maps(a.q_tokens, b.q_tokens) && moved.maps(a.k_tokens, b.k_tokens) &&
                 a.heads.count() == b.heads.count() && a.kv_heads.count() == b.kv_heads.count();
        } else if constexpr (requires { a.group; }) {
          // Of states all slots are gathered, by everybody.
          const bool slots =
              a.kind == CollectiveKind::all_gather && moved.schedule->grain.slots > 0;
          return moved.maps(a.group, b.group) &&
                 (slots ? a.to_tokens == b.to_tokens : moved.maps(a.to_tokens, b.to_tokens)) &&
                 a.to_heads.count() == b.to_heads.count();
        } else if constexpr (requires { a.tokens; }) {
          return moved.maps(a.tokens, b.tokens);
        } else if constexpr (requires { a.slots; }) {
          return a.slots == b.slots;
        } else if constexpr (requires { a.receive; }) {
          const auto same = [&](Rank peer, Rank other) {
            return peer.valid() == other.valid() && (!peer.valid() || moved(peer) == other);
          };
          return same(a.to, b.to) && same(a.from, b.from) && a.send == b.send &&
                 a.receive == b.receive;
        } else {
          return a == b;
        }
      },
      here);
}

/// The rank's program against that of the rank `moved` takes to it: buffers, streams and kinds of
/// ops, bytes that they send; `compare` checks two ops further, whose buffers are of the same
/// shapes.
template <class Compare>
void check_moved(const Schedule& schedule, const Translation& moved, Rank rank, Compare compare) {
  Coordinates first = moved.mesh->at(rank);
  first.ulysses -= moved.ulysses;
  first.position -= moved.position;
  const Rank representative = moved.mesh->rank(first);
  const Program here = schedule.program(representative);
  const Program there = schedule.program(rank);
  REQUIRE(std::ranges::equal(here.buffers, there.buffers, same_size));
  const Shapes shapes{&schedule.contract.attention, here.buffers, representative};
  const OpList ops = ops_of(here);
  const OpList other = ops_of(there);
  REQUIRE(ops.size() == other.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    INFO("rank " << rank.value << " for rank " << representative.value << ", op " << i << " "
                 << name_of(ops[i].body));
    REQUIRE(ops[i].stream == other[i].stream);
    REQUIRE(kind_of(ops[i].body) == kind_of(other[i].body));
    if (is_transfer(ops[i].body)) {
      REQUIRE(sent_bytes(std::get<Transfer>(ops[i].body), shapes) ==
              sent_bytes(std::get<Transfer>(other[i].body),
                         {&schedule.contract.attention, there.buffers, rank}));
    }
    compare(ops[i].body, other[i].body, shapes);
  }
}

double flops_of(const OpBody& op, const Shapes& shapes) {
  const auto* kernel = std::get_if<Kernel>(&op);
  return kernel != nullptr ? attention_flops(*kernel, shapes).value() : 0;
}

void check_rank(const Schedule& schedule, const AttentionMesh& mesh, Rank rank) {
  const Coordinates at = mesh.at(rank);
  const Translation moved{.schedule = &schedule,
                          .mesh = &mesh,
                          .ulysses = symmetric(schedule, "ulysses") ? at.ulysses : 0,
                          .position = symmetric(schedule, "ring") ? at.position : 0};
  check_moved(schedule, moved, rank,
              [&](const OpBody& here, const OpBody& there, const Shapes& shapes) {
                REQUIRE(same_places(here, there, moved));
                REQUIRE(flops_of(here, shapes) == flops_of(there, shapes));
              });
}

/// Along an axis that is only alike: ops, streams, peers and messages are those of the rank at
/// position 0, moved; a kernel has its pairs but for one a query.
void check_alike(const Schedule& schedule, const AttentionMesh& mesh, Rank rank) {
  const Translation moved{.schedule = &schedule, .mesh = &mesh, .position = mesh.at(rank).position};
  // A block of striped chunks has its diagonal or not: of n x n pairs n(n+1)/2 or n(n-1)/2.
  const std::int64_t each = schedule.contract.attention.seq / mesh.size();
  const auto tokens = static_cast<double>(each);
  check_moved(
      schedule, moved, rank, [&](const OpBody& here, const OpBody& there, const Shapes& shapes) {
        if (const auto* exchange = op_if<Exchange>(here)) {
          const auto& other = *op_if<Exchange>(there);
          REQUIRE((moved(exchange->to) == other.to && moved(exchange->from) == other.from));
        }
        const double pairs = flops_of(here, shapes);
        const double others = flops_of(there, shapes);
        REQUIRE(std::abs(pairs - others) <= 2 / (tokens + 1) * std::max(pairs, others) + 1e-9);
      });
}

TEST_CASE("ranks along an axis that is alike have as many ops, messages and pairs") {
  int alike = 0;
  for (const int ranks : test::small_worlds) {
    for (const Case& c : test::all_cases(ranks, 60)) {
      const Schedule schedule = c.build();
      if (std::ranges::find(schedule.symmetry, AxisMoves::alike, &SymmetricAxis::under) ==
          schedule.symmetry.end()) {
        continue;
      }
      INFO(c.text());
      for (int r = 0; r < ranks; ++r) {
        check_alike(schedule, AttentionMesh(c.plan, schedule.contract.attention), Rank(r));
      }
      ++alike;
    }
  }
  CHECK(alike > 0);
}

TEST_CASE("ranks along a symmetric axis run the same program") {
  for (const int ranks : test::small_worlds) {
    for (const Case& c : test::all_cases(ranks, 60)) {
      INFO(c.text());
      const Schedule schedule = c.build();
      for (int r = 0; r < ranks; ++r) {
        check_rank(schedule, AttentionMesh(c.plan, schedule.contract.attention), Rank(r));
      }
    }
  }
}

TEST_CASE("Ulysses is symmetric unless heads are uneven, rings only under the full mask") {
  const auto symmetry = [](const std::string& strategy, int ulysses, int ring, HeadPolicy heads,
                           MaskKind mask) {
    const Problem problem{
        .seq = 64, .q_heads = 6, .kv_heads = 6, .head_dim = 8, .mask = {.kind = mask}};
    const Strategy& chosen = strategies::by_name(strategy, "test");
    const SequencePlan plan{.strategy = strategy, .ulysses = ulysses, .ring = ring, .heads = heads};
    REQUIRE(why_not(chosen, problem, plan).legal());
    return chosen.build(problem, plan, Phase::forward, {}).symmetry;
  };
  using Axes = std::vector<SymmetricAxis>;
  const SymmetricAxis heads{.axis = "ulysses", .under = AxisMoves::permutations};
  const SymmetricAxis places{.axis = "ring", .under = AxisMoves::rotations};
  CHECK(symmetry("ring", 1, 4, HeadPolicy::divide, MaskKind::full) == Axes{heads, places});
  CHECK(symmetry("ring", 1, 4, HeadPolicy::divide, MaskKind::causal) == Axes{heads});
  CHECK(symmetry("ulysses", 3, 1, HeadPolicy::divide, MaskKind::causal) == Axes{heads});
  CHECK(symmetry("ulysses", 4, 1, HeadPolicy::uneven, MaskKind::causal) == Axes{});
  CHECK(symmetry("ulysses", 4, 1, HeadPolicy::pad, MaskKind::causal) == Axes{heads});
  CHECK(symmetry("usp", 2, 2, HeadPolicy::divide, MaskKind::full) == Axes{heads, places});
}

}  // namespace
}  // namespace spp
