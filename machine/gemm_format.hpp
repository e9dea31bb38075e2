// In what numbers the matrix units multiply.
#pragma once

#include <cstdint>
#include <string_view>

namespace spp {

enum class GemmFormat : std::uint8_t { plain, fp8, mxfp8, nvfp4 };

struct GemmWork {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t groups = 1;
  GemmFormat format = GemmFormat::plain;
};

}  // namespace spp
