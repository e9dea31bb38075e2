// The tables of `nvidia-smi topo`: devices in the first line and the first column, a code for each
// pair, and of topo -m the CPUs and NUMA nodes behind.
#pragma once

#include "machine/import/source.hpp"

#include <string>
#include <vector>

namespace spp::imports {

struct Matrix {
  struct Row {
    std::string device;
    std::vector<std::string> codes;  // as many as devices, or fewer of a row that was cut off
    std::vector<std::string> rest;   // behind them, by column of `titles`; empty if not told apart
    Place place;
  };
  Place place;                       // of the first line
  std::vector<std::string> devices;  // GPU0, …, then network adapters
  int gpus = 0;
  std::vector<std::string> titles;  // "CPU Affinity", "NUMA Affinity", …
  std::vector<Row> rows;
};

/// All tables of `source` whose first code passes `is_code`.
std::vector<Matrix> matrices_in(const Source& source, bool (*is_code)(std::string_view code));

/// "X", "NV12", "PIX", …
bool is_way(std::string_view code);
/// "X", "OK", "CNS", …
bool is_peer_status(std::string_view code);

}  // namespace spp::imports
