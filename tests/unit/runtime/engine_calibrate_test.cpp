// Calibration through engines: the host's engine stands for any. That GPUs' go the same way is
// shown in tests/device/.
#include "runtime/calibrate/layer_probes.hpp"
#include "runtime/calibrate/probe_schedule.hpp"
#include "runtime/host_engine.hpp"
#include "tests/support/calibrations.hpp"

#include <map>

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

const AttentionBackend& reference() { return attention_kernels::by_name("reference", "test"); }

Calibration calibrate_engine(CalibrationRequest request) {
  HostEngines engines(&reference());
  request.engines = &engines;
  return runtime::calibrate(request);
}

}  // namespace

TEST_CASE("what engines are timed with is what the host is timed with") {
  CalibrationRequest request = small_calibration(2);
  request.suites = {"links", "collectives"};
  request.largest_message = 1 << 12;  // the host's `cpu` series wants larger messages
  const Calibration of_engine = calibrate_engine(request);
  request.kernels = &reference();
  const Calibration of_host = runtime::calibrate(request);
  for (const std::string& suite : request.suites) {
    CHECK(labels_of(of_engine, suite) == labels_of(of_host, suite));
  }
}

TEST_CASE("every suite gives series, whatever the number of ranks") {
  for (const int ranks : {1, 2, 4}) {
    INFO(ranks << " ranks");
    const Calibration calibration = calibrate_engine(small_calibration(ranks));
    check_samples(calibration);
    CHECK(calibration.series.at("links").empty() == (ranks == 1));
    CHECK(calibration.series.at("collectives").empty() == (ranks == 1));
    CHECK_FALSE(calibration.series.at("attention").empty());
    std::map<std::string, int> kernels;
    for (const Series& s : calibration.series.at("elementwise")) {
      ++kernels[s.what];
    }
    for (const char* what : {"merge", "accumulate", "cast", "copy", "row_dot", "op"}) {
      CHECK(kernels[what] == 1);
    }
    std::set<GemmKind> gemms;
    std::map<std::string, int> rows;
    for (const Series& s : calibration.series.at("layer")) {
      if (s.gemm) {
        gemms.insert(s.gemm->kind);
      } else {
        ++rows[s.what];
      }
    }
    CHECK(gemms.size() == 3);
    for (const RowFunction& function : row_functions()) {
      CHECK(rows[to_string(function)] == 1);
    }
  }
}

TEST_CASE("the smallest block is always measured, and peaks of all types that kernels can do") {
  CalibrationRequest request = small_calibration(2);
  request.suites = {"attention"};
  request.budget = Seconds(1e-6);
  const Calibration calibration = calibrate_engine(request);
  check_samples(calibration);
  std::multiset<std::string> peaks;
  std::vector<AttentionBlock> blocks;
  for (const Series& s : calibration.series.at("attention")) {
    REQUIRE(s.block.has_value());
    if (s.what == "peak") {
      peaks.insert(std::string(to_string(s.block->dtype)));
    } else {
      blocks.push_back(*s.block);
    }
  }
  CHECK(peaks == std::multiset<std::string>{"bf16", "fp16", "fp32"});
  REQUIRE(blocks.size() == 1);
  CHECK(blocks.front() == small_block(Phase::forward, 8, DType::bf16));
}

TEST_CASE("all blocks are measured where there is time") {
  CalibrationRequest request = small_calibration(1);
  request.suites = {"attention"};
  request.budget = Seconds(30);  // few of which are taken, unless others take the processor
  const Calibration calibration = calibrate_engine(request);
  for (const AttentionBlock& block : request.blocks) {
    CHECK(std::ranges::any_of(calibration.series.at("attention"),
                              [&](const Series& s) { return s.block == block; }));
  }
}

TEST_CASE("a layer's kernels are those that the host is timed with, as far as there is time") {
  CalibrationRequest request = small_calibration(1);
  request.suites = {"layer"};
  request.budget = Seconds(1);
  const auto kernels = [](const Calibration& calibration) {
    std::set<std::tuple<std::string, double, std::string>> all;
    for (const Series& s : calibration.series.at("layer")) {
      all.emplace(s.what, s.size, s.gemm ? to_json(s).at("gemm").dump() : "");
    }
    return all;
  };
  const auto of_engine = kernels(calibrate_engine(request));
  request.kernels = &reference();
  const auto of_host = kernels(runtime::calibrate(request));
  // Engines take larger operands, the host the smallest of all: what both have, they have alike.
  CHECK(of_host.size() >= 3 + row_functions().size());
  CHECK(std::ranges::includes(of_engine, of_host));
}

