// What other programs print about machines: read format by format, and put together. The tables are
// written after the traits of public captures; files of tests/support/data/machines/ say their
// source. One table of formats, hence one file.
#include "base/error.hpp"
#include "base/file.hpp"
#include "machine/import/format.hpp"
#include "machine/import/hostlist.hpp"
#include "machine/import/merge.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/topology_tables.hpp"

#include <fmt/format.h>

#include <algorithm>

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using imports::MergeOptions;
using imports::Source;
using spp::test::assumed;
using spp::test::catalog;
using spp::test::message_of;

namespace {

Source text(std::string content, std::string file = "topo.txt") {
  return imports::source_of(std::move(content), std::move(file));
}

Source sample_source(std::string_view name) {
  const auto path = test::source_path(fmt::format("tests/support/data/machines/{}", name));
  return imports::source_of(read_text_file(path), std::string(name));
}

MachineSpec machine_of(const std::vector<Source>& sources, const MergeOptions& options = {}) {
  const imports::Imported imported = merge(imports::read_facts(sources), options, catalog());
  return catalog().machine_of(imported.machine, "imported");
}

std::string refusal(const std::vector<Source>& sources, const MergeOptions& options = {}) {
  return message_of<InputError>([&] { (void)machine_of(sources, options); });
}

constexpr const char* pairs_of_a40 =
    "        GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
    "GPU0     X      NV4     SYS     SYS     NODE    0-95    0               N/A\n"
    "GPU1    NV4      X      SYS     SYS     NODE    0-95    0               N/A\n"
    "GPU2    SYS     SYS      X      NV4     SYS     96-191  1               N/A\n"
    "GPU3    SYS     SYS     NV4      X      SYS     96-191  1               N/A\n";

constexpr const char* mesh_of_v100 =
    "\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\tNUMA Affinity\r\n"
    "GPU0\t X \tNV2\tNV2\tNV2\tNODE\t0,2,4\t0\r\n"
    "GPU1\tNV2\t X \tNV2\tNV2\tNODE\t0,2,4\t0\r\n"
    "GPU2\tNV2\tNV2\t X \tNV2\tNODE\t0,2,4\t0\r\n"
    "GPU3\tNV2\tNV2\tNV2\t X \tNODE\t0,2,4\t0\r\n"
    "mlx5_0\tNODE\tNODE\tNODE\tNODE\t X \t\t\r\n";

constexpr const char* tray_of_gb200 =
    "        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
    "GPU0     X      NV18    NV18    NV18    0-71    0               N/A\n"
    "GPU1    NV18     X      NV18    NV18    0-71    0               N/A\n"
    "GPU2    NV18    NV18     X      NV18    72-143  1               N/A\n"
    "GPU3    NV18    NV18    NV18     X      72-143  1               N/A\n";

constexpr const char* smi_of_two_l20 =
    "|=========================================+========================+======================|\n"
    "|   0  NVIDIA L20                     On  |   00000000:18:00.0 Off |                    0 |\n"
    "| N/A   35C    P0             76W /  350W |       1MiB /  46068MiB |      0%      Default |\n"
    "|                                         |                        |                  N/A |\n"
    "+-----------------------------------------+------------------------+----------------------+\n"
    "|   1  NVIDIA L20                     On  |   00000000:2A:00.0 Off |                    0 |\n"
    "| N/A   35C    P0             76W /  350W |       1MiB /  46068MiB |      0%      Default |\n"
    "|                                         |                        |                  N/A |\n";

}  // namespace

// ---- nvidia-smi topo -m

TEST_CASE("topo -m: NVLink to all is switches, adapters behind GPUs' switches are the network") {
  const MachineSpec m = machine_of({sample_source("topo-h100.txt")}, {.gpu = "h100"});
  CHECK(m.gpus_per_node.value == 8);
  CHECK(m.gpu.name == "h100-80g-sxm");
  CHECK(m.intra.name == "nvlink4");
  CHECK(m.intra_rate == m.intra.rate->value);
  REQUIRE(m.inter);
  CHECK(m.inter->nics.value == 8);
  CHECK(m.inter->transport.name == "ib");
  CHECK_THAT(assumed(m, "inter.nics"), ContainsSubstring("not mlx5_8"));
  CHECK_THAT(assumed(m, "inter.rate_per_nic"), ContainsSubstring("400 Gb/s"));
  CHECK(m.inter->spread == 0.5);
  CHECK(assumed(m, "inter.gpus_per_nic").empty());
}

