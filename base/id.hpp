// Indices that must not mix: a rank is not an op, a stream is not a buffer.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace spp {

template <class Tag>
struct Id {
  std::int32_t value = -1;

  constexpr Id() = default;
  explicit constexpr Id(std::int32_t v) : value(v) {}
  explicit constexpr Id(std::size_t v) : value(static_cast<std::int32_t>(v)) {}
  [[nodiscard]] constexpr bool valid() const { return value >= 0; }
  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(value); }
  friend constexpr auto operator<=>(Id, Id) = default;
};

using Rank = Id<struct RankTag>;
using StreamId = Id<struct StreamTag>;
using BufferId = Id<struct BufferTag>;
using LinkId = Id<struct LinkTag>;

}  // namespace spp

template <class Tag>
struct std::hash<spp::Id<Tag>> {
  std::size_t operator()(spp::Id<Tag> id) const noexcept {
    return std::hash<std::int32_t>()(id.value);
  }
};
