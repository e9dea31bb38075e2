// Tables of nvidia-smi topo -m that were cut off: at the bottom, as a terminal's last screen or a
// message's limit does it, and on the right, as a narrow terminal does it.
#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/topology_tables.hpp"

#include <string>

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using spp::test::assumed;
using spp::test::machine_of;
using spp::test::message_of;
using spp::test::sample;

namespace {

/// The first `lines` lines.
std::string above(const std::string& table, int lines) {
  std::size_t end = 0;
  for (int i = 0; i < lines && end != std::string::npos; ++i) {
    end = table.find('\n', end) + 1;
  }
  return table.substr(0, end);
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
