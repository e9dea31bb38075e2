#include "cli/backend.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"
#include "cli/command.hpp"
#include "runtime/comm/launcher.hpp"

namespace spp::cli {

using runtime::device::DeviceOptions;

namespace {

/// A back end that cannot do its work here, which is no mistake of the caller.
[[noreturn]] void not_here(std::string_view option, std::string_view value,
                           const std::string& why_not) {
  throw Refusal(ExitCode::failed, fmt::format("{} {}: {}", option, value, why_not));
}

/// Ranks as threads of one process, where a launcher has started several: each would run them all.
void expect_one_process(Device device) {
  const runtime::TransportBackend* launcher = launcher_of("", device);
  if (launcher != nullptr && launcher->launched_ranks() > 1) {
    const bool mpi = launcher->name == "mpi";
    throw InputError(
        "--comm",
        fmt::format(
            "inproc has all ranks in one process, and {} started {} processes: leave it out, "
            "or {}",
            mpi ? "mpirun or srun" : "a launcher (WORLD_SIZE)", launcher->launched_ranks(),
            mpi ? "start one" : "unset RANK and start one"));
  }
}

}  // namespace

Device device_of(const Arguments& arguments) {
  const std::string name = arguments.get("device", "cpu");
  if (name == "cpu") {
    for (const std::string_view option : {"ranks-per-gpu", "emulate-link"}) {
      if (arguments.has(option)) {
        throw InputError(fmt::format("--{}", option), "is for GPUs: add --device cuda");
      }
    }
    return Device::cpu;
  }
  if (name != "cuda") {
    throw InputError("--device", fmt::format("unknown device '{}' (cpu or cuda)", name));
  }
  if (const std::string why_not = runtime::device::why_not_cuda(); !why_not.empty()) {
    not_here("--device", name, why_not);
  }
  return Device::cuda;
}

const runtime::TransportBackend* launcher_of(std::string_view comm, Device device) {
  const auto& mpi = runtime::transports::by_name("mpi", "--comm");
  const auto& tcp = runtime::transports::by_name("tcp", "--comm");  // torchrun's variables
  const bool any = comm.empty() || comm == "nccl";
  if ((any || comm == "mpi") && mpi.launched()) {
    return &mpi;
  }
  // One process that torchrun started may have all ranks of CPUs as threads.
  const bool by_tcp =
      comm == "tcp" || (any && (device == Device::cuda || tcp.launched_ranks() != 1));
  return by_tcp && tcp.launched() ? &tcp : nullptr;
}

Launched launched_by(const std::vector<std::string>& words) {
  const auto value_of = [&](std::string_view option) -> std::string {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == option && i + 1 < words.size()) {
        return words[i + 1];
      }
      if (words[i].starts_with(option) && words[i].substr(option.size()).starts_with('=')) {
        return words[i].substr(option.size() + 1);
      }
    }
    return "";
  };
  const Device device = value_of("--device") == "cuda" ? Device::cuda : Device::cpu;
  const runtime::TransportBackend* launcher = launcher_of(value_of("--comm"), device);
  return launcher == nullptr
             ? Launched{}
             : Launched{.ranks = launcher->launched_ranks(), .rank = launcher->launched_rank()};
}

Communication communication_of(const Arguments& arguments, Device device,
                               std::vector<std::string>& warnings) {
  const runtime::TransportBackend* launcher = launcher_of(arguments.get("comm", ""), device);
  const std::string_view own = launcher == nullptr      ? "inproc"
                               : device == Device::cuda ? "nccl"
                                                        : launcher->name;
  Communication choice{.name = arguments.get("comm", own)};
  if (choice.name == "inproc") {
    expect_one_process(device);
  }
  if (choice.name != "nccl") {
    choice.transport = &runtime::transports::by_name(choice.name, "--comm");
  } else if (device == Device::cpu) {
    throw InputError("--comm", "nccl moves memory of GPUs: add --device cuda");
  } else if (const std::string why_not = runtime::device::why_not_nccl(); !why_not.empty()) {
    not_here("--comm", "nccl", why_not);
  } else {
    choice.transport =
        launcher != nullptr ? launcher : &runtime::transports::by_name("inproc", "--comm");
  }
  if (choice.name == "mpi" && device == Device::cuda) {
    throw InputError("--comm",
                     "mpi moves memory of the host: with --device cuda use nccl, or inproc "
                     "for ranks that share a GPU");
  }
  if (const std::string why_not = choice.transport->why_not(); !why_not.empty()) {
    throw InputError("--comm", fmt::format("{}: {}", choice.name, why_not));
  }
  if (const int tasks = runtime::srun_tasks();
      tasks > 1 && choice.transport->launched_ranks() == 0) {
    warnings.push_back(
        fmt::format("srun started {} tasks that nothing joins: each runs all ranks on its own "
                    "(srun --mpi=pmix joins them for Open MPI, --mpi=pmi2 for MPICH)",
                    tasks));
  }
  return choice;
}

const runtime::AttentionBackend& kernels_of(const Arguments& arguments, DType dtype,
                                            std::vector<std::string>& warnings) {
  if (const auto name = arguments.find("kernels")) {
    const auto& kernels = runtime::attention_kernels::by_name(*name, "--kernels");
    if (const std::string why_not = kernels.why_not(dtype); !why_not.empty()) {
      throw InputError("--kernels", fmt::format("{}: {}", *name, why_not));
    }
    return kernels;
  }
  const auto& fast = runtime::attention_kernels::by_name("onednn", "--kernels");
  if (const std::string why_not = fast.why_not(dtype); !why_not.empty()) {
    warnings.push_back(
        fmt::format("onednn kernels: {}; reference kernels ran, which are slow on "
                    "purpose",
                    why_not));
    return runtime::attention_kernels::by_name("reference", "--kernels");
  }
  return fast;
}

Seconds timeout_of(const Arguments& arguments) { return Seconds(whole(arguments, "timeout", 120)); }

int whole(const Arguments& arguments, std::string_view option, int otherwise, std::int64_t least,
          std::int64_t most) {
  const auto text = arguments.find(option);
  return text ? static_cast<int>(parse_int(*text, fmt::format("--{}", option), least, most))
              : otherwise;
}

DeviceOptions device_options(const Arguments& arguments, const Communication& comm,
                             const Problem& problem, std::vector<std::string>& warnings) {
  DeviceOptions wanted{.communication = comm.name == "nccl"
                                            ? runtime::device::Communication::nccl
                                            : runtime::device::Communication::inproc,
                       .kernels = arguments.get("kernels", ""),
                       .ranks_per_gpu = whole(arguments, "ranks-per-gpu", 0),
                       .network = std::nullopt};
  if (const auto links = arguments.find("emulate-link")) {
    wanted.network = runtime::parse_network(*links, "--emulate-link");
  }
  for (const std::string_view option : {"ranks-per-gpu", "emulate-link"}) {
    if (wanted.communication == runtime::device::Communication::nccl && arguments.has(option)) {
      throw InputError(fmt::format("--{}", option),
                       "is for ranks that share GPUs: --comm inproc has them, nccl has not");
    }
  }
  wanted.kernels = runtime::device::choose_kernels(wanted, problem, warnings);
  return wanted;
}

}  // namespace spp::cli
