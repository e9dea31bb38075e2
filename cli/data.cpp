#include "cli/data.hpp"

#include "base/error.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>

namespace spp::cli {
namespace {

namespace fs = std::filesystem;

bool has_data(const fs::path& folder) {
  std::error_code ec;
  return fs::is_directory(folder / "topologies", ec) && fs::is_directory(folder / "models", ec);
}

/// The library that holds this code; nothing if the program does.
fs::path own_library() {
  Dl_info info{};
  link_map* map = nullptr;
  const bool found = ::dladdr1(reinterpret_cast<const void*>(&has_data), &info,
                               reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0;
  return found && map != nullptr && map->l_name != nullptr ? map->l_name : "";
}

/// share/sp-plan of the prefix that this was installed below: PREFIX/bin/sp-plan, or in a program
/// of others PREFIX/lib/…, such as PREFIX/lib/python3/dist-packages/sp_plan/.
fs::path installed_data() {
  std::error_code ec;
  fs::path prefix;
  if (const fs::path library = own_library(); library.empty()) {
    prefix = fs::read_symlink("/proc/self/exe", ec).parent_path().parent_path();
  } else {
    fs::path folder = fs::canonical(library, ec).parent_path();
    while (folder.has_relative_path() && folder.filename() != "lib" &&
           folder.filename() != "lib64") {
      folder = folder.parent_path();
    }
    prefix = folder.parent_path();
  }
  return prefix / "share" / "sp-plan";
}

}  // namespace

fs::path data_folder() {
  if (const char* given = std::getenv("SP_PLAN_DATA"); given != nullptr && *given != '\0') {
    if (!has_data(given)) {
      throw InputError("SP_PLAN_DATA", fmt::format("'{}' has no topologies/ and models/", given));
    }
    return given;
  }
  fs::path installed = installed_data();
  if (has_data(installed)) {
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

const Catalog& topologies() {
  static const Catalog catalog(data_folder() / "topologies");
  return catalog;
}
ModelLibrary models() { return ModelLibrary(data_folder() / "models"); }

std::string shown_path(const fs::path& file) {
  const fs::path relative = file.lexically_relative(data_folder());
  return relative.empty() || *relative.begin() == ".." ? file.string() : relative.string();
}

}  // namespace spp::cli
