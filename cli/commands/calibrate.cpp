// sp-plan calibrate: measures this machine with the runtime's own transports and kernels, and
// writes the profile that --profile reads; or reads what NCCL's tests measured. One command, hence
// one file.
#include "runtime/calibrate/calibrate.hpp"

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "base/parse.hpp"
#include "base/version.hpp"
#include "calibrate/nccl.hpp"
#include "calibrate/profile.hpp"
#include "cli/backend.hpp"
#include "cli/calibration_blocks.hpp"
#include "cli/calibration_checkpoint.hpp"
#include "cli/calibration_table.hpp"
#include "cli/command.hpp"
#include "cli/data.hpp"
#include "cli/interrupt.hpp"
#include "cli/limits.hpp"
#include "cli/report_json.hpp"
#include "cli/request.hpp"
#include "machine/profile.hpp"
#include "samples/statistics.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <optional>
#include <set>

namespace spp::cli::commands {
namespace {

constexpr std::array<OptionGroup, 0> calibrate_groups{};
constexpr std::array calibrate_options{
    comm_option,
    device_option,
    Option{"gpus", "N",
           "ranks (default: the cores of this machine; on GPUs as many as there are, 8 on one; "
           "under a launcher: all)"},
    ranks_per_gpu_option,
    emulate_link_option,
    Option{"suite", "links,collectives,attention,elementwise,layer",
           "what to measure (default: all of it)"},
    kernels_option,
    Option{"dtype", "bf16|fp16|fp32", "of attention (default: bf16)"},
    Option{"heads", "N", "query heads of the plans whose blocks are measured (default: 8)"},
    Option{"kv-heads", "N", "their KV heads; they divide --heads (default: as many)"},
    Option{"head-dim", "N", "their head dimension (default: 128)"},
    Option{"value-dim", "N", "that of their values and outputs (default: --head-dim)"},
    Option{"seq", "N,…", "their tokens over all ranks: 4096 or 4K,8K (default: 4K)"},
    Option{"mask", "causal|full|window:W", "which keys a query sees (default: causal)"},
    Option{"budget", "SECONDS",
           "time for all suites, about (default: 300, on GPUs 360: kernels are compiled by shape)"},
    timeout_option,
    Option{"name", "NAME", "of the machine in the profile (default: this host's name)"},
    Option{"topology", "NAME|FILE",
           "which machine these GPUs are in: its sockets, NICs and nominal rates stay, what is "
           "measured takes the place of the rest (needed where GPUs talk over PCIe)"},
    Option{"nccl-tests", "FILE,…",
           "measure nothing: read links of --topology from the output of NCCL's performance tests "
           "(all_gather_perf, reduce_scatter_perf, alltoall_perf, sendrecv_perf; text or JSON)"},
};

/// All that was asked for.
struct Request {
  Device device = Device::cpu;
  Communication comm;
  const runtime::AttentionBackend* kernels = nullptr;       // of the host
  std::unique_ptr<runtime::device::DeviceEngines> engines;  // GPUs
  std::string kernel_name;
  int ranks = 1;
  int ranks_per_node = 0;  // of emulated nodes
  std::vector<std::string> suites;
  Problem problem;
  std::vector<std::int64_t> lengths;
  Seconds budget{}, timeout{};
  std::string name, file, topology, emulated_links;
  std::vector<std::string> warnings;

