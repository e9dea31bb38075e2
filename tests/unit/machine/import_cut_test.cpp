// Tables of nvidia-smi topo -m that were cut off: at the bottom, as a terminal's last screen or a
// message's limit does it, and on the right, as a narrow terminal does it.
#include "base/error.hpp"
#include "base/file.hpp"
#include "machine/import/format.hpp"
#include "machine/import/merge.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using spp::test::message_of;

namespace {

const Catalog& catalog() {
  static const Catalog all(test::source_path("topologies"));
  return all;
}

MachineSpec machine_of(std::string table, std::string gpu) {
  const imports::Source source = imports::source_of(std::move(table), "topo.txt");
  const imports::Imported imported =
      merge(imports::read_facts({source}), {.gpu = std::move(gpu)}, catalog());
  return catalog().machine_of(imported.machine, "imported");
}

/// Nothing if it is refused.
std::optional<MachineSpec> machine_if(const std::string& table, const std::string& gpu) {
  try {
    return machine_of(table, gpu);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

std::string sample(std::string_view name) {
  return read_text_file(test::source_path(fmt::format("tests/support/data/machines/{}", name)));
}

/// All that was assumed about `what`.
std::string assumed(const MachineSpec& machine, std::string_view what) {
  std::string all;
  for (const Assumption& a : machine.assumptions) {
    all += a.what == what ? a.value + "; " : "";
  }
  return all;
}

/// The first `lines` lines.
std::string above(const std::string& table, int lines) {
  std::size_t end = 0;
  for (int i = 0; i < lines && end != std::string::npos; ++i) {
    end = table.find('\n', end) + 1;
  }
  return table.substr(0, end);
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

TEST_CASE("a table without its last rows: the columns of the others say the same") {
  const MachineSpec m = machine_of(above(sample("topo-h100.txt"), 8), "h100");  // GPU0 to GPU6
  CHECK(m.intra.name == "nvlink4");
  CHECK(m.inter->nics.value == 8);
  CHECK(assumed(m, "import.cut_off") ==
        "the table lacks (parts of) the rows of GPU7: the columns of the others say the same; ");
}

TEST_CASE("pairs that nobody shows are taken for what the others are, which is said") {
  const MachineSpec h100 = machine_of(above(sample("topo-h100.txt"), 7), "h100");  // GPU0 to GPU5
  CHECK(h100.intra.name == "nvlink4");
  CHECK(h100.intra_spread == 0);
  CHECK(h100.inter->nics.value == 8);
  CHECK_THAT(assumed(h100, "import.cut_off"),
             ContainsSubstring("GPU 6 to GPU 7: NV18, as all pairs that it shows"));
  CHECK_THAT(assumed(h100, "inter.nics"),
             ContainsSubstring("with NIC6, NIC7: their ways to GPU 6, 7"));
  CHECK_THAT(assumed(h100, "inter.nics"), ContainsSubstring("not NIC8"));

  const std::string switches =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\nGPU0\t X \tPIX\tNODE\tNODE\t0-31\n"
      "GPU1\tPIX\t X \tNODE\tNODE\t0-31\n";
  const MachineSpec pcie = machine_of(switches, "l20");
  CHECK(pcie.gpus_per_pcie_switch->value == 2);
  CHECK_THAT(assumed(pcie, "import.cut_off"),
             ContainsSubstring("GPU 2 to GPU 3: PIX, as GPU 0 to GPU 1"));
}

TEST_CASE("pairs that are like no others stay unknown, which is said, and are no holes") {
  const MachineSpec m =
      machine_of("\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tNV1\tNV2\t0-31\n", "v100");
  CHECK_THAT(assumed(m, "import.cut_off"), ContainsSubstring("GPU 1 to GPU 2: not known"));
  CHECK_THAT(assumed(m, "intra"), !ContainsSubstring("holes"));
}

TEST_CASE("columns that were cut off stand in the rows below, as do the devices") {
  const MachineSpec m = machine_of(
      "        GPU0    GPU1    GP\nGPU0     X      NV18    NV\nGPU1    NV18     X      NV\n"
      "GPU2    NV18    NV18     X\nGPU3    NV18    NV18    NV\nNIC0    PIX     SYS     SY\n",
      "h100");
  CHECK(m.gpus_per_node.value == 4);
  CHECK(m.intra_rate == Bandwidth(450e9));
  CHECK(m.intra_spread == 0);
  CHECK_THAT(assumed(m, "import.cut_off"), ContainsSubstring("lacks the columns of GPU3"));
  CHECK_THAT(assumed(m, "import.cut_off"), ContainsSubstring("GPU 2 to GPU 3: NV18"));
}

TEST_CASE("a table that tells too little is refused, with what would be right") {
  CHECK_THAT(message_of<InputError>([] {
               (void)machine_of("\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tNV18", "h100");
             }),
             ContainsSubstring("topo.txt:1: shows of no GPU how it reaches all others"));
  CHECK_THAT(message_of<InputError>(
                 [] { (void)machine_of("\tGPU0\tGPU1\tGP\nGPU0\t X \tNV18\tNV\n", "h100"); }),
             ContainsSubstring("topo.txt:1: was cut off inside 'GP'"));
}

TEST_CASE("the first line may have been cut off, too, which is said") {
  const MachineSpec m = machine_of("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n", "l20");
  CHECK_THAT(assumed(m, "import.cut_off"), ContainsSubstring("ends before 'CPU Affinity'"));
}

TEST_CASE("wherever a table is cut off below, it is the same machine, says so, or is refused") {
  for (const Table& table : tables()) {
    const MachineSpec whole = machine_of(table.text, table.gpu);
    int read = 0;
    for (std::size_t length = 0; length < table.text.size(); ++length) {
      // Near the ends of lines everywhere; elsewhere here and there, for who waits with a
      // sanitizer.
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
