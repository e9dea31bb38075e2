#include "parallel/attention/attention_mesh.hpp"

#include "base/error.hpp"
#include "schedule/balanced.hpp"

namespace spp {
namespace {

std::size_t axis_of(const Mesh& mesh, std::string_view name) {
  const auto axis = mesh.find(name);
  ensure(axis.has_value(), "an attention mesh without one of its axes");
  return *axis;
}

}  // namespace

namespace parameters {
extern const Parameter team{.name = "team",
                            .symbol = "C",
                            .letter = "C",
                            .words = "team size",
                            .help = "StarTrail team size; C*C divides R",
                            .squared = true};
}

int size_of(const SequencePlan& plan, Axis axis) {
  const int team = plan.own[parameters::team];
  switch (axis) {
    case Axis::ulysses:
      return plan.ulysses;
    case Axis::team:
      return team;
    case Axis::ring:
      return plan.ring / (team * team);
  }
  throw InternalError("unknown axis");
}

AttentionMesh::AttentionMesh(const SequencePlan& plan) : plan_(plan) {
  ensure(ulysses() >= 1 && team() >= 1 && sub_ring() >= 1 && team() * team() * sub_ring() == ring(),
         "a mesh of degrees that do not divide");
  std::vector<MeshAxis> axes;
  for (const Axis axis : plan.order) {
    axes.push_back({.name = std::string(to_string(axis)), .size = size_of(plan, axis)});
  }
  axes.push_back({.name = "group", .size = team()});
  mesh_ = Mesh(std::move(axes));
  ulysses_ = axis_of(mesh_, "ulysses");
  team_ = axis_of(mesh_, "team");
  ring_ = axis_of(mesh_, "ring");
  group_ = axis_of(mesh_, "group");
}

AttentionMesh::AttentionMesh(const SequencePlan& plan, const Problem& padded)
    : AttentionMesh(plan) {
  if (by_work(plan.layout)) {
    dealt_ = dealt_by_work(padded, plan.layout, teams());
  }
}

Coordinates AttentionMesh::at(Rank rank) const {
  return {.ulysses = mesh_.coordinate(rank, ulysses_),
          .member = mesh_.coordinate(rank, team_),
          .position = mesh_.coordinate(rank, ring_),
          .group = mesh_.coordinate(rank, group_)};
}

Rank AttentionMesh::rank(const Coordinates& c) const {
  return Rank(c.ulysses * mesh_.stride(ulysses_) + c.member * mesh_.stride(team_) +
              c.position * mesh_.stride(ring_) + c.group * mesh_.stride(group_));
}

std::array<Rank, 2> AttentionMesh::ends() const {
  const int member = team() - 1;
  return {rank({.ulysses = 0, .member = member, .position = 0, .group = member}),
          rank({.ulysses = 0, .member = member, .position = sub_ring() - 1, .group = member})};
}

Rank AttentionMesh::rank_of_team(int ulysses, int team, int member) const {
  return rank({.ulysses = ulysses,
               .member = member,
               .position = team % sub_ring(),
               .group = team / sub_ring()});
}

RankGroup AttentionMesh::group(Rank rank, Axis axis) const {
  switch (axis) {
    case Axis::ulysses:
      return ulysses_group(rank);
    case Axis::team:
      return team_group(rank);
    case Axis::ring:
      return ring_group(rank);
  }
  throw InternalError("unknown axis");
}

TokenSet AttentionMesh::team_tokens(const Problem& problem, int team) const {
  return dealt_ ? (*dealt_)[static_cast<std::size_t>(team)]
                : chunk_of_queries(problem, plan_.layout, team, teams());
}

TokenSet AttentionMesh::ring_tokens(const Problem& problem, Rank rank) const {
  const Coordinates c = at(rank);
  return team_tokens(problem, team_of(c)).part(c.member, team());
}

TokenSet AttentionMesh::home_tokens(const Problem& problem, Rank rank) const {
  return ring_tokens(problem, rank).part(at(rank).ulysses, ulysses());
}

TokenSet AttentionMesh::cached_tokens(const Problem& problem, Rank rank) const {
  ensure(problem.cached == 0 || team() == 1, "teams without cached keys");
  return chunk_of_cached(problem, plan_.layout, at(rank).position, ring());
}

TokenSet AttentionMesh::ring_keys(const Problem& problem, Rank rank) const {
  return problem.cached == 0 ? ring_tokens(problem, rank)
                             : chunk_of_keys(problem, plan_.layout, at(rank).position, ring());
}

}  // namespace spp