  /// What samples depend on: a calibration that was interrupted goes on if this is the same.
  /// `places`: where each rank runs.
  [[nodiscard]] Json key(const std::vector<std::string>& places) const {
    Json key = {{"program", fmt::format("{} ({})", version(), commit())},
                {"places", places},
                {"libraries", runtime::library_versions()},
                {"comm", comm.name},
                {"ranks", ranks},
                {"kernels", kernel_name},
                {"dtype", to_string(problem.dtype)},
                {"heads", problem.q_heads},
                {"kv_heads", problem.kv_heads},
                {"head_dim", problem.head_dim},
                {"mask", to_string(problem.mask)},
                {"seq", lengths}};
    if (problem.value_dim > 0) {
      key["value_dim"] = problem.value_dim;
    }
    if (engines != nullptr) {
      const DeviceReport gpus = engines->report();
      key["gpu"] = gpus.gpu;
      key["driver"] = gpus.driver;
      key["ranks_per_gpu"] = gpus.ranks_per_gpu;
      key["emulated_links"] = emulated_links;
    }
    return key;
  }
};

std::vector<std::string> read_suites(const Arguments& arguments) {
  std::vector<std::string> known(calibration_suites.begin(), calibration_suites.end());
  const auto text = arguments.find("suite");
  if (!text) {
    return known;
  }
  std::set<std::string> wanted;
  for (const std::string_view word : split(*text, ',')) {
    if (std::ranges::find(known, word) == known.end()) {
      throw InputError("--suite",
                       fmt::format("unknown suite '{}' ({})", word, fmt::join(known, ", ")));
    }
    wanted.emplace(word);
  }
  std::erase_if(known, [&](const std::string& suite) { return !wanted.contains(suite); });
  return known;
}

Problem read_problem(const Arguments& arguments) {
  constexpr std::int64_t most_heads = 4096;
  constexpr std::int64_t most_head_dim = 2048;
  Problem p;
  p.q_heads = whole(arguments, "heads", 8, 1, most_heads);
  p.kv_heads = whole(arguments, "kv-heads", p.q_heads, 1, most_heads);
  p.head_dim = whole(arguments, "head-dim", 128, 1, most_head_dim);
  const int value_dim = whole(arguments, "value-dim", p.head_dim, 1, most_head_dim);
  p.value_dim = value_dim == p.head_dim ? 0 : value_dim;
  if (p.q_heads % p.kv_heads != 0) {
    throw InputError("--kv-heads",
                     fmt::format("{} does not divide --heads {}", p.kv_heads, p.q_heads));
  }
  p.mask = parse_mask(arguments.get("mask", "causal"), "--mask");
  p.dtype = parse_dtype(arguments.get("dtype", "bf16"), "--dtype");
  return p;
}

int cores_of_this_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

/// Ranks that run when --gpus does not say: all that the launcher started; a core for each; on GPUs
/// one for each, and on a single GPU enough to make a machine.
int usual_ranks(const Arguments& arguments, const Request& r) {
  constexpr int on_one_gpu = 8;
  if (const int launched = r.comm.transport->launched_ranks(); launched > 0) {
    return launched;
  }
  if (r.device == Device::cpu) {
    return cores_of_this_process();
  }
  const int gpus = runtime::device::gpu_count();
  const bool alone = r.comm.name == "nccl";
  return gpus * whole(arguments, "ranks-per-gpu", gpus == 1 && !alone ? on_one_gpu : 1);
}

void read_ranks(const Arguments& arguments, Request& r) {
  r.ranks = whole(arguments, "gpus", usual_ranks(arguments, r), 1, most_threads);
  const int launched = r.comm.transport->launched_ranks();
  if (launched > 0 && r.ranks != launched) {
    throw InputError("--gpus",
                     fmt::format("{}, but the launcher started {} ranks", r.ranks, launched));
  }
}

/// Kernels, and the engines of GPUs.
void choose_kernels(const Arguments& arguments, Request& r) {
  if (r.device == Device::cpu) {
    r.kernels = &kernels_of(arguments, r.problem.dtype, r.warnings);
    r.kernel_name = r.kernels->name;
    return;
  }
  const auto wanted = device_options(arguments, r.comm, r.problem, r.warnings);
  if (wanted.network) {
    r.ranks_per_node = std::min(r.ranks, wanted.network->ranks_per_node);
    if (r.ranks % r.ranks_per_node != 0) {
      throw InputError("--emulate-link", fmt::format("{} ranks a node do not divide {} ranks",
                                                     r.ranks_per_node, r.ranks));
    }
  }
  r.kernel_name = wanted.kernels;
  r.engines = runtime::device::make_engines(wanted, r.ranks, *r.comm.transport);
  calibrate::expect_describable(r.engines->report(), r.ranks, r.topology, topologies());
}

std::string file_of(const Arguments& arguments) {
  std::string file = arguments.get("output", "");
  if (file.empty()) {
    throw InputError("--output", "missing: the file of the profile, as in -o machine.json");
  }
  return file;
}

/// A window longer than a sequence is that sequence's causal mask, which is measured as such.
void expect_seen(const Request& r) {
  const std::int64_t shortest = std::ranges::min(r.lengths);
  if (r.problem.mask.kind == MaskKind::window && r.problem.mask.window > shortest) {
    throw InputError("--mask", fmt::format("window:{} is longer than the sequence of {} tokens; "
                                           "expected causal, or less",
                                           r.problem.mask.window, shortest));
  }
}

Request read_request(const Arguments& arguments) {
  Request r;
  r.file = file_of(arguments);
  r.device = device_of(arguments);
  r.comm = communication_of(arguments, r.device, r.warnings);
  r.suites = read_suites(arguments);
  r.problem = read_problem(arguments);
  const std::string lengths = arguments.get("seq", "4K");
  for (const std::string_view length : split(lengths, ',')) {
    r.lengths.push_back(parse_tokens(length, "--seq"));
  }
  r.problem.seq = r.lengths.front();
  r.budget = Seconds(seconds(arguments, "budget", r.device == Device::cpu ? "300" : "360"));
  r.timeout = timeout_of(arguments);
  r.name = arguments.get("name", host_name());
  r.topology = arguments.get("topology", "");
  r.emulated_links = arguments.get("emulate-link", "");
  if (!r.topology.empty() && r.device == Device::cpu) {
    throw InputError("--topology",
                     "describes a machine of GPUs: add --device cuda or --nccl-tests");
  }
  expect_seen(r);
  read_ranks(arguments, r);
  const auto between_ranks = [](const std::string& suite) {
    return suite == "links" || suite == "collectives";
  };
  if (r.ranks == 1 && std::ranges::all_of(r.suites, between_ranks)) {
    throw InputError("--suite", fmt::format("{}: one rank sends nothing, so nothing would be "
                                            "measured; expected other suites, or more --gpus",
                                            fmt::join(r.suites, ",")));
  }
  choose_kernels(arguments, r);
  return r;
}

/// What makes predictions worse than they could be. `blocks`: those that were to be measured.
void warn_of_attention(const std::vector<Series>& series,
                       const std::vector<AttentionBlock>& blocks) {
  constexpr double often = 0.25;  // medians pass over less
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const auto planned = std::ranges::count(blocks, phase, &AttentionBlock::phase);
    const auto measured = std::ranges::count_if(series, [&](const Series& s) {
      return s.what == "attention" && s.block && s.block->phase == phase;
    });
    if (measured < planned) {
      complain(fmt::format(
          "warning: {} of the {} {} attention blocks of plans were left out for want of time or "
          "memory and {}: a larger --budget measures more",
          planned - measured, planned, phase == Phase::forward ? "forward" : "backward",
          measured > 0 ? "will be interpolated" : "what they take is assumed"));
    }
  }
  for (const Series& s : series) {
    if (const double part = s.what == "pace" ? slow_part(s.seconds) : 0; part > often) {
      complain(
          fmt::format("warning: in {:.0f} % of the samples of its pace this machine computed "
                      "more than 10 % slower than usual: other work, or a clock that changes; "
                      "times of kernels are scaled to the usual pace, those of messages are not",
                      100 * part));
    }
  }
}

/// The blocks of all plans over all lengths.
std::vector<AttentionBlock> blocks_of(const Request& r) {
  std::vector<AttentionBlock> blocks;
  for (const std::int64_t length : r.lengths) {
    Problem problem = r.problem;
    problem.seq = length;
    for (const AttentionBlock& block : blocks_of_plans(problem, r.ranks)) {
      if (std::ranges::find(blocks, block) == blocks.end()) {
        blocks.push_back(block);
      }
    }
  }
  return blocks;
}

/// What measures; which suites, and where their samples go, is still to be said.
runtime::CalibrationRequest measurement(const Request& r) {
  runtime::CalibrationRequest m;
  m.transport = r.comm.transport;
  m.kernels = r.kernels;
  m.engines = r.engines.get();
  m.ranks = r.ranks;
  m.ranks_per_node = r.ranks_per_node;
  m.shape = r.problem;
  m.budget = r.budget;
  m.timeout = r.timeout;
  if (r.engines != nullptr) {
    constexpr std::int64_t caches = 3;  // full of other things, and nothing is left of the operands
    const DeviceReport gpu = r.engines->report();
    m.ranks_per_device = gpu.ranks_per_gpu;
    m.split_devices = gpu.split || gpu.ranks_per_gpu == 1;
    m.cold = gpu.l2.value() > 0 ? caches * gpu.l2.value() : m.cold;
  }
  m.suites = r.suites;
  if (std::ranges::find(r.suites, "attention") != r.suites.end()) {
    m.blocks = blocks_of(r);
  }
  return m;
}

/// Links of a described machine, as NCCL's tests measured them.
void read_nccl_tests(const Arguments& arguments, Output& output) {
  for (const std::string_view option :
       {"comm", "device", "gpus", "ranks-per-gpu", "emulate-link", "suite", "kernels", "dtype",
        "heads", "kv-heads", "head-dim", "value-dim", "seq", "mask", "budget", "timeout"}) {
    if (arguments.has(option)) {
      throw InputError(fmt::format("--{}", option),
                       "given together with --nccl-tests, which measures nothing");
    }
  }
  const auto topology = arguments.find("topology");
  if (!topology) {
    throw InputError("--topology", "missing: the machine whose links --nccl-tests measured");
  }
  const std::string file = file_of(arguments);
  const std::string files = arguments.get("nccl-tests", "");
  const calibrate::NcclProfile profile = calibrate::profile_of_nccl_tests(
      split(files, ','), *topology, arguments.get("name", *topology), topologies());
  for (const std::string& warning : profile.warnings) {
    complain(fmt::format("warning: {}", warning));
  }
  output.result(profile.document, [&](const Style& style) {
    return nccl_table(profile, style.color) +
           fmt::format("\nUse it: sp-plan plan --topology {} --profile {} …\n", *topology, file);
  });
}

void calibrate_command(const Arguments& arguments, Output& output) {
  arguments.expect_no_positionals();
  if (arguments.has("nccl-tests")) {
    read_nccl_tests(arguments, output);
    return;
  }
  Request request = read_request(arguments);
  const bool first = request.comm.transport->launched_rank() == 0;
  runtime::CalibrationRequest work = measurement(request);
  std::vector<SuiteBudget> budgets;
  for (const std::string& suite : work.suites) {
    budgets.push_back({.suite = suite, .budget = runtime::budget_of(suite, work)});
  }
  Checkpoint done(request.file + ".partial", std::move(budgets));
  calibrate::ProfileInput input;
  input.name = request.name;
  input.kernels = request.kernel_name;
  input.comm = request.comm.name;
  input.dtype = request.problem.dtype;
  input.topology = request.topology;
  input.emulated_links = request.emulated_links;
  input.cpu = runtime::cpu_model();
  input.libraries = runtime::library_versions();
  {
    std::optional<LastWords> words;
    const auto tell_what_is_kept = [&] {
      if (first) {
        words.reset();
        words.emplace(done.keeps_any()
                          ? fmt::format("interrupted; suites that were done are kept in "
                                        "{}.partial, and the same command goes on",
                                        request.file)
                          : "interrupted before a suite was done; nothing is kept");
      }
    };
    tell_what_is_kept();
    Progress progress("measuring", output.quiet() || !first);
    double of = 0;
    work.remaining = [&](const std::vector<std::string>& places) {
      std::vector<std::string> suites = done.begin(request.key(places));
      tell_what_is_kept();
      of = static_cast<double>(suites.size());
      return suites;
    };
    work.ended = [&](const std::string& suite, const std::vector<Series>& series) {
      done.add(suite, series);
      tell_what_is_kept();
    };
    work.begins = [&](std::size_t suites, const std::string&) {
      progress.update(static_cast<double>(suites), of);
    };
    input.calibration = runtime::calibrate(work);
  }
  if (!input.calibration.complete) {
    return;  // rank 0 tells
  }
  std::ranges::copy(input.calibration.warnings, std::back_inserter(request.warnings));
  if (request.engines != nullptr) {
    input.device = request.engines->report();
    input.catalog = &topologies();
    std::ranges::copy(request.engines->warnings(), std::back_inserter(request.warnings));
  }
  for (const std::string& warning : request.warnings) {
    complain(fmt::format("warning: {}", warning));
  }
  SamplesBySuite& series = input.calibration.series = done.samples();
  if (const auto attention = series.find("attention"); attention != series.end()) {
    warn_of_attention(attention->second, work.blocks);
  }
  const Json profile = calibrate::profile_document(input);
  (void)read_profile(JsonView(profile, request.file));  // else samples stay for another start
  output.result(profile, [&](const Style& style) {
    return profile_table(profile, input, style.color) +
           fmt::format(
               "\nUse it: sp-plan plan --profile {} --heads {}{} --head-dim {}{}{} --seq {} "
               "--dtype {}\n",
               request.file, request.problem.q_heads,
               request.problem.kv_heads != request.problem.q_heads
                   ? fmt::format(" --kv-heads {}", request.problem.kv_heads)
                   : "",
               request.problem.head_dim,
               request.problem.value_dim > 0
                   ? fmt::format(" --value-dim {}", request.problem.value_dim)
                   : "",
               request.problem.mask.kind != MaskKind::causal
                   ? fmt::format(" --mask {}", to_string(request.problem.mask))
                   : "",
               request.lengths.front(), to_string(request.problem.dtype));
  });
  done.end();
}

}  // namespace

