#include "step/sent.hpp"

#include "base/error.hpp"

namespace spp {

std::string_view to_string(StepAxis axis) {
  constexpr std::array<std::string_view, step_axes> names{
      "tp", "ulysses", "team", "ring", "ep", "etp", "dp", "dp_replicas", "dp_experts", "pp"};
  return names.at(static_cast<std::size_t>(axis));
}

StepAxis step_axis(Axis axis) {
  switch (axis) {
    case Axis::ulysses:
      return StepAxis::ulysses;
    case Axis::team:
      return StepAxis::team;
    case Axis::ring:
      return StepAxis::ring;
  }
  throw InternalError("no such Axis");
}

SentBytes::ByKind SentBytes::by_kind() const {
  ByKind sum{};
  for (const ByKind& axis : of_) {
    for (std::size_t kind = 0; kind < comm_kinds; ++kind) {
      sum[kind] += axis[kind];
    }
  }
  return sum;
}

SentBytes& SentBytes::operator+=(const SentBytes& other) {
  for (std::size_t axis = 0; axis < step_axes; ++axis) {
    for (std::size_t kind = 0; kind < comm_kinds; ++kind) {
      of_[axis][kind] += other.of_[axis][kind];
    }
  }
  return *this;
}

SentBytes operator*(std::int64_t times, SentBytes sent) {
  for (SentBytes::ByKind& axis : sent.of_) {
    for (Bytes& bytes : axis) {
      bytes = Bytes(times * bytes.value());
    }
  }
  return sent;
}

}  // namespace spp
