// Which of the three products of a linear layer y = x w a GEMM is.
#pragma once

#include <cstdint>

namespace spp {

enum class GemmKind : std::uint8_t { forward, input_gradient, weight_gradient };

}  // namespace spp