extern const Command calibrate{
    .name = "calibrate",
    .summary = "measure this machine and write the profile that --profile reads",
    .description =
        "Measures messages between ranks, collectives, the attention blocks that plans of a shape "
        "run, the kernels around them, and those of a layer (GEMMs, norms, heads, activations, "
        "sums, experts) and of a step (embedding, loss, Adam), with the transports and kernels "
        "that 'run' uses; fits "
        "the constants of the cost model to them, and writes both to a profile. Ranks are threads "
        "of this process, which may share a GPU, or the processes that mpirun, srun or torchrun "
        "started, as many on every host. "
        "What was measured is kept in FILE.partial until all is done: an interrupted calibration "
        "goes on with the suites that are missing; one that Ctrl-C ends says so.",
    .arguments = "",
    .groups = calibrate_groups,
    .options = calibrate_options,
    .examples =
        "sp-plan calibrate --gpus 4 --heads 8 --head-dim 64 --seq 4K,8K --dtype fp32 -o here.json\n"
        "sp-plan plan --profile here.json --heads 8 --head-dim 64 --seq 8K --dtype fp32\n"
        "mpirun -np 4 sp-plan calibrate --suite links,collectives --dtype fp32 -o links.json\n"
        "sp-plan calibrate --device cuda --heads 32 --kv-heads 8 --seq 32K -o gpu.json\n"
        "mpirun -np 8 sp-plan calibrate --device cuda --topology dgx-h100 --heads 32 --kv-heads 8 "
        "--seq 128K -o node.json\n"
        "sp-plan calibrate --nccl-tests all_gather.txt,alltoall.txt --topology dgx-h100 -o "
        "links.json",
    .run = calibrate_command,
    .as_ranks = true,
};

}  // namespace spp::cli::commands
