#include "tests/support/paths.hpp"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace spp::test {

std::filesystem::path source_path(std::string_view relative) {
  return std::filesystem::path(SPP_SOURCE_DIR) / relative;
}

std::filesystem::path build_path(std::string_view relative) {
  return std::filesystem::path(SPP_BINARY_DIR) / relative;
}

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw std::runtime_error("cannot read " + file.string());
  }
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace spp::test
