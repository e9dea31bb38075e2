// Quantities for people: three significant digits with a unit.
#pragma once

#include "base/units.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace spp {

std::string human(Seconds seconds);            // "812 ms"
std::string human(Bytes bytes);                // "62.1 GB", powers of 10
std::string human(Bandwidth rate);             // "46.0 GB/s"
std::string human_tokens(std::int64_t count);  // "128K" (1024-based) when whole, else "75,600"
std::string human_count(std::int64_t count);   // "1,234,567"
/// "1 GPU", "8 GPUs", "1,234 plans".
std::string human_count(std::int64_t count, std::string_view thing);

}  // namespace spp
