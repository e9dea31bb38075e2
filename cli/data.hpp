// Where sp-plan finds its data, topologies/ and models/: $SP_PLAN_DATA; else share/sp-plan below
// the prefix of the installed program, or of the library that another program loaded (python/);
// else the source tree that it was built from.
#pragma once

#include "machine/machine.hpp"
#include "transformer/model.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

/// The folder that holds topologies/ and models/. InputError if there is none.
std::filesystem::path data_folder();

/// Read once: what a command needs of it, it asks for in several places.
const Catalog& topologies();
ModelLibrary models();

/// "topologies/machines/dgx-h100.json": a file of the data folder as sources name it; else the
/// path.
std::string shown_path(const std::filesystem::path& file);

}  // namespace spp::cli
