// Tables of nvidia-smi topo -m as text, read to a machine.
#pragma once

#include "base/file.hpp"
#include "machine/import/format.hpp"
#include "machine/import/merge.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/paths.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace spp::test {

/// The machine that `table` with nodes of `gpu` is. InputError if it is refused.
inline MachineSpec machine_of(std::string table, std::string gpu) {
  const imports::Source source = imports::source_of(std::move(table), "topo.txt");
  const imports::Imported imported =
      merge(imports::read_facts({source}), {.gpu = std::move(gpu)}, catalog());
  return catalog().machine_of(imported.machine, "imported");
}

inline std::string sample(std::string_view name) {
  return read_text_file(source_path(fmt::format("tests/support/data/machines/{}", name)));
}

/// All that was assumed about `what`.
inline std::string assumed(const MachineSpec& machine, std::string_view what) {
  std::string all;
  for (const Assumption& a : machine.assumptions) {
    all += a.what == what ? a.value + "; " : "";
  }
  return all;
}

}  // namespace spp::test
