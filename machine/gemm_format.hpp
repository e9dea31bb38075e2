// In what number format the matrix units of a GPU multiply, whatever the tensors around are in.
#pragma once

#include <cstdint>
#include <string_view>

namespace spp {

enum class GemmFormat : std::uint8_t {
  plain,  // the tensors' own type
  fp8,    // 8 bits, one scale for a tensor, row or channel
  mxfp8,  // 8 bits, a scale for each small block
  nvfp4,  // 4 bits, a scale for each small block
};

std::string_view to_string(GemmFormat format);
/// InputError(where) if unknown, with the nearest.
GemmFormat parse_gemm_format(std::string_view text, std::string_view where);

}  // namespace spp