TEST_CASE("topo -m: a GPU with a link that is down slows switches, it does not make them a mesh") {
  std::string table;
  for (int row = -1; row < 8; ++row) {
    table += row < 0 ? "" : fmt::format("GPU{}", row);
    for (int column = 0; column < 8; ++column) {
      table += row < 0         ? fmt::format("\tGPU{}", column)
               : row == column ? "\t X "
                               : fmt::format("\tNV{}", row == 3 || column == 3 ? 17 : 18);
    }
    table += row < 0 ? "\tCPU Affinity\tNUMA Affinity\n" : "\t0-55\t0\n";
  }
  const MachineSpec m = machine_of({text(table)}, {.gpu = "h100"});
  CHECK(m.intra.name == "nvlink4");
  CHECK(m.intra_rate.value() == Catch::Approx(17 * 25e9));
  CHECK_THAT(assumed(m, "intra"), ContainsSubstring("NV17 to NV18 between GPUs"));
  while (table.find("NV17") != std::string::npos) {
    table.replace(table.find("NV17"), 4, "NV99");
  }
  CHECK_THAT(refusal({text(table)}, {.gpu = "h100"}),
             ContainsSubstring("NV99 between GPUs, but h100-80g-sxm has 18 NVLinks; --gpu says"));
  CHECK_THAT(refusal({sample_source("topo-h100.txt")}, {.gpu = "l40s"}),
             ContainsSubstring("NV18 between GPUs, but l40s-48g has no NVLink"));
  CHECK_THAT(refusal({sample_source("topo-h100.txt")}, {.gpu = "a100-80g-sxm"}),
             ContainsSubstring("a100-80g-sxm has 12 NVLinks"));
}

TEST_CASE("topo -m: adapters near some GPUs alone are dealt out to all, which is said") {
  const MachineSpec m = machine_of({text(pairs_of_a40)}, {.gpu = "a40"});
  CHECK(m.inter->gpus_per_nic.value == 4);
  CHECK_THAT(assumed(m, "inter.gpus_per_nic"), ContainsSubstring("none lies near GPU 2, 3"));
}

TEST_CASE("topo -m: without NVLink sockets follow the table, and the interval is wide") {
  const MachineSpec m = machine_of({sample_source("topo-l40s.txt")}, {.gpu = "l40s"});
  CHECK(m.intra.medium == "pcie");
  CHECK(m.sockets.value == 2);
  CHECK(!m.gpus_per_pcie_switch);
  CHECK(m.intra.segments[0].back().fraction.spread == 0.8);
  CHECK_THAT(assumed(m, "intra"), ContainsSubstring("nine-fold"));
  REQUIRE(m.inter);
  CHECK(m.inter->gpus_per_nic.value == 8);
}

TEST_CASE("topo -m: pairs with NVLink are a PCIe machine, and the pairs are named") {
  const MachineSpec m = machine_of({text(pairs_of_a40)}, {.gpu = "a40"});
  CHECK(m.intra.medium == "pcie");
  CHECK(m.sockets.value == 2);
  CHECK_THAT(assumed(m, "intra.nvlink"), ContainsSubstring("2 groups"));
}

TEST_CASE("topo -m: NVLinks of each pair are a mesh, of which one peer has a share") {
  const MachineSpec m = machine_of({text(mesh_of_v100)}, {.gpu = "v100-16g"});
  CHECK(m.intra.name == "nvlink2-mesh");
  CHECK(m.intra_rate == Bandwidth(150e9));
  const TransportSpec switched = catalog().transport("nvlink2", "test");
  CHECK(m.intra.segments[0].back().fraction.value ==
        Catch::Approx(switched.segments[0].back().fraction.value / 3).epsilon(1e-4));
}

TEST_CASE("topo -m: a mesh with holes is predicted widely") {
  const char* cube =
      "        GPU0    GPU1    GPU2    GPU3    CPU Affinity\n"
      "GPU0     X      NV2     NV1     SYS     0-23\n"
      "GPU1    NV2      X      SYS     NV1     0-23\n"
      "GPU2    NV1     SYS      X      NV2     24-47\n"
      "GPU3    SYS     NV1     NV2      X      24-47\n";
  const MachineSpec m = machine_of({text(cube)}, {.gpu = "v100"});
  CHECK(m.intra.medium == "nvlink");
  CHECK(m.intra_spread == 0.8);
  CHECK_THAT(assumed(m, "intra"), ContainsSubstring("a mesh with holes"));
  CHECK(assumed(m, "import.cut_off").empty());
}

TEST_CASE("topo -m: inside a report, with escape codes, beside what names the GPUs") {
  const std::string report =
      "CUDA runtime version: 12.4\nGPU models and configuration: \n"
      "GPU 0: NVIDIA A100-SXM4-80GB\nGPU 1: NVIDIA A100-SXM4-80GB\n\nGPU Topology:\n"
      "\x1b[4m\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
      "GPU0\t X \tNV12\tPXB\tPXB\t0-63\t0\t\tN/A\n"
      "GPU1\tNV12\t X \tSYS\tSYS\t64-127\t1\t\tN/A\n"
      "NIC0\tPXB\tSYS\t X \tPXB\t\t\t\t\nNIC1\tPXB\tSYS\tPXB\t X \t\t\t\t\n\nLegend:\n";
  const MachineSpec m = machine_of({text(report)});
  CHECK(m.gpu.name == "a100-80g-sxm");
  CHECK(m.intra.name == "nvlink3");
  CHECK(m.intra_rate == Bandwidth(300e9));
  CHECK(m.inter->nics.value == 2);
}

