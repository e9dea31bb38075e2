// Where a test finds files of the project, and programs that the build made.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace spp::test {

/// A path inside the source tree: source_path("tests/golden/ring.txt").
std::filesystem::path source_path(std::string_view relative);

/// A path inside the build tree: build_path("cli/sp-plan").
std::filesystem::path build_path(std::string_view relative);

/// The whole file as text; fails with the name when it cannot be read.
std::string read_text(const std::filesystem::path& file);

}  // namespace spp::test
