// A format of others that says something about a machine: one file each in machine/import/formats/,
// listed in machine/CMakeLists.txt. Formats are told by what is in a file, not by its name; a
// pasted report may hold several, and each reader takes what is its own.
#pragma once

#include "machine/import/facts.hpp"
#include "machine/import/source.hpp"

#include <span>
#include <string_view>

namespace spp::imports {

struct Format {
  std::string_view name;   // "smi-topo"
  std::string_view title;  // "nvidia-smi topo -m"
  bool (*recognises)(const Source& source);
  /// Adds what `source` says. InputError(file:line) if it is of this format and cannot be read.
  void (*read)(const Source& source, Facts& facts);
};

namespace formats {
/// All formats, in the order of machine/CMakeLists.txt. Generated.
std::span<const Format* const> all();
}  // namespace formats

/// Files that can be told apart from a machine's own document: what `format`s recognise. InputError
/// if none does.
Facts read_facts(const std::vector<Source>& sources);

}  // namespace spp::imports
