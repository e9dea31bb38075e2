#include "cli/data.hpp"

#include "base/error.hpp"

#include <cstdlib>
#include <iterator>

namespace spp::cli {
namespace {

namespace fs = std::filesystem;

bool has_data(const fs::path& folder) {
  std::error_code ec;
  return fs::is_directory(folder / "topologies", ec) && fs::is_directory(folder / "models", ec);
}

/// Members that say that there is nothing.
void drop_nulls(Json& object) {
  for (auto it = object.begin(); it != object.end();) {
    it = it->is_null() ? object.erase(it) : std::next(it);
  }
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

sim::Catalog topologies() { return sim::Catalog(data_folder() / "topologies"); }
ModelLibrary models() { return ModelLibrary(data_folder() / "models"); }

Json generation_document(const std::string& name) {
  return read_json(data_folder() / "topologies" / "generations" / fmt::format("{}.json", name));
}

Json transport_document(const std::string& name) {
  return read_json(data_folder() / "topologies" / "transports" / fmt::format("{}.json", name));
}

Json whole_machine(const std::string& name, std::string_view where) {
  const sim::Catalog catalog = topologies();
  const sim::MachineSpec machine = catalog.machine(name, where);
  Json json = read_json(catalog.file_of(name, where));
  Json gpu = read_json(catalog.file_of(json.at("gpu").get<std::string>(), where));
  gpu["generation"] = generation_document(machine.gpu.generation.name);
  json["gpu"] = std::move(gpu);
  json["intra"]["transport"] = transport_document(machine.intra.name);
  if (machine.inter) {
    json["inter"]["transport"] = transport_document(machine.inter->transport.name);
  }
  drop_nulls(json);
  if (json.contains("fabric")) {
    drop_nulls(json["fabric"]);
  }
  return json;
}

std::string shown_path(const fs::path& file) {
  const fs::path relative = file.lexically_relative(data_folder());
  return relative.empty() || *relative.begin() == ".." ? file.string() : relative.string();
}

}  // namespace spp::cli
