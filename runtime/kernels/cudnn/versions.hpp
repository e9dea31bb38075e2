// Versions of cuDNN that must not be asked for what they are known to do wrongly or to refuse.
// Source: cudnn-frontend, which works round them or refuses them by version
// (node/sdpa_support_surface.h, node/scaled_dot_product_flash_attention.h).
#pragma once

#include "runtime/kernels/cudnn/sdpa.hpp"

#include <cstddef>
#include <string>

namespace spp::runtime::cudnn {

/// "9.19.0" of 91900, as cudnnGetVersion() counts.
std::string version_text(std::size_t version);

/// "" or why this version can be used for no attention at all.
std::string version_why_not(std::size_t version);

/// "" or why this version must not do this call.
std::string version_why_not(std::size_t version, const SdpaShape& shape, Phase phase);

}  // namespace spp::runtime::cudnn
