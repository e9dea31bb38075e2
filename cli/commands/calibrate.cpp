// sp-plan calibrate: measures this machine with the runtime's own transports and kernels, and
// writes the profile that --profile reads.
#include "base/error.hpp"
#include "base/parse.hpp"
#include "cli/calibration.hpp"
#include "cli/command.hpp"
#include "cli/report_json.hpp"
#include "cli/request.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

namespace spp::cli::commands {
namespace {

constexpr std::array<OptionGroup, 0> groups{};
constexpr std::array options{
    Option{"comm", "inproc|mpi",
           "how ranks talk: threads of this process, or the processes that mpirun or srun started "
           "(default: mpi there, else inproc)"},
    Option{"gpus", "N", "ranks (default: the cores of this machine; with mpirun: all)"},
    Option{"suite", "links,collectives,attention,elementwise",
           "what to measure (default: all of it)"},
    Option{"kernels", "NAME", "attention kernels: onednn or reference (default: onednn)"},
    Option{"dtype", "bf16|fp16|fp32", "of attention (default: bf16)"},
    Option{"heads", "N", "query heads of the plans whose blocks are measured (default: 8)"},
    Option{"kv-heads", "N", "their KV heads; they divide --heads (default: as many)"},
    Option{"head-dim", "N", "their head dimension (default: 128)"},
    Option{"seq", "N,…", "their tokens over all ranks: 4096 or 4K,8K (default: 4K)"},
    Option{"mask", "causal|full|window:W", "which keys a query sees (default: causal)"},
    Option{"budget", "SECONDS", "time for all suites, about (default: 60)"},
    Option{"name", "NAME", "of the machine in the profile (default: this host's name)"},
};

/// All that was asked for.
struct Request {
  const runtime::TransportBackend* transport = nullptr;
  const runtime::AttentionBackend* kernels = nullptr;
  int ranks = 1;
  std::vector<std::string> suites;
  Problem problem;
  std::vector<std::int64_t> lengths;
  Seconds budget{};
  std::string name, file;