TEST_CASE("topo -m: three GPUs, one GPU, five adapters for eight GPUs") {
  const char* three =
      "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\tNODE\t0-31\t0\n"
      "GPU1\tNV4\t X \tNODE\t0-31\t0\nGPU2\tNODE\tNODE\t X \t0-31\t0\n";
  CHECK(machine_of({text(three)}, {.gpu = "a6000"}).sockets.value == 1);
  const char* one = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-63\t0\tN/A\n";
  CHECK(machine_of({text(one)}, {.gpu = "h100"}).gpus_per_node.value == 1);
}

TEST_CASE("topo -m: what contradicts is named with both places") {
  std::string other = pairs_of_a40;
  other.replace(other.find("NV4"), 3, "PIX");
  CHECK(refusal({text(other)}, {.gpu = "a40"}) ==
        "topo.txt:3: GPU1 to GPU0 is NV4, but PIX at topo.txt:2");
  CHECK_THAT(refusal({text(pairs_of_a40, "a.txt"), text(smi_of_two_l20, "b.txt")}),
             ContainsSubstring("b.txt:2: 2 GPUs a node (nvidia-smi), but 4 at a.txt:1"));
}

TEST_CASE("topo -m: a code that nobody knows, and GPUs that nobody names, are refused") {
  std::string other = mesh_of_v100;
  other.replace(other.find("NV2"), 3, "FOO");
  CHECK(refusal({text(other)}, {.gpu = "v100"}) ==
        "topo.txt:2: 'FOO' of GPU0 and GPU1 is no code of this table");
  CHECK_THAT(refusal({text(mesh_of_v100)}),
             ContainsSubstring("topo.txt:1: says nowhere which GPUs"));
}

// ---- the other texts of nvidia-smi

TEST_CASE("nvidia-smi names GPUs; of two that are called alike, memory decides") {
  const MachineSpec m = machine_of({text(smi_of_two_l20)});
  CHECK(m.gpu.name == "l20-48g");
  CHECK(m.gpus_per_node.value == 2);
  CHECK_THAT(assumed(m, "sockets"), ContainsSubstring("no file says"));
  std::string modded = smi_of_two_l20;
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"NVIDIA L20             ", "NVIDIA GeForce RTX 4090"}, {"46068MiB", "49140MiB"}}) {
    for (std::size_t at = 0; (at = modded.find(from)) != std::string::npos;) {
      modded.replace(at, from.size(), to);
    }
  }
  CHECK(machine_of({text(modded)}).gpu.name == "rtx4090-48g");
}

TEST_CASE("names that were cut off are completed by memory, or refused") {
  std::string cut = smi_of_two_l20;
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"NVIDIA L20             ", "NVIDIA A100-SXM...     "}, {"46068MiB", "40960MiB"}}) {
    for (std::size_t at = 0; (at = cut.find(from)) != std::string::npos;) {
      cut.replace(at, from.size(), to);
    }
  }
  CHECK(machine_of({text(cut)}).gpu.name == "a100-40g-sxm");
}

TEST_CASE("GPUs that differ, are divided or unknown are refused, and --gpu decides") {
  const Source mixed = text("GPU 0: NVIDIA L20 (UUID: GPU-1)\nGPU 1: NVIDIA L40S (UUID: GPU-2)\n");
  CHECK_THAT(refusal({mixed}), ContainsSubstring("topo.txt:2: GPU 1 is l40s-48g, but GPU 0 at "
                                                 "topo.txt:1 is l20-48g"));
  CHECK_THAT(assumed(machine_of({mixed}, {.gpu = "l20"}), "gpu"),
             ContainsSubstring("l20-48g, though"));
  CHECK_THAT(refusal({text("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n"
                           "  MIG 1g.10gb     Device  0: (UUID: MIG-1)\n")}),
             ContainsSubstring("MIG"));
  CHECK_THAT(refusal({text("GPU 0: NVIDIA A12 (UUID: GPU-1)\n")}),
             ContainsSubstring("'NVIDIA A12' is no GPU of topologies/gpus/ (did you mean 'a10'?)"));
}

TEST_CASE("topo -p2p r: GPUs without access to each other go through the host's memory") {
  const char* none =
      " \tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n\nLegend:\n\n  X    = Self\n";
  const char* all = " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n";
  CHECK(machine_of({text(none)}, {.gpu = "l20"}).intra.name == "pcie4-shm");
  CHECK(machine_of({text(all)}, {.gpu = "rtx4090"}).intra.name == "pcie4");
}

