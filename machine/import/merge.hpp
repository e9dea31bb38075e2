// From what files say (facts) to one machine as a document, with what had to be assumed on the way.
// What contradicts is an InputError that names both places; what nobody says and nobody may guess
// (which GPUs these are) is one that says which option would tell.
#pragma once

#include "base/json.hpp"
#include "machine/import/facts.hpp"

#include <string>
#include <vector>

namespace spp::imports {

/// What the user says beside the files; it counts more than they do.
struct MergeOptions {
  // NOLINTBEGIN(readability-redundant-member-init): without, g++ wants them in every initialiser
  std::string gpu = {};    // of topologies/gpus/; "": as the files have it
  std::string inter = {};  // "ib:8x400Gb/s"
  std::string name = {};   // of the machine
  // NOLINTEND(readability-redundant-member-init)
  int gpus_per_node = 0;
};

struct Imported {
  Json machine;                 // "sp-plan/machine", with `assumptions`
  std::vector<NcclTest> tests;  // that could measure its links
  int nodes = 0;                // that the files are of; 0: not said
};
Imported merge(const Facts& facts, const MergeOptions& options, const Catalog& catalog);

}  // namespace spp::imports