  /// What samples depend on: a calibration that was interrupted goes on if this is the same.
  [[nodiscard]] Json key() const {
    return {{"comm", transport->name},
            {"ranks", ranks},
            {"kernels", kernels->name},
            {"dtype", to_string(problem.dtype)},
            {"heads", problem.q_heads},
            {"kv_heads", problem.kv_heads},
            {"head_dim", problem.head_dim},
            {"mask", to_string(problem.mask)},
            {"seq", lengths}};
  }
};

template <class Backend>
const Backend& usable(const Backend& backend, const std::string& why_not, std::string_view option) {
  if (!why_not.empty()) {
    throw InputError(option, fmt::format("{}: {}", backend.name, why_not));
  }
  return backend;
}

int whole(const Arguments& arguments, std::string_view option, int otherwise, std::int64_t most) {
  const auto text = arguments.find(option);
  return text ? static_cast<int>(parse_int(*text, fmt::format("--{}", option), 1, most))
              : otherwise;
}

std::vector<std::string> read_suites(const Arguments& arguments) {
  std::vector<std::string> known(runtime::calibration_suites.begin(),
                                 runtime::calibration_suites.end());
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
  p.q_heads = whole(arguments, "heads", 8, most_heads);
  p.kv_heads = whole(arguments, "kv-heads", p.q_heads, most_heads);
  p.head_dim = whole(arguments, "head-dim", 128, most_head_dim);
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

std::string host_name() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return host[0] != '\0' ? host.data() : "this machine";
}

Request read_request(const Arguments& arguments) {
  arguments.expect_no_positionals();
  Request r;
  r.file = arguments.get("output", "");
  if (r.file.empty()) {
    throw InputError("--output", "missing: the file of the profile, as in -o machine.json");
  }
  const auto& mpi = runtime::transports::by_name("mpi", "--comm");
  const std::string comm = arguments.get("comm", mpi.launched_ranks() > 0 ? "mpi" : "inproc");
  const auto& transport = runtime::transports::by_name(comm, "--comm");
  r.transport = &usable(transport, transport.why_not(), "--comm");
  r.suites = read_suites(arguments);
  r.problem = read_problem(arguments);
  for (const std::string_view length : split(arguments.get("seq", "4K"), ',')) {
    r.lengths.push_back(parse_tokens(length, "--seq"));
  }
  const auto& kernels =
      runtime::attention_kernels::by_name(arguments.get("kernels", "onednn"), "--kernels");
  const bool chosen = arguments.has("kernels");
  r.kernels = &usable(kernels, kernels.why_not(r.problem.dtype), chosen ? "--kernels" : "--dtype");
  const int launched = transport.launched_ranks();
  constexpr int most_threads = 1024;
  r.ranks =
      whole(arguments, "gpus", launched > 0 ? launched : cores_of_this_process(), most_threads);
  if (launched > 0 && r.ranks != launched) {
    throw InputError("--gpus",
                     fmt::format("{}, but the launcher started {} ranks", r.ranks, launched));
  }
  const std::string budget = arguments.get("budget", "60");
  r.budget = Seconds(parse_double(budget, "--budget"));
  constexpr double most_seconds = 86400;
  if (!(r.budget.count() > 0) || r.budget.count() > most_seconds) {
    throw InputError("--budget",
                     fmt::format("'{}' is not between 0 and {} seconds", budget, most_seconds));
  }
  r.name = arguments.get("name", host_name());
  return r;
}

// ---- what an interrupted calibration has left
// -------------------------------------------------------------------------------------------

using SamplesBySuite = std::map<std::string, std::vector<runtime::Series>>;

std::string partial_file(const Request& r) { return r.file + ".partial"; }

void save(const Request& r, const SamplesBySuite& samples) {
  Json json = document("calibration");
  json["key"] = r.key();
  json["suites"] = Json::object();
  for (const auto& [suite, list] : samples) {
    Json& series = json["suites"][suite] = Json::array();
    for (const runtime::Series& s : list) {
      series.push_back(runtime::to_json(s));
    }
  }
  write_file(partial_file(r), to_text(json));
}

SamplesBySuite load(const Request& r) {
  SamplesBySuite samples;
  const std::string file = partial_file(r);
  if (!std::filesystem::exists(file)) {
    return samples;
  }
  const Json json = read_json(file);
  const JsonView view(json, file);
  expect_format(view, "sp-plan/calibration");
  if (view.at("key").value() != r.key()) {
    complain(fmt::format("warning: {} is of another calibration and is not used", file));
    return samples;
  }
  const JsonView suites = view.at("suites");
  for (const std::string& suite : r.suites) {
    if (const auto list = suites.find(suite)) {
      for (const JsonView& series : list->elements()) {
        samples[suite].push_back(runtime::read_series(series));
      }
    }
  }
  return samples;
}

/// The blocks of all plans over all lengths.
std::vector<runtime::AttentionBlock> blocks_of(const Request& r) {
  std::vector<runtime::AttentionBlock> blocks;
  for (const std::int64_t length : r.lengths) {
    Problem problem = r.problem;
    problem.seq = length;
    for (const runtime::AttentionBlock& block : blocks_of_plans(problem, r.ranks)) {
      if (std::ranges::find(blocks, block) == blocks.end()) {
        blocks.push_back(block);
      }
    }
  }
  return blocks;
}

/// What measures the suites that `done` lacks and adds them to it.
runtime::CalibrationRequest measurement(const Request& r, SamplesBySuite& done) {
  runtime::CalibrationRequest m;
  m.transport = r.transport;
  m.kernels = r.kernels;
  m.ranks = r.ranks;
  m.shape = r.problem;
  m.budget = r.budget;
  for (const std::string& suite : r.suites) {
    if (!done.contains(suite)) {
      m.suites.push_back(suite);
    }
  }
  if (std::ranges::find(r.suites, "attention") != r.suites.end()) {
    m.blocks = blocks_of(r);
  }
  m.ended = [&r, &done](const std::string& suite, const std::vector<runtime::Series>& series) {
    done[suite] = series;
    save(r, done);
  };
  return m;
}

void execute(const Arguments& arguments, Output& output) {
  const Request request = read_request(arguments);
  const bool first = request.transport->launched_rank() == 0;
  SamplesBySuite done = first ? load(request) : SamplesBySuite();
  ProfileInput input{.name = request.name,
                     .kernels = std::string(request.kernels->name),
                     .comm = std::string(request.transport->name),
                     .dtype = request.problem.dtype,
                     .calibration = {}};
  runtime::CalibrationRequest work = measurement(request, done);
  {
    Progress progress("measuring", output.quiet() || !first);
    const auto of = static_cast<std::int64_t>(work.suites.size());
    work.begins = [&](std::size_t suites, const std::string&) {
      progress.update(static_cast<std::int64_t>(suites), of);
    };
    input.calibration = runtime::calibrate(work);
  }
  if (!input.calibration.complete) {
    return;  // rank 0 tells
  }
  input.calibration.series = done;
  const Json profile = profile_document(input);
  output.result(profile, [&](const Style& style) {
    return profile_table(profile, input, style.color) +
           fmt::format("\nUse it: sp-plan plan --profile {} --heads {} --head-dim {} --seq {}\n",
                       request.file, request.problem.q_heads, request.problem.head_dim,
                       request.lengths.front());
  });
  std::error_code ec;
  std::filesystem::remove(partial_file(request), ec);
}

}  // namespace

extern const Command calibrate{
    .name = "calibrate",
    .summary = "measure this machine and write the profile that --profile reads",
    .description =
        "Measures messages between ranks, collectives, the attention blocks that plans of a shape "
        "run, and the kernels around them, with the transports and kernels that 'run' uses; fits "
        "the constants of the cost model to them, and writes both to a profile. Ranks are threads "
        "of this process, or the processes that mpirun or srun started, as many on every host. "
        "What was measured is kept in FILE.partial until all is done: an interrupted calibration "
        "goes on with the suites that are missing.",
    .arguments = "",
    .groups = groups,
    .options = options,
    .examples =
        "sp-plan calibrate --gpus 4 --heads 8 --head-dim 64 --seq 4K,8K --dtype fp32 -o here.json\n"
        "sp-plan plan --profile here.json --heads 8 --head-dim 64 --seq 8K --dtype fp32\n"
        "mpirun -np 4 sp-plan calibrate --suite links,collectives --dtype fp32 -o links.json",
    .run = execute,
};

}  // namespace spp::cli::commands
