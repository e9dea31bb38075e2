// The machines, GPUs and stacks of the source folder, read once a program.
#pragma once

#include "machine/machine.hpp"
#include "tests/support/paths.hpp"

namespace spp::test {

inline const Catalog& catalog() {
  static const Catalog all(source_path("topologies"));
  return all;
}

}  // namespace spp::test
