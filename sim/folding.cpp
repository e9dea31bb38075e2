#include "sim/folding.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace spp::sim {
namespace {

/// |step| <= size.
int rotated(int value, int step, int size) { return (value + step + size) % size; }

Rank translated(const Mesh& mesh, Rank rank, const AxisSteps& t) {
  const int c = mesh.coordinate(rank, t.axis);
  const int digits = mesh.axes()[t.axis].size / t.digit;
  return mesh.moved(
      rank, t.axis,
      rotated(c % t.digit, t.low, t.digit) + t.digit * rotated(c / t.digit, t.high, digits));
}

/// Whether a translation maps the blocks of every kind of link, and nodes, onto blocks.
bool maps_cluster(const Mesh& mesh, const Placement& placement, const AxisSteps& t) {
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

/// Whether a rotation maps the rings of collectives (lowering.cpp) onto rings: of groups along its
/// axis, and along that and all inside it. Rings enter the next node by the index, in the group's
/// order, at which they leave one; members that pass the end of the axis come first in their node,
/// which turns it, so all of a group's nodes have to turn by as much. In blocks they do; where
/// ranks are dealt out, not under every rotation.
bool maps_rings(const Mesh& mesh, const Placement& placement, const AxisSteps& t) {
  struct Members {
    int all = 0, passing = 0;
    [[nodiscard]] int turn() const { return passing % all; }
  };
  const auto maps = [&](auto group_of) {
    std::map<std::pair<int, int>, Members> nodes;  // by group and node
    for (int r = 0; r < placement.ranks(); ++r) {
      Members& members = nodes[{group_of(Rank(r)), placement.node(Rank(r))}];
      ++members.all;
      members.passing += translated(mesh, Rank(r), t).value < r ? 1 : 0;
    }
    return std::ranges::adjacent_find(nodes, [](const auto& a, const auto& b) {
             return a.first.first == b.first.first &&
                    (a.second.turn() != b.second.turn() ||
                     (a.second.turn() != 0 && a.second.all != b.second.all));
           }) == nodes.end();
  };
  const int with_inner = mesh.stride(t.axis) * mesh.axes()[t.axis].size;
  return maps([&](Rank r) { return mesh.group(r, t.axis).first; }) &&
         maps([&](Rank r) { return r.value / with_inner; });
}

/// Whether there are collectives that go round in rings: all but all-to-alls.
bool has_rings(const Schedule& schedule) {
  ProgramCursor cursor(schedule.program(Rank(0)));
  for (const Op* op = cursor.next(); op != nullptr; op = cursor.next()) {
    const auto* transfer = std::get_if<Transfer>(&op->body);
    const auto* collective = transfer != nullptr ? std::get_if<Collective>(transfer) : nullptr;
    if (collective != nullptr && collective->kind != CollectiveKind::all_to_all) {
      return true;
    }
  }
  return false;
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
  return {schedule, placement, {}};
}

Folding Folding::largest(const Schedule& schedule, const Placement& placement, bool alike) {
  const Mesh& mesh = schedule.mesh;
  std::vector<AxisSteps> all;
  for (const SymmetricAxis& symmetric : schedule.symmetry) {
    const bool exact =
        symmetric.under == AxisMoves::rotations || symmetric.under == AxisMoves::permutations;
    if (!exact && !alike) {
      continue;
    }
    const auto axis = mesh.find(symmetric.axis);
    ensure(axis.has_value(), "a symmetry along an axis that the mesh lacks");
    const int size = mesh.axes()[*axis].size;
    AxisSteps steps{.axis = *axis, .high = size, .alike = symmetric.under == AxisMoves::alike};
    // The largest rotation of the high digit beside a low one that rotates by ones.
    const bool any_order = symmetric.under == AxisMoves::permutations;
    const int most = any_order ? size : 1;
    for (int digit = 1; digit <= most; ++digit) {
      if (size % digit != 0 ||
          !maps_cluster(mesh, placement, {.axis = *axis, .digit = digit, .low = 1})) {
        continue;
      }
      const int high = smallest_step(size / digit, [&](int step) {
        const AxisSteps t{.axis = *axis, .digit = digit, .high = step};
        return maps_cluster(mesh, placement, t) &&
               (any_order || maps_rings(mesh, placement, t) || !has_rings(schedule));
      });
      if (high < steps.high) {  // representatives along the axis
        steps.digit = digit;
        steps.high = high;
      }
    }
    if (steps.high < size) {
      all.push_back(steps);
    }
  }
  return {schedule, placement, std::move(all)};
}

Folding::Folding(const Schedule& schedule, const Placement& placement, std::vector<AxisSteps> steps)
    : mesh_(schedule.mesh), steps_(std::move(steps)) {
  for (const AxisSteps& s : steps_) {
    group_size_ *= mesh_.axes()[s.axis].size / s.high;
  }
  choose_representatives();
  const int ranks = mesh_.size();

  // Link classes: orbits under the generating translations.
  const Cluster& cluster = placement.cluster();
  const auto links = static_cast<int>(cluster.links().size());
  std::vector<int> parent(static_cast<std::size_t>(links));
  std::iota(parent.begin(), parent.end(), 0);
  const auto join = [&](const AxisSteps& t) {
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
  for (const AxisSteps& s : steps_) {
    join({.axis = s.axis, .digit = s.digit, .low = 1});
    join({.axis = s.axis, .digit = s.digit, .high = s.high});
  }
  link_class_.resize(static_cast<std::size_t>(links));
  class_size_.assign(static_cast<std::size_t>(links), 0);
  for (int l = 0; l < links; ++l) {
    const int root = root_of(parent, l);
    link_class_[static_cast<std::size_t>(l)] = LinkId(root);
    ++class_size_[static_cast<std::size_t>(root)];
  }
}

void Folding::choose_representatives() {
  const int ranks = mesh_.size();
  representatives_.clear();
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
}

bool Folding::alike() const { return std::ranges::any_of(steps_, &AxisSteps::alike); }

Folding Folding::from_the_end() const {
  Folding other = *this;
  for (AxisSteps& s : other.steps_) {
    s.anchor = s.alike ? mesh_.axes()[s.axis].size / s.digit - s.high : s.anchor;
  }
  other.choose_representatives();
  return other;
}

Rank Folding::image(Rank x, Rank moved) const {
  for (const AxisSteps& s : steps_) {
    const int c = mesh_.coordinate(moved, s.axis);
    const int high = c / s.digit;
    x = translated(mesh_, x,
                   {.axis = s.axis,
                    .digit = s.digit,
                    .low = -(c % s.digit),
                    .high = s.anchor - (high - high % s.high)});
  }
  return x;
}

}  // namespace spp::sim
