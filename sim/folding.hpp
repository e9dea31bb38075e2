// Folding: simulate one rank for all that behave alike.
//
// If a permutation of the ranks maps the schedule onto itself (strategies claim such symmetries,
// their conformance test proves them) and maps the cluster onto itself (blocks to blocks), then the
// unique solution of the simulation is mapped onto itself too: all ranks of an orbit do the same at
// the same time, and max-min rates are equal within an orbit of flows. So one representative per
// orbit is enough: a flow of it stands for |G| flows and loads a link class by
//     coefficient = |G| * (links of the class on its route) / (links in the class),
// exactly what each link of the class carries.
//
// Shared cores (LinkKind::cores) are links like others: a kernel's flow takes its rank's device and
// the cores that it shares, a message's the devices of both ends, and the orbit of a device has |G|
// devices, so that a representative's load on a device is its own.
//
// The group G is made of translations along the schedule's symmetric axes: rotations of a
// coordinate by whole steps (whole nodes of it, where the axis crosses nodes). Where any
// permutation of a coordinate is a symmetry, the coordinate is written with two digits, low +
// digit*high, and both rotate. G acts freely, so translating a rank to its representative is
// unique, and pairs of ranks have a canonical image.
//
// Along axes that are only `alike` (causal rings in balanced layouts) kernels differ in the shape
// of their tiles, which changes steadily from the first coordinate to the last: a folding by them
// stands for a world in which every rank is like those at one end. simulate() runs both ends and
// keeps the slower one; the rank that the others wait for, step by step, is there.
#pragma once

#include "schedule/schedule.hpp"
#include "sim/lowering.hpp"

#include <vector>

namespace spp::sim {

/// Along one axis of a mesh, whose coordinate is low + digit*high. In a Folding, `high` is the
/// smallest rotation of the high digit; the low one rotates by ones.
struct AxisSteps {
  std::size_t axis = 0;
  int digit = 1;
  int low = 0, high = 0;
  int anchor = 0;      // the first high digit of the representatives
  bool alike = false;  // AxisMoves::alike: the ends of the axis differ most
};

class Folding {
 public:
  /// Every rank for itself.
  static Folding none(const Schedule& schedule, const Placement& placement);
  /// The largest group of translations under which schedule and cluster do not change; with
  /// `alike`, nearly.
  static Folding largest(const Schedule& schedule, const Placement& placement, bool alike = false);
  /// Some of its ranks are only alike.
  [[nodiscard]] bool alike() const;
  /// The same with the last ranks along axes of such for representatives, in place of the first.
  [[nodiscard]] Folding from_the_end() const;

  /// Ranks that one representative stands for: |G|.
  [[nodiscard]] int size() const { return group_size_; }
  [[nodiscard]] std::span<const Rank> representatives() const { return representatives_; }
  /// Index into representatives() of the rank that stands for `rank`.
  [[nodiscard]] int class_of(Rank rank) const {
    return class_of_[static_cast<std::size_t>(rank.value)];
  }
  /// The image of `x` under the translation that maps `moved` onto its representative.
  [[nodiscard]] Rank image(Rank x, Rank moved) const;
  [[nodiscard]] LinkId link_class(LinkId link) const { return link_class_[link.index()]; }
  /// Links in the class that `link` represents.
  [[nodiscard]] int links_in_class(LinkId link) const { return class_size_[link.index()]; }

 private:
  Folding(const Schedule& schedule, const Placement& placement, std::vector<AxisSteps> steps);
  void choose_representatives();

  Mesh mesh_;
  std::vector<AxisSteps> steps_;
  int group_size_ = 1;
  std::vector<Rank> representatives_;
  std::vector<int> class_of_;
  std::vector<LinkId> link_class_;
  std::vector<int> class_size_;
};

}  // namespace spp::sim
