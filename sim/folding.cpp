#include "sim/folding.hpp"

#include <algorithm>
#include <numeric>

namespace spp::sim {
namespace {

Rank translated(const Mesh& mesh, Rank rank, int ulysses, int position) {
  Coordinates c = mesh.at(rank);
  c.ulysses = (c.ulysses + ulysses + mesh.ulysses()) % mesh.ulysses();
  c.position = (c.position + position + mesh.sub_ring()) % mesh.sub_ring();
  return mesh.rank(c);
}

/// Whether a translation maps the blocks of every kind of link onto blocks.
bool maps_cluster(const Mesh& mesh, const Placement& placement, int ulysses, int position) {
  const Cluster& cluster = placement.cluster();
  const auto kinds = static_cast<int>(link_kinds);
  std::vector<int> image_of;
  for (int k = 0; k < kinds; ++k) {
    const auto kind = static_cast<LinkKind>(k);
    if (!cluster.link(kind, 0).valid()) {
      continue;
    }
    image_of.assign(static_cast<std::size_t>(cluster.gpus()) + 1, -1);
    for (int r = 0; r < placement.ranks(); ++r) {
      const int from = cluster.block(kind, placement.gpu(Rank(r)));
      const int to =
          cluster.block(kind, placement.gpu(translated(mesh, Rank(r), ulysses, position)));
      int& known = image_of.at(static_cast<std::size_t>(from));
      if (known >= 0 && known != to) {
        return false;
      }
      known = to;
    }
  }
  // Nodes themselves are blocks too, also where no link marks them (a switch inside, NICs of one's
  // own).
  image_of.assign(static_cast<std::size_t>(cluster.nodes()), -1);
  for (int r = 0; r < placement.ranks(); ++r) {
    int& known = image_of.at(static_cast<std::size_t>(placement.node(Rank(r))));
    const int to = placement.node(translated(mesh, Rank(r), ulysses, position));
    if (known >= 0 && known != to) {
      return false;
    }
    known = to;
  }
  return true;
}

int root_of(std::vector<int>& parent, int x) {
  while (parent[static_cast<std::size_t>(x)] != x) {
    parent[static_cast<std::size_t>(x)] =
        parent[static_cast<std::size_t>(parent[static_cast<std::size_t>(x)])];
    x = parent[static_cast<std::size_t>(x)];
  }
  return x;
}

/// The smallest divisor of `size` that is a legal step; `size` itself is the identity.
template <class Maps>
int smallest_step(int size, Maps maps) {
  for (int step = 1; step < size; ++step) {
    if (size % step == 0 && maps(step)) {
      return step;
    }
  }
  return size;
}

}  // namespace

Folding Folding::none(const Schedule& schedule, const Placement& placement) {
  return {schedule, placement, schedule.mesh.ulysses(), schedule.mesh.sub_ring()};
}

Folding Folding::largest(const Schedule& schedule, const Placement& placement) {
  const Mesh& mesh = schedule.mesh;
  int ulysses_step = mesh.ulysses();
  int ring_step = mesh.sub_ring();
  if (schedule.symmetry.ulysses) {
    ulysses_step = smallest_step(mesh.ulysses(),
                                 [&](int step) { return maps_cluster(mesh, placement, step, 0); });
  }
  if (schedule.symmetry.ring) {
    ring_step = smallest_step(mesh.sub_ring(),
                              [&](int step) { return maps_cluster(mesh, placement, 0, step); });
  }
  return {schedule, placement, ulysses_step, ring_step};
}

Folding::Folding(const Schedule& schedule, const Placement& placement, int ulysses_step,
                 int ring_step)
    : mesh_(schedule.mesh), ulysses_step_(ulysses_step), ring_step_(ring_step) {
  group_size_ = mesh_.ulysses() / ulysses_step * (mesh_.sub_ring() / ring_step);
  const int ranks = mesh_.size();
  class_of_.assign(static_cast<std::size_t>(ranks), -1);
  for (int r = 0; r < ranks; ++r) {
    if (image(Rank(r), Rank(r)) == Rank(r)) {
      class_of_[static_cast<std::size_t>(r)] = static_cast<int>(representatives_.size());
      representatives_.emplace_back(r);
    }
  }
  for (int r = 0; r < ranks; ++r) {
    class_of_[static_cast<std::size_t>(r)] =
        class_of_[static_cast<std::size_t>(image(Rank(r), Rank(r)).value)];
  }

  // Link classes: orbits under the generating translations.
  const Cluster& cluster = placement.cluster();
  const auto links = static_cast<int>(cluster.links().size());
  std::vector<int> parent(static_cast<std::size_t>(links));
  std::iota(parent.begin(), parent.end(), 0);
  const auto join = [&](int du, int ds) {
    for (int r = 0; r < ranks; ++r) {
      const Rank to = translated(mesh_, Rank(r), du, ds);
      for (std::size_t k = 0; k < link_kinds; ++k) {
        const LinkId a = cluster.link(static_cast<LinkKind>(k), placement.gpu(Rank(r)));
        const LinkId b = cluster.link(static_cast<LinkKind>(k), placement.gpu(to));
        if (a.valid() && b.valid()) {
          const int x = root_of(parent, a.value);
          const int y = root_of(parent, b.value);
          parent[static_cast<std::size_t>(std::max(x, y))] = std::min(x, y);
        }
      }
    }
  };
  if (ulysses_step_ < mesh_.ulysses()) {
    join(ulysses_step_, 0);
  }
  if (ring_step_ < mesh_.sub_ring()) {
    join(0, ring_step_);
  }
  link_class_.resize(static_cast<std::size_t>(links));
  class_size_.assign(static_cast<std::size_t>(links), 0);
  for (int l = 0; l < links; ++l) {
    const int root = root_of(parent, l);
    link_class_[static_cast<std::size_t>(l)] = LinkId(root);
    ++class_size_[static_cast<std::size_t>(root)];
  }
}

Rank Folding::image(Rank x, Rank moved) const {
  const Coordinates c = mesh_.at(moved);
  return translated(mesh_, x, -(c.ulysses - c.ulysses % ulysses_step_),
                    -(c.position - c.position % ring_step_));
}

}  // namespace spp::sim
