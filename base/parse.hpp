// Parsing of what people type: "512K" tokens, "80GB", "400Gb/s", "1,2,4". Throws InputError with
// the option or key (`where`), the value, and what would be right.
#pragma once

#include "base/units.hpp"

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace spp {

/// What quantities of machines may be. Far beyond anything that exists, so that no description is
/// refused for being of the future; near enough that sums, products and ratios of them stay finite,
/// above 0, and meaningful. Beyond them a number is a slip of a unit or of a key.
constexpr Bandwidth least_bandwidth{1e3};               // a modem of the seventies has 1e4 bits/s
constexpr Bandwidth most_bandwidth{1e15};               // a GPU's memory has 1e13 bytes/s
constexpr Bytes most_bytes{1'000'000'000'000'000'000};  // sums of a few fit in 63 bits
constexpr Seconds least_seconds{1e-15};                 // or 0; light takes as long for 0.3 um
constexpr Seconds most_seconds{1e6};                    // 12 days
constexpr FlopRate least_flop_rate{1e6};                // a processor of the eighties
constexpr FlopRate most_flop_rate{1e18};                // a whole machine of today; a GPU has 1e16
/// No clock that programs read sees less: what was measured takes at least this long.
constexpr Seconds least_measured{1e-9};

/// ASCII letters; other bytes as they are.
std::string in_lower_case(std::string_view text);

/// A whole number in [min, max]; digits only.
std::int64_t parse_int(std::string_view text, std::string_view where, std::int64_t min,
                       std::int64_t max);

/// A finite decimal number.
double parse_double(std::string_view text, std::string_view where);

/// Tokens with the 1024-based suffixes K and M: "32K", "1M", "4096". Between 1 and 2^31 (pairs of
/// tokens must fit in 63 bits).
std::int64_t parse_tokens(std::string_view text, std::string_view where);

/// Bytes with a mandatory unit: B, KB/MB/GB/TB (powers of 10), KiB/MiB/GiB/TiB (powers of 2).
Bytes parse_bytes(std::string_view text, std::string_view where);

/// A rate with a mandatory unit: Gb/s, Mb/s, Tb/s (bits) or GB/s, MB/s, TB/s (bytes), powers of 10.
Bandwidth parse_bandwidth(std::string_view text, std::string_view where);

/// A number and a unit as data files write them: the unit selects the scale.
/// Units: "GB/s", "MB/s", "TB/s", "Gb/s", "Mb/s".
Bandwidth bandwidth_from(double value, std::string_view unit, std::string_view where);
/// Units: "B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB".
Bytes bytes_from(double value, std::string_view unit, std::string_view where);
/// Units: "s", "ms", "us", "ns". 0 is a time.
Seconds seconds_from(double value, std::string_view unit, std::string_view where);
/// Units: "GFLOP/s", "TFLOP/s", "PFLOP/s".
FlopRate flop_rate_from(double value, std::string_view unit, std::string_view where);
/// A time that was measured, of the same units: between least_measured and most_seconds.
Seconds measured_from(double value, std::string_view unit, std::string_view where);

/// "a,b,c" -> pieces, which are views of `text`; empty pieces are kept, so that callers can refuse
/// them.
std::vector<std::string_view> split(std::string_view text, char separator);
/// The pieces of a temporary would outlive it: name the string first.
template <class Text>
  requires std::same_as<std::remove_const_t<Text>, std::string>
std::vector<std::string_view> split(Text&& text, char separator) = delete;

}  // namespace spp
