#include "runtime/device/cuda/engines.hpp"

#include "base/error.hpp"
#include "runtime/device/cuda/executor.hpp"
#include "runtime/device/cuda/nccl.hpp"
#include "runtime/device/cuda/nccl_library.hpp"
#include "runtime/device/cuda/nccl_plan.hpp"
#include "runtime/kernels/cudnn/sdpa.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace spp::runtime::cuda {
namespace {

class CudaEngine final : public Engine {
 public:
  struct Setup {
    const DeviceAttentionBackend& attention;
    const StreamSource* streams;
    InprocWorld& world;
  };

  CudaEngine(const EngineParts& parts, std::unique_ptr<DeviceCommunicator> communicator,
             const Setup& setup)
      : world_(setup.world),
        communicator_(std::move(communicator)),
        forward_(make(parts, parts.forward, setup)),
        backward_(parts.backward != nullptr ? make(parts, *parts.backward, setup) : nullptr) {}

  void load(Phase phase) override {
    PhaseOnDevice& p = of(phase);
    copy_role(p.host.program, BufferRole::input, p.host.memory, *p.memory, p.executor.stream());
  }
  Execution execute(Phase phase) override {
    try {
      return of(phase).executor.run();
    } catch (...) {
      // Peers may read it for as long as they do not know that this rank has failed. (When all has
      // gone well they have read what they want: an op ends on both sides.)
      world_.keep(of(phase).memory);
      throw;
    }
  }
  void fetch(Phase phase) override {
    PhaseOnDevice& p = of(phase);
    copy_role(p.host.program, BufferRole::output, *p.memory, p.host.memory, p.executor.stream());
  }
  [[nodiscard]] Seconds timed_event() const { return event_cost(forward_->executor.stream()); }

 private:
  struct PhaseOnDevice {
    PhaseOnDevice(const PhaseParts& h, std::shared_ptr<const DeviceMemory> m,
                  const ExecutorParts& parts)
        : host(h), memory(std::move(m)), executor(parts) {}
    PhaseParts host;
    std::shared_ptr<const DeviceMemory> memory;
    DeviceExecutor executor;
  };

  std::unique_ptr<PhaseOnDevice> make(const EngineParts& parts, const PhaseParts& phase,
                                      const Setup& setup) {
    const auto memory = std::make_shared<const DeviceMemory>(phase.program, phase.schedule.problem);
    return std::make_unique<PhaseOnDevice>(phase, memory,
                                           ExecutorParts{.schedule = phase.schedule,
                                                         .program = phase.program,
                                                         .memory = *memory,
                                                         .attention = setup.attention,
                                                         .communicator = *communicator_,
                                                         .transport = parts.transport,
                                                         .streams = setup.streams,
                                                         .options = parts.options});
  }
  PhaseOnDevice& of(Phase phase) {
    PhaseOnDevice* p = phase == Phase::forward ? forward_.get() : backward_.get();
    ensure(p != nullptr, "a phase that the trial does not have");
    return *p;
  }

  InprocWorld& world_;
  std::unique_ptr<DeviceCommunicator> communicator_;
  std::unique_ptr<PhaseOnDevice> forward_, backward_;
};

}  // namespace

int local_rank(const Transport& transport) {
  int index = 0;
  for (int r = 0; r < transport.rank().value; ++r) {
    index += transport.host(Rank(r)) == transport.host(transport.rank()) ? 1 : 0;
  }
  return index;
}

CudaEngines::CudaEngines(const device::DeviceOptions& options, int ranks, bool threads)
    : options_(options),
      ranks_(ranks),
      threads_(threads),
      gpus_here_(device_count()),
      world_(ranks, options.network) {
  if (options.communication == device::Communication::nccl) {
    if (threads && ranks > gpus_here_) {
      throw InputError("--comm",
                       fmt::format("nccl: {} ranks need as many GPUs, here are {} (inproc "
                                   "lets ranks share a GPU)",
                                   ranks, gpus_here_));
    }
  } else {
    const int least = (ranks + gpus_here_ - 1) / gpus_here_;
    ranks_per_gpu_ = options.ranks_per_gpu > 0 ? options.ranks_per_gpu : least;
    if (ranks_per_gpu_ < least) {
      throw InputError("--ranks-per-gpu", fmt::format("{} ranks on {} GPUs are {} a GPU, not {}",
                                                      ranks, gpus_here_, least, ranks_per_gpu_));
    }
    share_gpus();
    connect_gpus();
  }
  const DeviceInfo info = device_info(0);
  report_ = {.gpu = info.name,
             .gpus = threads ? (ranks + ranks_per_gpu_ - 1) / ranks_per_gpu_ : 1,
             .ranks_per_gpu = std::min(ranks_per_gpu_, ranks),
             .multiprocessors = shares_.empty()
                                    ? info.multiprocessors
                                    : shares_.begin()->second.front()->multiprocessors(),
             .all_multiprocessors = info.multiprocessors,
             .split = !shares_.empty(),
             .compute_capability = 10 * info.major + info.minor,
             .memory = info.memory,
             .l2 = info.l2,
             .driver = info.driver,
             .runtime = info.runtime,
             .nccl = options.communication == device::Communication::nccl ? nccl_version() : "",
             .cudnn = sdpa_version(),
             .clock_khz = info.clock_khz,
             .memory_clock_khz = info.memory_clock_khz,
             .timed_event = {}};
}

