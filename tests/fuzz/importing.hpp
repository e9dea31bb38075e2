// What a file of others is good for: facts, a machine if they are enough for one, clusters.
#pragma once

#include "machine/import/format.hpp"
#include "machine/import/merge.hpp"
#include "tests/fuzz/clusters.hpp"
#include "tests/fuzz/target.hpp"

#include <string>

namespace spp::fuzz {

/// `topologies`: the data folder, read once.
inline void import_one(std::string_view text, const std::string& file) {
  static const Catalog catalog(SPP_FUZZ_TOPOLOGIES);
  allow_refusal([&] {
    const imports::Facts facts = imports::read_facts({imports::source_of(std::string(text), file)});
    const imports::Imported imported = imports::merge(facts, {.gpu = "h100"}, catalog);
    build_clusters(catalog.machine_of(imported.machine, "imported"));
  });
}

}  // namespace spp::fuzz
