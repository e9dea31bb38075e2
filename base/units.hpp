// Units as types: a number that carries its unit, with only the operators that make sense.
//
// Quantities of one unit add, subtract, compare and scale; their ratio is a plain number. Across
// units only the physics is defined: Bytes / Bandwidth -> Seconds, FlopCount / FlopRate -> Seconds,
// and back. Anything else does not compile (tests/compile_fail).
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace spp {

template <class Tag, class Rep>
class Quantity {
 public:
  using rep = Rep;
  constexpr Quantity() = default;
  explicit constexpr Quantity(Rep value) : value_(value) {}
  [[nodiscard]] constexpr Rep value() const { return value_; }
  [[nodiscard]] constexpr double as_double() const { return static_cast<double>(value_); }

  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    if constexpr (std::is_integral_v<Rep>) {
      Rep sum{};
      return Quantity(__builtin_add_overflow(a.value_, b.value_, &sum) ? largest(a.value_ > 0)
                                                                       : sum);
    } else {
      return Quantity(a.value_ + b.value_);
    }
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value_ - b.value_);
  }
  friend constexpr Quantity operator*(Quantity a, Rep k) {
    if constexpr (std::is_integral_v<Rep>) {
      Rep product{};
      const bool over = __builtin_mul_overflow(a.value_, k, &product);
      return Quantity(over ? largest((a.value_ > 0) == (k > 0)) : product);
    } else {
      return Quantity(a.value_ * k);
    }
  }
  friend constexpr Quantity operator*(Rep k, Quantity a) { return a * k; }
  friend constexpr Quantity operator/(Quantity a, Rep k) { return Quantity(a.value_ / k); }
  friend constexpr double operator/(Quantity a, Quantity b) {
    return a.as_double() / b.as_double();
  }
  constexpr Quantity& operator+=(Quantity b) { return *this = *this + b; }
  constexpr Quantity& operator-=(Quantity b) { return *this = *this - b; }

 private:
  /// Where whole numbers end: all ranks of a request beyond all machines together send more bytes
  /// than that. What is larger stays the largest.
  static constexpr Rep largest(bool positive) {
    return positive ? std::numeric_limits<Rep>::max() : std::numeric_limits<Rep>::min();
  }

  Rep value_{};
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;    // exact: sizes of buffers, messages
using FlopCount = Quantity<struct FlopCountTag, double>;  // multiply-adds count as two
using Bandwidth = Quantity<struct BandwidthTag, double>;  // bytes per second, one direction
using FlopRate = Quantity<struct FlopRateTag, double>;    // FLOP per second
using Seconds = std::chrono::duration<double>;

constexpr Seconds operator/(Bytes b, Bandwidth w) { return Seconds(b.as_double() / w.value()); }
constexpr Seconds operator/(FlopCount f, FlopRate r) { return Seconds(f.value() / r.value()); }
constexpr Bandwidth operator/(Bytes b, Seconds s) { return Bandwidth(b.as_double() / s.count()); }
constexpr FlopRate operator/(FlopCount f, Seconds s) { return FlopRate(f.value() / s.count()); }

namespace unit_literals {
constexpr Bytes operator""_B(unsigned long long v) { return Bytes(static_cast<std::int64_t>(v)); }
constexpr Bytes operator""_KiB(unsigned long long v) {
  return Bytes(static_cast<std::int64_t>(v) << 10);
}
constexpr Bytes operator""_MiB(unsigned long long v) {
  return Bytes(static_cast<std::int64_t>(v) << 20);
}
constexpr Bytes operator""_GiB(unsigned long long v) {
  return Bytes(static_cast<std::int64_t>(v) << 30);
}
constexpr Bandwidth operator""_GBps(long double v) {
  return Bandwidth(static_cast<double>(v) * 1e9);
}
constexpr FlopRate operator""_TFLOPs(long double v) {
  return FlopRate(static_cast<double>(v) * 1e12);
}
constexpr Seconds operator""_us(long double v) { return Seconds(static_cast<double>(v) * 1e-6); }
constexpr Seconds operator""_ms(long double v) { return Seconds(static_cast<double>(v) * 1e-3); }
}  // namespace unit_literals

}  // namespace spp
