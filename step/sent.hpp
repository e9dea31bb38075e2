// What a rank sends in a step, by the axis of the plan along which it sends and the kind of
// communication. One count from the layers' transfers to the prediction: the sums over axes are
// what documents give by kind.
#pragma once

#include "parallel/attention/plan.hpp"
#include "schedule/measure.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace spp {

/// Along what a transfer runs. `ulysses`, `team` and `ring` are attention's own; `weights`: ranks
/// that hold the same weights; `replicas`: of a shard, if ZeRO cuts over groups.
enum class StepAxis : std::uint8_t {
  tensor,
  ulysses,
  team,
  ring,
  expert,
  expert_tensor,
  weights,
  replicas,
  expert_weights,
  stages
};
constexpr std::size_t step_axes = 10;
/// "tp", "ulysses", …: as documents call it.
std::string_view to_string(StepAxis);
constexpr bool is_of_attention(StepAxis axis) {
  return axis == StepAxis::ulysses || axis == StepAxis::team || axis == StepAxis::ring;
}

/// One of attention's own.
StepAxis step_axis(Axis);

class SentBytes {
 public:
  using ByKind = std::array<Bytes, comm_kinds>;

  [[nodiscard]] const ByKind& along(StepAxis axis) const {
    return of_[static_cast<std::size_t>(axis)];
  }
  Bytes& at(StepAxis axis, CommKind kind) {
    return of_[static_cast<std::size_t>(axis)][static_cast<std::size_t>(kind)];
  }
  /// Over all axes.
  [[nodiscard]] ByKind by_kind() const;
  SentBytes& operator+=(const SentBytes& other);
  friend SentBytes operator*(std::int64_t times, SentBytes sent);

 private:
  std::array<ByKind, step_axes> of_{};
};

}  // namespace spp
