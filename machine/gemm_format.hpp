// In what number format the matrix units of a GPU multiply, whatever the tensors around are in.
#pragma once

#include <cstdint>
#include <string_view>

namespace spp {

enum class GemmFormat : std::uint8_t {
  plain,      // the tensors' own type
  fp8,        // 8 bits, one scale for a tensor, row or channel
  fp8_block,  // 8 bits, a scale for 1 x 128 and 128 x 128, applied between the units' products
  mxfp8,      // 8 bits, a scale for each 32, applied by the units
  nvfp4,      // 4 bits, a scale for each 16, applied by the units
};

std::string_view to_string(GemmFormat format);
/// InputError(where) if unknown, with the nearest.
GemmFormat parse_gemm_format(std::string_view text, std::string_view where);

}  // namespace spp