TEST_CASE("a slot of an older generation is slower, and still without access to each other") {
  const auto older = [](int generation) {
    std::string xml = "<nvidia_smi_log><attached_gpus>2</attached_gpus>";
    for (int g = 0; g < 2; ++g) {
      xml += fmt::format(
          "<gpu id=\"0000000{}:00:00.0\"><product_name>NVIDIA L20</product_name><pci>"
          "<pci_gpu_link_info><pcie_gen><max_link_gen>{}</max_link_gen></pcie_gen></"
          "pci_gpu_link_info></pci></gpu>",
          g + 1, generation);
    }
    return text(xml + "</nvidia_smi_log>", "q.xml");
  };
  const char* none = " \tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n";
  const MachineSpec without = machine_of({text(none), older(3)}, {.gpu = "l20"});
  CHECK(without.intra.name == "pcie4-shm");
  CHECK(without.intra_rate == Bandwidth(15.75e9));
  CHECK_THAT(assumed(without, "intra.rate"), ContainsSubstring("of generation 3"));
}

TEST_CASE("nvidia-smi -q -x: name, memory, lanes") {
  const MachineSpec m = machine_of({sample_source("k8s-test-infra-qx-l40s.xml")});
  CHECK(m.gpu.name == "l40s-48g");
  CHECK(m.gpus_per_node.value == 1);
  CHECK_THAT(assumed(m, "intra.rate"), ContainsSubstring("8 lanes"));
}

// ---- NCCL's topology

TEST_CASE("NCCL's XML: GPUs by PCI device, switches, adapters with their rate") {
  const MachineSpec m = machine_of({sample_source("simai_topo_8A100_4CX6.xml")});
  CHECK(m.gpu.name == "a100-80g-sxm");
  CHECK(m.gpus_per_node.value == 8);
  CHECK(m.intra.name == "nvlink3");
  CHECK(m.intra_rate == Bandwidth(300e9));
  CHECK(m.inter->nics.value == 4);
  CHECK(m.inter->rate_per_nic.value == Bandwidth(25e9));
}

TEST_CASE("NCCL's XML of clouds: what it does not show is assumed and said") {
  const MachineSpec p4d = machine_of({sample_source("aws_p4d-24xl-topo.xml")});
  CHECK(p4d.gpu.name == "a100-40g-sxm");
  CHECK(p4d.intra.medium == "nvlink");
  CHECK_THAT(assumed(p4d, "intra"), ContainsSubstring("no file shows the NVLinks"));
  CHECK(p4d.inter->transport.name == "efa");
  const MachineSpec ncv4 = machine_of({sample_source("azure_ncv4-topo.xml")});
  CHECK(ncv4.gpu.name == "a100-80g-pcie");
  CHECK(ncv4.intra.medium == "pcie");
  CHECK_THAT(assumed(ncv4, "import.nvlink_hidden"), ContainsSubstring("GPU 0"));
  const MachineSpec ndv5 = machine_of({sample_source("azure_ndv5-topo.xml")}, {.gpu = "h100"});
  CHECK(ndv5.inter->nics.value == 8);
  CHECK(ndv5.inter->transport.name == "ib");
  CHECK_THAT(refusal({sample_source("azure_ndv5-topo.xml")}), ContainsSubstring("--gpu NAME"));
}

