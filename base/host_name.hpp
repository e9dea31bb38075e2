// What the machine that this process runs on is called.
#pragma once

#include <string>

namespace spp {

/// As gethostname says: a word; "localhost" where it says nothing.
std::string host_name();

}  // namespace spp