TEST_CASE("GEMMs are timed from few rows to square ones, of every kind, where operands have room") {
  const Crew crew{.works = {true}, .active = 1};
  std::size_t before = 0;
  for (const std::int64_t largest :
       {std::int64_t{1}, std::int64_t{1} << 16, std::int64_t{16} << 20}) {
    const std::vector<Probe> probes = gemm_probes(DType::fp32, crew, largest);
    CHECK(probes.size() % 3 == 0);
    CHECK(probes.size() > before);
    before = probes.size();
    CHECK(std::ranges::is_sorted(
        probes, {}, [](const Probe& probe) { return probe.series.gemm->shape.flops().value(); }));
    for (const Probe& probe : probes) {
      const LayerKernel kernel = kernel_of(*probe.series.gemm);
      CHECK((largest == 1 || std::ranges::all_of(kernel.reads, [&](const LayerOperand& operand) {
               return operand.bytes() <= largest;
             })));
    }
  }
}

TEST_CASE("kernels of a step look words up that are there, and update in place") {
  const Problem shape{.q_heads = 2, .kv_heads = 2, .head_dim = 16, .dtype = DType::bf16};
  const Crew crew{.works = {true}, .active = 1};
  for (const Probe& probe : row_probes(shape, crew, 1 << 20)) {
    const RowWork& work = std::get<RowWork>(probe.work.front());
    const LayerKernel kernel = kernel_of(work, shape);
    INFO(probe.series.what << " " << probe.series.size);
    for (const LayerOperand& operand : kernel.reads) {
      if (operand.is_words) {
        CHECK(operand.dtype == DType::fp32);
        CHECK(operand.middle - operand.reach >= 0);
      }
    }
    for (const LayerOperand& operand : kernel.writes) {
      CHECK((operand.in_place >= 0) ==
            (work.function.function == LayerFunction::adam && operand.dtype == DType::fp32));
      CHECK((operand.in_place < 0 ||
             kernel.reads[static_cast<std::size_t>(operand.in_place)].ref == operand.ref));
    }
    CHECK(work.rows * work.width * 4 <= 1 << 18);
  }
}

TEST_CASE("emulated nodes are nodes") {
  CalibrationRequest request = small_calibration(4);
  request.suites = {"links", "collectives"};
  request.ranks_per_node = 2;
  const Calibration calibration = calibrate_engine(request);
  check_samples(calibration);
  CHECK(calibration.hosts.nodes() == 2);
  CHECK(calibration.hosts.per_node == 2);
  CHECK(calibration.hosts.nodes_on_cores == 2);
  std::set<std::string> links;
  for (const Series& s : calibration.series.at("links")) {
    links.insert(s.scope + " " + s.what);
  }
  CHECK(links == std::set<std::string>{"intra ring", "intra pair", "intra one_way", "inter ring",
                                       "inter pair", "inter one_way", "inter pairs"});
  request.ranks_per_node = 3;
  CHECK_THROWS_AS(calibrate_engine(request), InputError);
}

TEST_CASE("kernels are timed on all ranks of a device and on one alone") {
  CalibrationRequest request = small_calibration(4);
  request.suites = {"elementwise"};
  request.ranks_per_device = 2;
  const Calibration calibration = calibrate_engine(request);
  check_samples(calibration);
  std::map<std::string, std::set<int>> active;
  for (const Series& s : calibration.series.at("elementwise")) {
    active[s.what].insert(s.active);
  }
  for (const auto& [what, ranks] : active) {
    INFO(what);
    CHECK(ranks == (what == "op" ? std::set<int>{2} : std::set<int>{1, 2}));
  }
}

TEST_CASE("sizes of probes are the bytes that ops of their schedule move") {
  const CalibrationRequest request = small_calibration(4);
  const Crew crew{.works = std::vector<bool>(4, true), .active = 4};
  std::vector<Probe> probes = link_probes({.ranks = 4, .per_node = 2}, request.largest_message);
  std::ranges::move(collective_probes({.ranks = 4, .per_node = 2}, request.largest_message),
                    std::back_inserter(probes));
  std::ranges::move(kernel_probes(request.shape, crew), std::back_inserter(probes));
  std::ranges::move(row_probes(request.shape, crew, request.largest_message),
                    std::back_inserter(probes));
  std::ranges::move(gemm_probes(DType::bf16, crew, 1 << 16), std::back_inserter(probes));
  const ProbeSchedule planned = schedule_of(
      probes, {.shape = request.shape, .ranks = 4, .ranks_per_device = 4, .cold = request.cold});
  const std::vector<StoredProgram> programs = store(planned.schedule);
  for (const StoredProgram& program : programs) {
    const Shapes shapes{.problem = &planned.schedule.contract.attention,
                        .buffers = program.buffers,
                        .rank = program.rank};
    for (std::size_t i = 0; i < probes.size(); ++i) {
      const TimedOps& timed = planned.timed[program.rank.index()][i];
      for (std::size_t k = 0; k < static_cast<std::size_t>(timed.times); ++k) {
        const OpBody& body = program.ops[static_cast<std::size_t>(timed.first) + k].op.body;
        const Bytes bytes = is_transfer(body) ? sent_bytes(std::get<Transfer>(body), shapes)
                                              : touched_bytes(std::get<Kernel>(body), shapes);
        const auto* exchange = op_if<Exchange>(body);
        const bool only_receives = exchange != nullptr && !exchange->to.valid();
        CHECK(bytes.as_double() == (only_receives ? 0 : probes[i].series.size));
      }
    }
  }
}
