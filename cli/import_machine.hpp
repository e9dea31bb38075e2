// A machine from files of others (machine/import), with its links as NCCL's tests measured them:
// for `topology import`, and for --topology FILE where FILE is none of our documents.
#pragma once

#include "base/json.hpp"
#include "machine/import/merge.hpp"
#include "machine/machine.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

struct ImportedMachine {
  Json document;  // "sp-plan/machine"
  MachineSpec spec;
  int nodes = 0;  // that the files are of; 0: not said
};

/// A file that was read, because what is in it decides who reads it.
struct TextFile {
  std::string name;
  std::string text;
};

/// "topo.txt", or "topo.txt,tests.txt": what stands there, read. Nothing if there is no such file.
/// InputError(option).
std::vector<TextFile> files_named(const std::string& names, std::string_view option);

/// Whether `text` is a document of ours; else others wrote it.
bool is_own_document(const TextFile& file);

ImportedMachine import_machine(std::vector<TextFile> files, const imports::MergeOptions& options,
                               const Catalog& catalog);

}  // namespace spp::cli
