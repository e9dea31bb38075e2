// Times of the transfers of a step around attention, each over the group of its axis, while all
// other groups of that axis talk, too.
#pragma once

#include "sim/thinned.hpp"
#include "step/plan.hpp"
#include "step/sent.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <utility>

namespace spp {

/// Of rank 0 along an axis around attention; the other groups are moved copies of it.
RankGroup first_group(const StepPlan& plan, StepAxis axis);

/// A cluster as groups of ranks see it, and what their collectives take: each worked out once, as
/// plans of one question have most of them in common.
class GroupTimes {
 public:
  /// `cluster` must outlive this.
  explicit GroupTimes(const sim::Cluster& cluster) : cluster_(cluster) {}

  struct View {
    sim::Cluster cluster;
    std::map<std::pair<CommKind, std::int64_t>, Seconds> times;  // by bytes of a tensor
    std::map<CommKind, sim::LinkSeconds> taken;                  // by a byte that a rank sends
  };
  [[nodiscard]] const sim::Cluster& cluster() const { return cluster_; }
  /// As `size` ranks at a stride see it; InputError if they cannot be on it (sim/thinned.hpp). It
  /// lives as long as this.
  View& of(int stride, int size);

 private:
  const sim::Cluster& cluster_;
  std::map<std::pair<int, int>, View> views_;
};

/// Of the axes around attention; what moves along attention's own, its schedule says.
class StepLinks {
 public:
  /// `groups` must outlive this.
  StepLinks(GroupTimes& groups, const StepPlan& plan);

  [[nodiscard]] int size(StepAxis axis) const { return axes_[index(axis)].size; }
  /// A collective on a tensor of so many bytes: gathered, before it is scattered, what one rank
  /// brings to an all-to-all, what is reduced.
  [[nodiscard]] Seconds collective(StepAxis axis, CommKind kind, Bytes tensor) const;
  /// What it takes of links meanwhile.
  [[nodiscard]] sim::LinkSeconds taken(StepAxis axis, CommKind kind, Bytes tensor) const;
  /// A message from a stage to the next one, or back; of the last one to the first.
  [[nodiscard]] Seconds message(Bytes bytes, int stage) const;
  [[nodiscard]] bool crosses_nodes(int stage) const;
  /// Through which a stage, of several, sends to other nodes: stages with the same one share it.
  [[nodiscard]] int card(int stage) const;
  /// Bytes that a rank sends to others in it.
  [[nodiscard]] Bytes sent(StepAxis axis, CommKind kind, Bytes tensor) const;
  /// That the axis' group lies on.
  [[nodiscard]] int nodes(StepAxis axis) const;

 private:
  struct Group {
    int size = 1;
    GroupTimes::View* view = nullptr;  // of more than one rank
  };
  static std::size_t index(StepAxis axis) { return static_cast<std::size_t>(axis); }

  std::array<Group, step_axes> axes_{};
};

}  // namespace spp
