// What this process may still allocate.
#pragma once

#include "base/units.hpp"

#include <filesystem>

namespace spp {

/// The least of what the system has free, what the control groups (version 1 and 2) that this
/// process is in and those above them leave, and RLIMIT_AS and RLIMIT_DATA; 0 if nobody says. Pages
/// of files that a group could drop count as free. `root`: where /proc and /sys are, for tests.
Bytes available_memory(const std::filesystem::path& root = "/");

}  // namespace spp
