#include "schedule/mesh.hpp"

#include "base/error.hpp"

namespace spp {

Mesh::Mesh(const SequencePlan& plan)
    : ulysses_(plan.ulysses), team_(plan.team), sub_ring_(plan.ring / (plan.team * plan.team)) {
  ensure(ulysses_ >= 1 && team_ >= 1 && sub_ring_ >= 1 && ring() == plan.ring,
         "a mesh of degrees that do not divide");
  int stride = 1;
  for (const Axis axis : plan.order) {
    switch (axis) {
      case Axis::ulysses:
        ulysses_stride_ = stride;
        stride *= ulysses_;
        break;
      case Axis::team:
        member_stride_ = stride;
        stride *= team_;
        break;
      case Axis::ring:
        position_stride_ = stride;
        stride *= sub_ring_;
        break;
    }
  }
  group_stride_ = stride;
}

Coordinates Mesh::at(Rank rank) const {
  return {.ulysses = rank.value / ulysses_stride_ % ulysses_,
          .member = rank.value / member_stride_ % team_,
          .position = rank.value / position_stride_ % sub_ring_,
          .group = rank.value / group_stride_};
}

Rank Mesh::rank(const Coordinates& c) const {
  return Rank(c.ulysses * ulysses_stride_ + c.member * member_stride_ +
              c.position * position_stride_ + c.group * group_stride_);
}

Rank Mesh::rank_of_team(int ulysses, int team, int member) const {
  return rank({.ulysses = ulysses,
               .member = member,
               .position = team % sub_ring_,
               .group = team / sub_ring_});
}

RankGroup Mesh::ulysses_group(Rank r) const {
  Coordinates c = at(r);
  c.ulysses = 0;
  return {.first = rank(c).value, .stride = ulysses_stride_, .size = ulysses_};
}

RankGroup Mesh::team_group(Rank r) const {
  Coordinates c = at(r);
  c.member = 0;
  return {.first = rank(c).value, .stride = member_stride_, .size = team_};
}

RankGroup Mesh::ring_group(Rank r) const {
  Coordinates c = at(r);
  c.position = 0;
  return {.first = rank(c).value, .stride = position_stride_, .size = sub_ring_};
}

TokenSet chunk_tokens(std::int64_t seq, Layout layout, int index, int chunks) {
  const std::int64_t size = seq / chunks;
  switch (layout) {
    case Layout::contiguous:
      return TokenSet({.begin = index * size, .count = size});
    case Layout::striped:
      return TokenSet({.begin = index, .count = size, .stride = chunks});
    case Layout::zigzag: {
      const std::int64_t half = size / 2;
      return {{.begin = index * half, .count = half},
              {.begin = (2 * chunks - 1 - index) * half, .count = half}};
    }
  }
  throw InternalError("unknown layout");
}

TokenSet team_tokens(const Problem& problem, Layout layout, const Mesh& mesh, int team) {
  return chunk_tokens(problem.seq, layout, team, mesh.teams());
}

TokenSet ring_tokens(const Problem& problem, Layout layout, const Mesh& mesh, Rank rank) {
  const Coordinates c = mesh.at(rank);
  return team_tokens(problem, layout, mesh, mesh.team_of(c)).part(c.member, mesh.team());
}

TokenSet home_tokens(const Problem& problem, Layout layout, const Mesh& mesh, Rank rank) {
  return ring_tokens(problem, layout, mesh, rank).part(mesh.at(rank).ulysses, mesh.ulysses());
}

}  // namespace spp
