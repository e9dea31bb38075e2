// Times of the transfers of a step around attention, each over the group of its axis, while all
// other groups of that axis talk, too.
#pragma once

#include "sim/thinned.hpp"
#include "step/plan.hpp"
#include "step/sent.hpp"

#include <array>
#include <map>
#include <tuple>

namespace spp {

/// Of rank 0 along an axis around attention; the other groups are moved copies of it.
RankGroup first_group(const StepPlan& plan, StepAxis axis);

/// Of the axes around attention; what moves along attention's own, its schedule says.
class StepLinks {
 public:
  StepLinks(const sim::Cluster& cluster, const StepPlan& plan);

  [[nodiscard]] int size(StepAxis axis) const { return axes_[index(axis)].size; }
  /// A collective on a tensor of so many bytes: gathered, before it is scattered, what one rank
  /// brings to an all-to-all, what is reduced.
  [[nodiscard]] Seconds collective(StepAxis axis, CommKind kind, Bytes tensor);
  /// A message to the next stage.
  [[nodiscard]] Seconds message(Bytes bytes) const;
  /// Bytes that a rank sends to others in it.
  [[nodiscard]] Bytes sent(StepAxis axis, CommKind kind, Bytes tensor) const;
  /// That the axis' group lies on.
  [[nodiscard]] int nodes(StepAxis axis) const;

 private:
  struct Group {
    int size = 1;
    std::size_t cluster = 0;  // in clusters_
  };
  static std::size_t index(StepAxis axis) { return static_cast<std::size_t>(axis); }

  std::vector<sim::Cluster> clusters_;
  std::array<Group, step_axes> axes_{};
  std::map<std::tuple<StepAxis, CommKind, std::int64_t>, Seconds> times_;
};

}  // namespace spp
