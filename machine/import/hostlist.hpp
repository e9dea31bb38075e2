// Slurm's lists of hosts: "srv[1101-1108,1110],login1", "rack[1-2]n[01-16]".
#pragma once

#include <cstdint>
#include <string_view>

namespace spp::imports {

/// How many hosts `list` names; InputError(where) if it is no such list, or names too many.
std::int64_t hosts_in(std::string_view list, std::string_view where);

}  // namespace spp::imports