CudaEngines::~CudaEngines() = default;

/// Ranks that share a GPU get equal parts of its SMs.
void CudaEngines::share_gpus() {
  for (int first = 0; first < ranks_; first += ranks_per_gpu_) {
    const int device = first / ranks_per_gpu_;
    const int ranks = std::min(ranks_per_gpu_, ranks_ - first);
    if (ranks == 1) {
      continue;
    }
    try {
      shares_[device] = split_device(device, ranks_per_gpu_);
    } catch (const BackendError& e) {
      shares_.clear();
      warn(fmt::format("ranks share all SMs of a GPU, so their kernels hold each other up: {}",
                       e.what()));
      return;
    }
  }
}

/// Sums read the memory of other ranks' GPUs.
void CudaEngines::connect_gpus() {
  const int used = (ranks_ + ranks_per_gpu_ - 1) / ranks_per_gpu_;
  for (int from = 0; from < used; ++from) {
    for (int to = 0; to < used; ++to) {
      int possible = 0;
      if (from == to) {
        continue;
      }
      check(cudaDeviceCanAccessPeer(&possible, from, to), "cudaDeviceCanAccessPeer");
      if (possible == 0) {
        throw BackendError(
            "cudaDeviceCanAccessPeer",
            fmt::format("GPU {} cannot reach the memory of GPU {}: use --comm nccl", from, to), -1);
      }
      use_device(from);
      const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();  // forget it
      } else {
        check(error, "cudaDeviceEnablePeerAccess");
      }
    }
  }
}

void CudaEngines::warn(const std::string& text) {
  const std::scoped_lock lock(mutex_);
  if (std::ranges::find(warnings_, text) == warnings_.end()) {
    warnings_.push_back(text);
  }
}

int CudaEngines::device_of(const Transport& transport) const {
  const int local = local_rank(transport);
  if (options_.communication == device::Communication::inproc) {
    return local / ranks_per_gpu_;
  }
  // Launchers often show each process its own GPU only.
  return gpus_here_ == 1 ? 0 : local;
}

std::vector<MemoryDemand> CudaEngines::demands(const Transport& transport, Bytes needed) const {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const int device = device_of(transport);
  if (device >= gpus_here_) {
    throw BackendError("nccl",
                       fmt::format("rank {} is number {} on its host, which has {} GPUs",
                                   transport.rank().value, device, gpus_here_),
                       transport.rank().value);
  }
  const DeviceInfo info = device_info(device);
  return {{.pool = fmt::format("GPU {} of host {}", info.bus_id, host.data()),
           .needed = needed,
           .available = info.memory_free}};
}

std::string CudaEngines::why_not(const Problem& problem, const TokenSet& q,
                                 const TokenSet& k) const {
  return device_attention::by_name(options_.kernels, "--kernels").why_not(problem, q, k);
}

std::unique_ptr<DeviceCommunicator> CudaEngines::make_communicator(const EngineParts& parts) {
  if (options_.communication == device::Communication::inproc) {
    return std::make_unique<InprocCommunicator>(world_, parts.transport, parts.options.timeout);
  }
  return make_nccl_communicator(parts);
}

std::unique_ptr<Engine> CudaEngines::make(const EngineParts& parts) {
  const int device = device_of(parts.transport);
  use_device(device);
  const auto share = shares_.find(device);
  const StreamSource* streams =
      share == shares_.end()
          ? nullptr
          : share->second[static_cast<std::size_t>(local_rank(parts.transport) % ranks_per_gpu_)]
                .get();
  auto engine = std::make_unique<CudaEngine>(
      parts, make_communicator(parts),
      CudaEngine::Setup{.attention = device_attention::by_name(options_.kernels, "--kernels"),
                        .streams = streams,
                        .world = world_});
  if (parts.transport.rank().value == 0) {
    const Seconds cost = engine->timed_event();
    const std::scoped_lock lock(mutex_);
    report_.timed_event = cost;
  }
  return engine;
}

std::vector<std::string> CudaEngines::warnings() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> all = warnings_;
  if (options_.communication == device::Communication::nccl) {
    std::ranges::copy(slow_connections(nccl_log()), std::back_inserter(all));
  }
  return all;
}

device::DeviceReport CudaEngines::report() const {
  const std::scoped_lock lock(mutex_);
  return report_;
}

}  // namespace spp::runtime::cuda
