// Tables of nvidia-smi topo -m that were cut off anywhere: at the bottom, as a terminal's last
// screen or a message's limit does it, and on the right, as a narrow terminal does it.
#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/topology_tables.hpp"

#include <optional>
#include <string>
#include <vector>

using namespace spp;
using spp::test::assumed;
using spp::test::machine_of;
using spp::test::sample;

namespace {

/// Nothing if it is refused.
std::optional<MachineSpec> machine_if(const std::string& table, const std::string& gpu) {
  try {
    return machine_of(table, gpu);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// The first `width` columns of every line, as a terminal shows it.
std::string left_of(const std::string& table, std::size_t width) {
  std::string cut;
  for (const std::string& line : imports::source_of(table, "").lines) {
    std::string shown;
    for (const char c : line) {
      shown += c;
      while (c == '\t' && (shown.back() = ' ', shown.size() % 8 != 0)) {
        shown += ' ';
      }
    }
    cut += shown.substr(0, width) + "\n";
  }
  return cut;
}

struct Table {
  std::string name, text, gpu;
};

/// Switches, PCIe of two sockets, pairs on bridges, and the cube of V100s (NVIDIA's DGX-1 guide).
std::vector<Table> tables() {
  return {{"switches", sample("topo-h100.txt"), "h100"},
          {"sockets", sample("topo-l40s.txt"), "l40s"},
          {"pairs",
           "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\n"
           "GPU0\t X \tNV4\tSYS\tSYS\tNODE\t0-95\t0\n"
           "GPU1\tNV4\t X \tSYS\tSYS\tNODE\t0-95\t0\n"
           "GPU2\tSYS\tSYS\t X \tNV4\tSYS\t96-191\t1\n"
           "GPU3\tSYS\tSYS\tNV4\t X \tSYS\t96-191\t1\n"
           "NIC0\tNODE\tNODE\tSYS\tSYS\t X \t\t\n\nLegend:\n\n  X    = Self\n",
           "a40"},
          {"cube",
           "\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tCPU Affinity\n"
           "GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\t0-19\n"
           "GPU1\tNV1\t X \tNV2\tNV1\tSYS\tNV2\tSYS\tSYS\t0-19\n"
           "GPU2\tNV1\tNV2\t X \tNV2\tSYS\tSYS\tNV1\tSYS\t0-19\n"
           "GPU3\tNV2\tNV1\tNV2\t X \tSYS\tSYS\tSYS\tNV1\t0-19\n"
           "GPU4\tNV2\tSYS\tSYS\tSYS\t X \tNV1\tNV1\tNV2\t20-39\n"
           "GPU5\tSYS\tNV2\tSYS\tSYS\tNV1\t X \tNV2\tNV1\t20-39\n"
           "GPU6\tSYS\tSYS\tNV1\tSYS\tNV1\tNV2\t X \tNV2\t20-39\n"
           "GPU7\tSYS\tSYS\tSYS\tNV1\tNV2\tNV1\tNV2\t X \t20-39\n\nLegend:\n",
           "v100"}};
}

/// The same machine inside, but for what its list of assumptions says.
void check_same(const MachineSpec& whole, const MachineSpec& cut) {
  CHECK(cut.gpus_per_node.value == whole.gpus_per_node.value);
  CHECK(cut.intra.name == whole.intra.name);
  CHECK(cut.intra_rate == whole.intra_rate);
  CHECK(cut.intra_spread == whole.intra_spread);
  CHECK(cut.sockets.value == whole.sockets.value);
}

}  // namespace

TEST_CASE("wherever a table is cut off below, it is the same machine, says so, or is refused") {
  for (const Table& table : tables()) {
    const MachineSpec whole = machine_of(table.text, table.gpu);
    int read = 0;
    for (std::size_t length = 0; length < table.text.size(); ++length) {
      // Near the ends of lines everywhere; elsewhere here and there, for who waits.
      constexpr std::size_t near = 3, now_and_then = 13;
      const std::string_view around =
          std::string_view(table.text).substr(length < near ? 0 : length - near, 2 * near);
      if (length % now_and_then != 0 && around.find('\n') == std::string_view::npos) {
        continue;
      }
      const auto cut = machine_if(table.text.substr(0, length), table.gpu);
      if (!cut) {
        continue;
      }
      ++read;
      INFO(table.name << ", the first " << length << " bytes");
      CHECK(cut->gpus_per_node.value == whole.gpus_per_node.value);
      if (!assumed(*cut, "import.cut_off").empty() && table.name == "cube") {
        continue;  // of the cube too few rows may look like another one
      }
      check_same(whole, *cut);
    }
    CHECK(read > 20);
  }
}

TEST_CASE("wherever a table is cut off on the right, it is the same machine, or says so") {
  for (const Table& table : tables()) {
    const MachineSpec whole = machine_of(table.text, table.gpu);
    for (std::size_t width = 1; width < 160; ++width) {
      const auto cut = machine_if(left_of(table.text, width), table.gpu);
      if (!cut) {
        continue;
      }
      INFO(table.name << ", " << width << " columns");
      CHECK(cut->gpus_per_node.value == whole.gpus_per_node.value);
      if (!assumed(*cut, "import.cut_off").empty() && table.name == "cube") {
        continue;
      }
      check_same(whole, *cut);
    }
  }
}
