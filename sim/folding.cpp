#include "sim/folding.hpp"

#include <algorithm>
#include <numeric>

namespace spp::sim {
namespace {

/// |step| <= size.
int rotated(int value, int step, int size) { return (value + step + size) % size; }

Rank translated(const Mesh& mesh, Rank rank, const Translation& t) {
  Coordinates c = mesh.at(rank);
  c.ulysses = rotated(c.ulysses % t.digit, t.low, t.digit) +
              t.digit * rotated(c.ulysses / t.digit, t.high, mesh.ulysses() / t.digit);
  c.position = rotated(c.position, t.position, mesh.sub_ring());
  return mesh.rank(c);
}

/// Whether a translation maps the blocks of every kind of link, and nodes, onto blocks.
bool maps_cluster(const Mesh& mesh, const Placement& placement, const Translation& t) {
  const Cluster& cluster = placement.cluster();
  const auto ranks = static_cast<std::size_t>(placement.ranks());
  std::vector<std::pair<int, int>> moves(ranks);  // GPU from, to
  for (std::size_t r = 0; r < ranks; ++r) {
    moves[r] = {placement.gpu(Rank(r)), placement.gpu(translated(mesh, Rank(r), t))};
  }
  std::vector<int> image_of;
  const auto maps_blocks = [&](auto block) {
    image_of.assign(static_cast<std::size_t>(cluster.gpus()) + 1, -1);
    return std::ranges::all_of(moves, [&](const std::pair<int, int>& move) {
      int& known = image_of[static_cast<std::size_t>(block(move.first))];
      const int to = block(move.second);
      const bool same = known < 0 || known == to;
      known = to;
      return same;
    });
  };
  // Nodes are blocks also where no link marks them (a switch inside, NICs of one's own).
  if (!maps_blocks([&](int gpu) { return cluster.node_of(gpu); })) {
    return false;
  }
  for (std::size_t k = 0; k < link_kinds; ++k) {
    const auto kind = static_cast<LinkKind>(k);
    if (cluster.link(kind, 0).valid() &&
        !maps_blocks([&](int gpu) { return cluster.block(kind, gpu); })) {
      return false;
    }
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
  return {schedule,
          placement,
          {.digit = 1, .high = schedule.mesh.ulysses(), .position = schedule.mesh.sub_ring()}};
}

Folding Folding::largest(const Schedule& schedule, const Placement& placement) {
  const Mesh& mesh = schedule.mesh;
  Translation steps{.digit = 1, .high = mesh.ulysses(), .position = mesh.sub_ring()};
  if (schedule.symmetry.ulysses) {
    // A low digit that rotates by ones, and the largest rotation of the high digit beside it.
    for (int digit = 1; digit <= mesh.ulysses(); ++digit) {
      if (mesh.ulysses() % digit != 0 ||
          !maps_cluster(mesh, placement, {.digit = digit, .low = 1})) {
        continue;
      }
      const int high = smallest_step(mesh.ulysses() / digit, [&](int step) {
        return maps_cluster(mesh, placement, {.digit = digit, .high = step});
      });
      if (high < steps.high) {  // representatives along the axis
        steps.digit = digit;
        steps.high = high;
      }
    }
  }
  if (schedule.symmetry.ring) {
    steps.position = smallest_step(mesh.sub_ring(), [&](int step) {
      return maps_cluster(mesh, placement, {.position = step});
    });
  }
  return {schedule, placement, steps};
}

Folding::Folding(const Schedule& schedule, const Placement& placement, const Translation& steps)
    : mesh_(schedule.mesh), steps_(steps) {
  group_size_ = mesh_.ulysses() / steps.high * (mesh_.sub_ring() / steps.position);
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
  const auto join = [&](const Translation& t) {
    for (int r = 0; r < ranks; ++r) {
      const Rank to = translated(mesh_, Rank(r), t);
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
  join({.digit = steps.digit, .low = 1});
  join({.digit = steps.digit, .high = steps.high});
  join({.position = steps.position});
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
  const int high = c.ulysses / steps_.digit;
  return translated(mesh_, x,
                    {.digit = steps_.digit,
                     .low = -(c.ulysses % steps_.digit),
                     .high = -(high - high % steps_.high),
                     .position = -(c.position - c.position % steps_.position)});
}

}  // namespace spp::sim