TEST_CASE("NCCL's XML: bridges and adapters pass no more than their PCIe links") {
  const auto two_gpus = [](std::string_view gpu_speed, std::string_view card, int megabits) {
    std::string xml = "<system version=\"1\"><cpu numaid=\"0\">";
    for (int g = 0; g < 2; ++g) {
      xml += fmt::format(
          "<pci busid=\"{}\" class=\"0x030200\" link_speed=\"{}\" link_width=\"16\"><gpu "
          "dev=\"{}\" "
          "sm=\"89\"/></pci>",
          g, gpu_speed, g);
    }
    return xml + fmt::format(
                     "<pci busid=\"9\" class=\"0x020700\" {}><nic><net name=\"mlx5_0\" "
                     "dev=\"0\" speed=\"{}\"/></nic></pci></cpu></system>",
                     card, megabits);
  };
  constexpr std::string_view wide = "link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"";
  constexpr std::string_view narrow = "link_speed=\"8.0 GT/s PCIe\" link_width=\"8\"";
  const auto machine = [&](std::string_view speed, std::string_view card) {
    return machine_of({text(two_gpus(speed, card, 200'000), "a.xml")}, {.gpu = "l40s"});
  };
  const MachineSpec usual = machine("16.0 GT/s PCIe", wide);
  CHECK(usual.host_bridge->value.value() == Catch::Approx(1.5 * 31.5e9));
  CHECK(usual.inter->rate_per_nic.value == Bandwidth(25e9));
  const MachineSpec older = machine("8.0 GT/s PCIe", wide);
  CHECK(older.intra.name == "pcie3");
  CHECK(older.host_bridge->value.value() == Catch::Approx(1.5 * older.intra.rate->value.value()));
  const MachineSpec held = machine("16.0 GT/s PCIe", narrow);
  CHECK(held.inter->rate_per_nic.value.value() == Catch::Approx(7.88e9).epsilon(0.01));
  CHECK_THAT(assumed(held, "inter.rate_per_nic"),
             ContainsSubstring("what the PCIe link of an adapter of 200 passes"));
  CHECK_THAT(refusal({text(two_gpus("16.0 GT/s PCIe", wide, -5), "a.xml")}, {.gpu = "l40s"}),
             ContainsSubstring("speed=\"-5\""));
}

TEST_CASE("NCCL's XML: graphs, broken files and deep nests are refused in a line") {
  CHECK_THAT(refusal({sample_source("azure_ncv4-graph.xml")}),
             ContainsSubstring("NCCL_TOPO_DUMP_FILE"));
  CHECK_THAT(refusal({text("<system version=\"1\">\n  <cpu numaid=\"0\">\n", "a.xml")}),
             ContainsSubstring("not well-formed XML"));
  CHECK_THAT(refusal({text("<system version=\"1\"></system>", "a.xml")}),
             ContainsSubstring("has no <cpu>"));
  std::string deep = "<system><cpu>";
  for (int i = 0; i < 200; ++i) {
    deep += "<pci busid=\"1\">";
  }
  for (int i = 0; i < 200; ++i) {
    deep += "</pci>";
  }
  CHECK_THAT(refusal({text(deep + "</cpu></system>", "a.xml")}), ContainsSubstring("more than 64"));
}

TEST_CASE("XML that defines entities is refused, and a DOCTYPE only where its program writes one") {
  std::string bomb = "<?xml version=\"1.0\"?>\n<!DOCTYPE system [\n";
  bomb += "<!ENTITY a \"0x10de\">\n<!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">\n]>\n";
  bomb += "<system version=\"1\"><cpu numaid=\"&b;\"/></system>\n";
  CHECK_THAT(refusal({text(bomb, "a.xml")}, {.gpu = "h100"}),
             ContainsSubstring("a.xml:2: its DOCTYPE defines entities"));
  std::string named = sample_source("azure_ndv5-topo.xml").text;
  named.insert(named.find("<system"), "<!DOCTYPE system SYSTEM \"topo.dtd\">\n");
  CHECK_THAT(refusal({text(named, "b.xml")}, {.gpu = "h100"}),
             ContainsSubstring("has a DOCTYPE, which NCCL does not write"));
  std::string smi = sample_source("k8s-test-infra-qx-l40s.xml").text;
  const std::string doctype = "<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v13.dtd\"";
  REQUIRE(smi.find(doctype) != std::string::npos);
  smi.replace(smi.find(doctype), doctype.size(), doctype + " [<!ENTITY a \"b\">]");
  CHECK_THAT(refusal({text(smi, "c.xml")}), ContainsSubstring("c.xml:2: its DOCTYPE defines"));
}

// ---- tests, adapters, Slurm

TEST_CASE("nccl-tests say how many hosts and ranks there are, and on which GPUs") {
  const imports::Imported imported =
      merge(imports::read_facts({sample_source("alltoall-2x8.txt")}), {}, catalog());
  CHECK(imported.nodes == 2);
  REQUIRE(imported.tests.size() == 1);
  const MachineSpec m = catalog().machine_of(imported.machine, "imported");
  CHECK(m.gpu.name == "h100-80g-sxm");
  CHECK(m.gpus_per_node.value == 8);
  CHECK(m.inter->nics.value == 8);
  CHECK_THAT(assumed(m, "gpus_per_node"), ContainsSubstring("as many as ranks"));
}

/// ibstat's text of `count` adapters with a port each, from mlx5_`first` on.
std::string ports_of(int first, int count, std::string_view layer, int rate,
                     std::string_view state = "Active") {
  std::string ports;
  for (int i = first; i < first + count; ++i) {
    ports += fmt::format(
        "CA 'mlx5_{}'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: {}\n\t\tRate: {}\n"
        "\t\tLink layer: {}\n",
        i, state, rate, layer);
  }
  return ports;
}

TEST_CASE("ibstat and ibv_devinfo give adapters' rates, and which are down") {
  const std::string ports =
      ports_of(0, 4, "Ethernet", 200) + ports_of(4, 4, "Ethernet", 200, "Down");
  const MachineSpec m =
      machine_of({sample_source("topo-h100.txt"), text(ports, "ibstat.txt")}, {.gpu = "h100"});
  CHECK(m.inter->transport.name == "roce");
  CHECK(m.inter->nics.value == 4);
  CHECK_THAT(assumed(m, "inter.nics"),
             ContainsSubstring("not mlx5_4, mlx5_5, mlx5_6, mlx5_7: not"));
  const Source verbose = text(
      "hca_id: mlx5_0\n\tport: 1\n\t\tstate: PORT_ACTIVE (4)\n"
      "\t\tlink_layer: InfiniBand\n\t\tactive_width: 4X (2)\n"
      "\t\tactive_speed: 100.0 Gbps (128)\n",
      "ibv.txt");
  const MachineSpec one = machine_of({verbose}, {.gpu = "h100", .gpus_per_node = 8});
  CHECK(one.inter->transport.name == "ib");
  CHECK(one.inter->rate_per_nic.value == Bandwidth(50e9));
  // Of two ports, whichever it is, one is enough.
  for (const std::string_view states :
       {"PORT_ACTIVE,PORT_DOWN", "PORT_DOWN,PORT_ACTIVE", "PORT_ACTIVE,PORT_ACTIVE"}) {
    const std::size_t comma = states.find(',');
    std::string both = "hca_id: mlx5_0\n";
    for (const std::string_view state : {states.substr(0, comma), states.substr(comma + 1)}) {
      both += fmt::format("\tport: 1\n\t\tstate: {} (4)\n\t\tlink_layer: InfiniBand\n", state);
      both += "\t\tactive_width: 4X (2)\n\t\tactive_speed: 50.0 Gbps (64)\n";
    }
    const MachineSpec m2 = machine_of({text(both, "ibv.txt")}, {.gpu = "h100", .gpus_per_node = 8});
    REQUIRE(m2.inter.has_value());
    CHECK(m2.inter->rate_per_nic.value == Bandwidth(25e9));
    const bool two = states.find("DOWN") == std::string_view::npos;
    CHECK((assumed(m2, "inter.rate_per_nic").find("listed as up more than once") !=
           std::string::npos) == two);
  }
}

TEST_CASE("each table of a file has a legend of its own") {
  std::string both;
  for (const std::string_view adapter : {"mlx5_0", "mlx5_7"}) {
    both += pairs_of_a40 + fmt::format("\nNIC Legend:\n\n  NIC0: {}\n\n", adapter);
  }
  const imports::Facts facts = imports::read_facts({text(both)});
  REQUIRE(facts.layouts.size() == 2);
  CHECK(facts.layouts[0].cards.at(0).name == "mlx5_0");
  CHECK(facts.layouts[1].cards.at(0).name == "mlx5_7");
}

TEST_CASE("adapters that files call differently have the rate that all of them have") {
  std::string table = mesh_of_v100;
  for (std::size_t at = 0; (at = table.find("mlx5_0")) != std::string::npos;) {
    table.replace(at, 6, "NIC0");
  }
  const Source ports =
      text("CA 'mlx5_3'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 100\n\t\tLink layer: InfiniBand\n",
           "ibstat.txt");
  const MachineSpec m = machine_of({text(table), ports}, {.gpu = "v100"});
  CHECK(m.inter->rate_per_nic.value == Bandwidth(12.5e9));
  CHECK(m.inter->spread == 0);
  CHECK_THAT(assumed(m, "inter.rate_per_nic"), ContainsSubstring("NIC0, mlx5_3"));
}

TEST_CASE("adapters of several kinds: the fastest are taken at their own rate, others are named") {
  const auto with = [](const std::string& ports) {
    return machine_of({text(ports, "ibstat.txt")}, {.gpu = "h100", .gpus_per_node = 8});
  };
  const MachineSpec dgx = with(ports_of(0, 8, "InfiniBand", 400) + ports_of(8, 2, "Ethernet", 200));
  CHECK(dgx.inter->transport.name == "ib");
  CHECK(dgx.inter->nics.value == 8);
  CHECK(dgx.inter->rate_per_nic.value == Bandwidth(50e9));
  CHECK_THAT(assumed(dgx, "inter.nics"),
             ContainsSubstring("not mlx5_8, mlx5_9: roce of 200 Gb/s, where the fastest are ib of "
                               "400 Gb/s"));
  // One fast adapter brings less than eight.
  const MachineSpec one_fast =
      with(ports_of(0, 8, "InfiniBand", 200) + ports_of(8, 1, "InfiniBand", 400));
  CHECK(one_fast.inter->nics.value == 8);
  CHECK(one_fast.inter->rate_per_nic.value == Bandwidth(25e9));
  // Which two of ten are for storage no file says.
  const MachineSpec ten = with(ports_of(0, 10, "InfiniBand", 400));
  CHECK(ten.inter->nics.value == 8);
  CHECK(ten.inter->rate_per_nic.value == Bandwidth(50e9));
  CHECK_THAT(assumed(ten, "inter.nics"), ContainsSubstring("8 of 10"));
  // Adapters of which no file gives the rate are as the others.
  const MachineSpec silent = machine_of(
      {sample_source("topo-h100.txt"), text(ports_of(0, 1, "Ethernet", 100), "ibstat.txt")},
      {.gpu = "h100"});
  CHECK(silent.inter->transport.name == "roce");
  CHECK(silent.inter->nics.value == 8);
  CHECK(silent.inter->rate_per_nic.value == Bandwidth(12.5e9));
  CHECK_THAT(assumed(silent, "inter.rate_per_nic"),
             ContainsSubstring("100 Gb/s also of 7 of 8 adapters"));
}

TEST_CASE("topo -m: adapters that a second table lists otherwise are named as not used") {
  std::string other = mesh_of_v100;
  for (std::size_t at = 0; (at = other.find("mlx5_0", at)) != std::string::npos;) {
    other.replace(at, 6, "mlx5_7");
  }
  const auto nics = [](const std::string& second) {
    return assumed(machine_of({text(mesh_of_v100), text(second, "b.txt")}, {.gpu = "v100"}),
                   "inter.nics");
  };
  CHECK(nics(mesh_of_v100).empty());
  CHECK_THAT(nics(other), ContainsSubstring("they differ from the 1 that were listed before"));
}

TEST_CASE("Slurm: blocks of hosts that NVLink joins are one node") {
  const Source blocks =
      text("BlockName=b1 Nodes=n[01-08]\nBlockName=b2 Nodes=n[09-16]\n", "t.conf");
  CHECK(machine_of({text(tray_of_gb200)}, {.gpu = "gb200"}).gpus_per_node.value == 4);
  const MachineSpec m =
      machine_of({text(tray_of_gb200), blocks}, {.gpu = "gb200", .inter = "ib:32x400Gb/s"});
  CHECK(m.gpus_per_node.value == 32);
  CHECK(m.inter->nics.value == 32);
}

TEST_CASE("Slurm: of blocks that differ the most frequent counts, and hosts are told by nodes") {
  const Source blocks = text(
      "BlockName=b1 Nodes=n[01-16]\nBlockName=b2 Nodes=n[17-34]\nBlockName=b3 Nodes=n[35-52]\n",
      "t.conf");
  const Source job = text("SLURM_JOB_NODELIST=n[17-52]\nSLURM_GPUS_ON_NODE=4\n", "job.txt");
  const imports::Imported imported =
      merge(imports::read_facts({text(tray_of_gb200), blocks, job}), {.gpu = "gb200"}, catalog());
  const MachineSpec m = catalog().machine_of(imported.machine, "imported");
  CHECK(m.gpus_per_node.value == 72);
  CHECK(imported.nodes == 2);  // 36 hosts of 4 GPUs
  const auto nodes_of = [&](std::string_view lists) {
    const Source said = text(fmt::format("{}\nSLURM_GPUS_ON_NODE=4\n", lists), "job.txt");
    const auto facts = imports::read_facts({text(tray_of_gb200), blocks, said});
    return merge(facts, {.gpu = "gb200"}, catalog()).nodes;
  };
  CHECK(nodes_of("SLURM_NODELIST=n[17-52]") == 2);  // as older releases say it
  CHECK(nodes_of("SLURM_JOB_NODELIST=n[17-52]\nSLURM_NODELIST=n[17-52]") == 2);
  CHECK_THAT(assumed(m, "gpus_per_node"), ContainsSubstring("18 as of most blocks; t.conf:1 has"));
}

TEST_CASE("Slurm: parts of divided GPUs are no GPUs, and all types of a node are read") {
  const auto gres = [](std::string_view list) {
    return text(fmt::format("NodeName=n01 Arch=x86_64\n   Gres={}\n   State=IDLE\n", list),
                "n.txt");
  };
  for (const std::string_view list :
       {"gpu:a100_1g.10gb:28(S:0-1)", "gpu:1g.5gb:7", "gpu:a100:4(S:0,1),gpu:a100_3g.40gb:8"}) {
    INFO(list);
    CHECK_THAT(refusal({gres(list)}), ContainsSubstring("n.txt:2: the GPU is divided (MIG)"));
    CHECK_THAT(refusal({gres(list)}, {.gpu = "a100"}), ContainsSubstring("--gpus-per-node N"));
    const MachineSpec m = machine_of({gres(list)}, {.gpu = "a100", .gpus_per_node = 8});
    CHECK(m.gpus_per_node.value == 8);
    CHECK_THAT(assumed(m, "gpu.mig"), ContainsSubstring("off"));
  }
  CHECK(machine_of({gres("nvme:1,gpu:h100:4(S:0),gpu:h100:4(S:1)")}).gpus_per_node.value == 8);
  CHECK_THAT(refusal({gres("gpu:h100:4,gpu:a100:4")}),
             ContainsSubstring("n.txt:2: the GPU is a100"));
}

TEST_CASE("Slurm: nodes that are out of service are not counted, which is said") {
  const auto node = [](int n, std::string_view state) {
    return fmt::format("NodeName=n{:02} Arch=x86_64\n   Gres=gpu:h100:8(S:0-1)\n   State={}\n", n,
                       state);
  };
  const Source some = text(node(1, "DOWN*+DRAIN") + node(2, "MIXED") + node(3, "IDLE+DRAIN") +
                               node(4, "IDLE+CLOUD+POWERED_DOWN") + node(5, "FAIL"),
                           "n.txt");
  const imports::Imported imported = merge(imports::read_facts({some}), {}, catalog());
  CHECK(imported.nodes == 2);
  CHECK_THAT(assumed(catalog().machine_of(imported.machine, "imported"), "nodes"),
             ContainsSubstring("2 of 5 hosts with GPUs: the others are out of service (n01 is "
                               "DOWN*+DRAIN, …)"));
  CHECK(refusal({text(node(1, "DRAINED"), "n.txt")}) ==
        "n.txt:2: no node with GPUs is in service: n01 is DRAINED");
  // What slurm.conf says of partitions and of a list of nodes is not said of the node above it.
  const Source conf = text(
      "NodeName=n[1-4] Gres=gpu:h100:8\nDownNodes=n[1-2] State=DOWN\n"
      "PartitionName=p Nodes=ALL State=DRAIN\n",
      "slurm.conf");
  CHECK(merge(imports::read_facts({conf}), {}, catalog()).nodes == 4);
  // What it says of all nodes is said of those below, unless they say otherwise.
  const Source usual = text(
      "NodeName=DEFAULT Gres=gpu:h100:8 State=UNKNOWN\nNodeName=n[1-4] CPUs=96\n"
      "NodeName=n5 State=DOWN\nNodeName=login Gres=\n",
      "slurm.conf");
  CHECK(merge(imports::read_facts({usual}), {}, catalog()).nodes == 4);
}

TEST_CASE("Slurm: nodes, their GPUs and the switches above them") {
  const Source nodes = text(
      "NodeName=n01 Arch=x86_64 CoresPerSocket=56\n   Gres=gpu:h100:8(S:0-1)\n"
      "\nNodeName=n02 Arch=x86_64\n   Gres=gpu:h100:8(S:0-1)\n\n"
      "NodeName=login1\n   Gres=(null)\n",
      "nodes.txt");
  const imports::Imported imported = merge(
      imports::read_facts({nodes, sample_source("topograph_tree_topology.conf")}), {}, catalog());
  CHECK(imported.nodes == 2);
  const MachineSpec m = catalog().machine_of(imported.machine, "imported");
  CHECK(m.gpu.name == "h100-80g-sxm");
  CHECK_THAT(assumed(m, "gpu"), ContainsSubstring("label 'h100'"));
  CHECK(m.fabric.kind == "fat-tree");
  CHECK(m.fabric.nodes_per_leaf->value == 8);
}

TEST_CASE("Slurm: what a job asked for on each node says how many GPUs a node has") {
  const auto job =
      GENERATE("SLURM_GPUS_PER_NODE=h100:8", "SLURM_GPUS_PER_NODE=8",
               "SLURM_TRES_PER_NODE=gres:gpu:h100:8", "SLURM_TRES_PER_NODE=cpu:32,gres/gpu:8");
  INFO(job);
  const imports::Imported imported = merge(
      imports::read_facts({text(fmt::format("SLURM_JOB_NODELIST=n[1-4]\n{}\n", job), "job.txt")}),
      {.gpu = "h100-80g-sxm"}, catalog());
  CHECK(imported.nodes == 4);
  CHECK(catalog().machine_of(imported.machine, "imported").gpus_per_node.value == 8);
}

TEST_CASE("hosts of a list are counted, and what is no list is refused") {
  CHECK(imports::hosts_in("srv[1101-1108,1110],login1", "x") == 10);
  CHECK(imports::hosts_in("rack[1-2]n[01-16]", "x") == 32);
  CHECK(imports::hosts_in("a,b", "x") == 2);
  for (const char* wrong : {"n[1-", "n[3-1]", "n[a-b]", "n[1-9999999]", "n[]"}) {
    CHECK_THROWS_AS(imports::hosts_in(wrong, "x"), InputError);
  }
}

// ---- what is none of these

TEST_CASE("text that describes no machine is refused with the formats that are known") {
  CHECK_THAT(refusal({text("hello\n", "a.txt")}), ContainsSubstring("a.txt: nothing in it"));
  CHECK_THAT(refusal({text("", "a.txt")}), ContainsSubstring("is empty"));
  CHECK_THAT(refusal({text("<html/>", "a.xml")}), ContainsSubstring("nvidia-smi topo -m"));
  CHECK_THAT(message_of<InputError>([] { (void)text(std::string(200'000, 'x')); }),
             ContainsSubstring("a line of 200000 letters"));
}

TEST_CASE("what was imported is a document that is read back alike") {
  const imports::Imported imported = merge(imports::read_facts({sample_source("topo-l40s.txt")}),
                                           {.gpu = "l40s", .name = "mine"}, catalog());
  const Json again = parse_json(imported.machine.dump(), "again");
  const MachineSpec m = catalog().machine_of(again, "again");
  CHECK(m.name == "mine");
  CHECK(m.intra_spread == 0.8);
  CHECK(m.assumptions.size() == imported.machine["assumptions"].size());
}
