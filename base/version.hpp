// Which sp-plan this is. Defined in the build tree, from version.cpp.in.
#pragma once

#include <string_view>

namespace spp {

/// The project's version: "0.1.0".
std::string_view version();

/// The commit the build was configured from: "2e89421f0c1d", or "unknown" outside a repository.
std::string_view commit();

}  // namespace spp
