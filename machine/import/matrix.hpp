// The tables of `nvidia-smi topo`: devices in the first line and the first column, a code for each
// pair, and of topo -m the CPUs and NUMA nodes behind.
//
// Tables are pasted with an end cut off. Rows may be missing below: the first line still lists all
// devices. Columns may be missing on the right, those of the first line, too: then the rows below
// list the devices that are left. A word that the cut went through is not read: of the first line
// the start of a device's name, of a row the start of a code, such as NV1 of NV18.
#pragma once

#include "machine/import/source.hpp"

#include <string>
#include <vector>

namespace spp::imports {

struct Matrix {
  struct Row {
    std::string device;
    std::vector<std::string> codes;  // of the first columns, all of them if it was not cut off
    std::vector<std::string> rest;   // behind them, by column of `titles`; empty if not told apart
    bool cut = false;
    Place place;
  };
  Place place;                       // of the first line
  std::vector<std::string> devices;  // GPU0, …, then network adapters: columns, then rows
  int gpus = 0;
  std::vector<std::string> titles;  // "CPU Affinity", "NUMA Affinity", …
  std::size_t columns = 0;          // of devices, in the first line
  std::vector<Row> rows;
};

/// All tables of `source` whose first code passes `is_code`.
std::vector<Matrix> matrices_in(const Source& source, bool (*is_code)(std::string_view code));

/// "X", "NV12", "PIX", …
bool is_way(std::string_view code);
/// "X", "OK", "CNS", …
bool is_peer_status(std::string_view code);

}  // namespace spp::imports
