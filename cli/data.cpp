#include "cli/data.hpp"

#include "base/error.hpp"

#include <cstdlib>

namespace spp::cli {
namespace {

namespace fs = std::filesystem;

bool has_data(const fs::path& folder) {
  std::error_code ec;
  return fs::is_directory(folder / "topologies", ec) && fs::is_directory(folder / "models", ec);
}

}  // namespace

fs::path data_folder() {
  if (const char* given = std::getenv("SP_PLAN_DATA"); given != nullptr && *given != '\0') {
    if (!has_data(given)) {
      throw InputError("SP_PLAN_DATA", fmt::format("'{}' has no topologies/ and models/", given));
    }
    return given;
  }
  std::error_code ec;
  const fs::path program = fs::read_symlink("/proc/self/exe", ec);
  fs::path installed = program.parent_path().parent_path() / "share" / "sp-plan";
  if (!ec && has_data(installed)) {
    return installed;
  }
  if (has_data(SPP_SOURCE_DIR)) {
    return SPP_SOURCE_DIR;
  }
  throw InputError("SP_PLAN_DATA",
                   fmt::format("topologies/ and models/ are neither in {} nor in {}; set it "
                               "to the folder that holds them",
                               installed.string(), SPP_SOURCE_DIR));
}

Catalog topologies() { return Catalog(data_folder() / "topologies"); }
ModelLibrary models() { return ModelLibrary(data_folder() / "models"); }

std::string shown_path(const fs::path& file) {
  const fs::path relative = file.lexically_relative(data_folder());
  return relative.empty() || *relative.begin() == ".." ? file.string() : relative.string();
}

}  // namespace spp::cli
