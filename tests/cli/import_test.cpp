// From what other programs print to a plan, as a user goes.
#include "base/file.hpp"
#include "base/json.hpp"
#include "tests/cli/refused.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <string>

using Catch::Matchers::ContainsSubstring;
using spp::Json;
using spp::test::Result;
using spp::test::sp_plan;
using spp::test::TempDir;

namespace {

const std::string folder = "tests/support/data/machines/";
const std::string files = folder + "topo-h100.txt," + folder + "alltoall-2x8.txt";

Json document_of(const Result& r) {
  INFO(r.err);
  REQUIRE(r.code == 0);
  return spp::parse_json(r.out, "stdout");
}

bool assumes(const Json& document, const std::string& what, const std::string& part) {
  for (const Json& a : document["assumptions"]) {
    if (a["what"] == what && a["value"].get<std::string>().find(part) != std::string::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("topo -m and nccl-tests become a machine, and a plan on two nodes of it") {
  const TempDir dir;
  const std::string mine = (dir.path() / "mine.json").string();
  const Json machine = document_of(sp_plan("topology import " + folder + "topo-h100.txt " + folder +
                                           "alltoall-2x8.txt --name mine --json -o " + mine));
  CHECK(machine["format"] == "sp-plan/machine");
  CHECK(machine["gpu"] == "h100-80g-sxm");
  CHECK(machine["intra"]["transport"] == "nvlink4");
  CHECK(machine["inter"]["transport"]["name"] == "ib");  // measured: stands there itself
  CHECK(!machine["inter"].contains("spread"));
  CHECK(assumes(machine, "inter.measured", "16 ranks of 2 hosts"));

  const std::string work = "plan --heads 32 --kv-heads 8 --seq 64K --nodes 2 --top 1 --topology ";
  const Json by_file = document_of(sp_plan(work + mine));
  const Json directly = document_of(sp_plan(work + files));
  CHECK(by_file["best"]["plan"] == directly["best"]["plan"]);
  CHECK(by_file["best"]["predicted"]["step_s"] == directly["best"]["predicted"]["step_s"]);
  CHECK(assumes(directly, "inter.rate_per_nic", "400 Gb/s"));

  const std::string plan = dir.write("plan.json", directly.dump()).string();
  CHECK(document_of(sp_plan("simulate --plan " + plan))["request"]["topology"] == files);
}

TEST_CASE("a plan takes as many nodes as imported files list, if a network joins them") {
  const std::string work = "plan --heads 32 --kv-heads 8 --seq 64K --top 1 --topology ";
  const Json both = document_of(sp_plan(work + files));
  CHECK(both["request"]["nodes"] == 2);
  CHECK(assumes(both, "nodes", "2"));
  CHECK(document_of(sp_plan(work + files + " --nodes 1"))["request"]["nodes"] == 1);
  CHECK(document_of(sp_plan(work + files + " --gpus 4"))["request"]["nodes"] == 1);

  const TempDir dir;
  const std::string slurm =
      dir.write("nodes.txt", "NodeName=n[1-4]\n   Gres=gpu:h100:8\n   State=IDLE\n").string();
  CHECK(document_of(sp_plan(work + slurm))["request"]["nodes"] == 1);  // no network is known
  CHECK(document_of(sp_plan(work + slurm + " --inter ib:8x400Gb/s"))["request"]["nodes"] == 4);
}

TEST_CASE("a pipe can be imported, and options say what no file does") {
  const Result r = sp_plan("topology import /dev/stdin --gpu l20 --inter roce:2x100Gb/s",
                           {.input = "\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n"});
  const Json machine = document_of(r);
  CHECK(machine["name"] == "2xl20-48g");
  CHECK(machine["gpus_per_pcie_switch"]["value"] == 2);
  CHECK(machine["inter"]["transport"] == "roce");
}

TEST_CASE(
    "files that contradict are refused with both places, and a network that is wanted with its "
    "option") {
  spp::test::check_refused(sp_plan("plan --heads 8 --seq 8K --nodes 2 --topology " + folder +
                                   "simai_topo_8A100_4CX6.xml," + folder + "topo-l40s.txt"),
                           2, "GPU 0 to GPU 1 is NODE (nvidia-smi topo -m), but NV12 at ");
  spp::test::check_refused(sp_plan("plan --heads 8 --seq 8K --nodes 2 --topology " + folder +
                                   "k8s-test-infra-qx-l40s.xml"),
                           2, "--inter: 2 nodes need a network");
}

TEST_CASE("topology check explains a machine in sentences and draws it") {
  const Result table = sp_plan("topology check " + folder + "topo-l40s.txt --gpu l40s --table");
  CHECK(table.code == 0);
  CHECK_THAT(table.out, ContainsSubstring("- No GPUs share a PCIe switch"));
  CHECK_THAT(table.out, ContainsSubstring("[-host bridge--]"));
  const Json said = document_of(sp_plan("topology check " + folder + "topo-l40s.txt --gpu l40s"));
  const std::string all = said["explanation"].dump();
  CHECK_THAT(all, ContainsSubstring("GPU 3 to GPU 4: PCIe slot > host bridge > link between"));
  CHECK_THAT(all, ContainsSubstring("An all-to-all of the node reaches"));
  const Json doc = document_of(sp_plan("topology check dgx-h100"));
  CHECK(doc["explanation"].size() > 3);
  CHECK(doc["drawing"].size() > 1);
}

TEST_CASE("a machine is drawn into a file, whole or not at all") {
  const TempDir dir;
  const std::string file = (dir.path() / "machine.svg").string();
  const Json machine = document_of(
      sp_plan("topology check " + folder + "topo-h100.txt --gpu h100 --json --draw " + file));
  CHECK(machine["machine"]["gpus_per_node"] == 8);
  const std::string svg = spp::read_text_file(file, "");
  CHECK(svg.starts_with("<svg xmlns="));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK_THAT(svg, ContainsSubstring("8 x h100-80g-sxm"));

  const Result gpu = sp_plan("topology check h100-80g-sxm --draw " + file + "x");
  CHECK(gpu.code == 2);
  CHECK_THAT(gpu.err, ContainsSubstring("a GPU alone"));
  CHECK_FALSE(std::filesystem::exists(file + "x"));
  CHECK(sp_plan("topology show dgx-h100 --draw " + file).code == 2);
}

TEST_CASE("text that is not UTF-8 is refused with its line, UTF-16 by its name") {
  const TempDir dir;
  const std::string table =
      "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPIX\t0-7\nGPU1\tPIX\t X \t0-7\n";
  const std::string latin = dir.write("latin.txt",
                                      "# \xdc"
                                      "bersicht\n" +
                                          table)
                                .string();
  const std::string wide_text = [&] {
    std::string wide;
    for (const char c : table) {
      wide += {c, '\0'};
    }
    return wide;
  }();
  const std::string wide = dir.write("wide.txt", wide_text).string();
  const std::string marked = dir.write("marked.txt", "\xff\xfe" + wide_text).string();
  const std::string config = dir.write("config.json", "{\n\"model_type\": \"m\xe9\"}").string();
  const std::string plan = "plan --heads 8 --seq 8K --gpu l20 --topology ";

  const auto check = [](const std::string& line, const std::string& message) {
    spp::test::check_refused(sp_plan(line), 2, message);
  };
  check("topology import --gpu l20 " + latin,
        latin + ": is not UTF-8: byte 0xdc in line 1; save it as UTF-8");
  check(plan + latin, "--topology: '" + latin + "' is not UTF-8: byte 0xdc in line 1");
  for (const std::string& file : {wide, marked}) {
    check("topology import --gpu l20 " + file, file + ": is UTF-16, not UTF-8; save it as UTF-8");
    check(plan + file, "--topology: '" + file + "' is UTF-16, not UTF-8");
    check("model import " + file, "is UTF-16, not UTF-8");
  }
  check("model import " + config, config + ": is not UTF-8: byte 0xe9 in line 2");
}

TEST_CASE("NCCL's XML with entities of its own is refused in one line") {
  const TempDir dir;
  const std::string bomb =
      dir.write("bomb.xml",
                "<!DOCTYPE system [\n<!ENTITY a \"0x10de\">\n<!ENTITY b \"&a;&a;&a;&a;\">]>\n"
                "<system version=\"1\"><cpu numaid=\"&b;\"></cpu></system>\n")
          .string();
  spp::test::check_refused(sp_plan("topology import --gpu h100 " + bomb), 2,
                           bomb + ":1: its DOCTYPE defines entities or elements");
}

TEST_CASE("an all-to-all that was measured is said to be, on PCIe, too") {
  const TempDir dir;
  std::string tests =
      "# Collective test starting: alltoall_perf\n# nThread 1 nGpus 1\n"
      "# Using devices\n";
  for (int rank = 0; rank < 8; ++rank) {
    const std::string number = std::to_string(rank);
    tests += "#  Rank  " + number + " Group  0 Pid 400" + number + " on host0 device  " + number +
             " [0000:1" + number + ":00] NVIDIA L40S\n";
  }
  tests += "#       size  count  type  redop  root  time  algbw  busbw #wrong\n";
  for (std::int64_t size = 1'000'000, us = 200; size < 1'000'000'000; size *= 8, us *= 7) {
    tests += " " + std::to_string(size) + " 1 float none -1 " + std::to_string(us) + " 1.0 1.0 0 " +
             std::to_string(us) + " 1.0 1.0 0\n";
  }
  const std::string inside = dir.write("inside.txt", tests).string();
  const std::string mine = (dir.path() / "mine.json").string();
  const std::string import = "topology import --json --gpu l40s " + folder + "topo-l40s.txt ";

  CHECK(assumes(document_of(sp_plan(import)), "intra", "nothing here tells"));
  const Json measured = document_of(sp_plan(import + inside + " -o " + mine));
  CHECK(!assumes(measured, "intra", "nothing here tells"));
  CHECK(assumes(measured, "intra.measured", "alltoall on 8 ranks"));
  CHECK(!measured["intra"].contains("spread"));
  const Json checked = document_of(sp_plan("topology check " + mine));
  CHECK(!assumes(checked, "intra", "nothing here tells"));
  CHECK_THAT(checked["explanation"].dump(),
             ContainsSubstring("An all-to-all of the node reaches") &&
                 ContainsSubstring("a GPU (measured, "));
}
