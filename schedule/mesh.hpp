// The mesh of a schedule's ranks: named axes, innermost (adjacent ranks) first. What the axes mean
// is their owners' affair: attention has ulysses, team, ring and group (parallel/attention).
#pragma once

#include "base/id.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

/// Ranks first, first+stride, …: `size` of them. Every group along an axis is of this form.
struct RankGroup {
  int first = 0;
  int stride = 1;
  int size = 1;
  [[nodiscard]] Rank rank(int index) const { return Rank(first + index * stride); }
  /// Index of a rank that is a member.
  [[nodiscard]] int index_of(Rank r) const { return size == 1 ? 0 : (r.value - first) / stride; }
  friend bool operator==(const RankGroup&, const RankGroup&) = default;
};

struct MeshAxis {
  std::string name;
  int size = 1;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

class Mesh {
 public:
  /// One rank, no axis.
  Mesh() = default;
  /// Names differ, sizes are at least 1.
  explicit Mesh(std::vector<MeshAxis> axes);

  /// Ranks: the product of all sizes.
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] std::span<const MeshAxis> axes() const { return axes_; }
  /// Index into axes().
  [[nodiscard]] std::optional<std::size_t> find(std::string_view axis) const;

  // `axis` is an index into axes().
  [[nodiscard]] int stride(std::size_t axis) const { return strides_[axis]; }
  [[nodiscard]] int coordinate(Rank rank, std::size_t axis) const {
    return rank.value / strides_[axis] % axes_[axis].size;
  }
  /// The rank that differs in this coordinate only.
  [[nodiscard]] Rank moved(Rank rank, std::size_t axis, int to) const {
    return Rank(rank.value + (to - coordinate(rank, axis)) * strides_[axis]);
  }
  /// The ranks that differ in this coordinate only, ordered by it.
  [[nodiscard]] RankGroup group(Rank rank, std::size_t axis) const {
    return {
        .first = moved(rank, axis, 0).value, .stride = strides_[axis], .size = axes_[axis].size};
  }

  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  std::vector<MeshAxis> axes_;
  std::vector<int> strides_;
  int size_ = 1;
};

}  // namespace spp
