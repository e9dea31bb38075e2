#include "runtime/device/cuda/engines.hpp"

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "runtime/device/cuda/cuda_engine.hpp"
#include "runtime/device/cuda/expert_kernels.hpp"
#include "runtime/device/cuda/kernels.hpp"
#include "runtime/device/cuda/latent_kernels.hpp"
#include "runtime/device/cuda/layer_kernels.hpp"
#include "runtime/device/cuda/nccl.hpp"
#include "runtime/device/cuda/nccl_library.hpp"
#include "runtime/device/cuda/nccl_plan.hpp"
#include "runtime/device/cuda/product_kernels.hpp"
#include "runtime/device/cuda/word_kernels.hpp"
#include "runtime/device/cuda/workspaces.hpp"
#include "runtime/kernels/cudnn/sdpa.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <set>

namespace spp::runtime::cuda {
namespace {

/// "16 SMs", "the whole GPU and 16 SMs"; "" when nothing was made.
std::string made_for_text(const std::set<int>& sms) {
  std::string text;
  for (const int n : sms) {
    text += fmt::format("{}{}", text.empty() ? "" : " and ",
                        n == 0 ? "the whole GPU" : fmt::format("{} SMs", n));
  }
  return text;
}

std::string copies_text(const std::optional<CopyWay>& way) {
  if (!way) {
    return "";
  }
  return *way == CopyWay::beside_kernels ? "beside kernels" : "plain";
}

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
  describe(0);
}

/// Of processes each describes the GPU of its rank, once it knows which one that is.
void CudaEngines::describe(int device) {
  const DeviceInfo info = device_info(device);
  const std::scoped_lock lock(mutex_);
  report_.gpu = info.name;
  report_.gpus = threads_ ? (ranks_ + ranks_per_gpu_ - 1) / ranks_per_gpu_ : 1;
  report_.ranks_per_gpu = std::min(ranks_per_gpu_, ranks_);
  report_.multiprocessors =
      shares_.empty() ? info.multiprocessors : shares_.begin()->second.front()->multiprocessors();
  report_.all_multiprocessors = info.multiprocessors;
  report_.split = !shares_.empty();
  report_.compute_capability = 10 * info.major + info.minor;
  report_.memory = info.memory;
  report_.l2 = info.l2;
  report_.driver = info.driver;
  report_.runtime = info.runtime;
  report_.nccl = options_.communication == device::Communication::nccl ? nccl_version() : "";
  report_.cudnn = sdpa_version();
  report_.clock_khz = info.clock_khz;
  report_.memory_clock_khz = info.memory_clock_khz;
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
  const int device = device_of(transport);
  if (device >= gpus_here_) {
    throw BackendError("nccl",
                       fmt::format("rank {} is number {} on its host, which has {} GPUs",
                                   transport.rank().value, device, gpus_here_),
                       transport.rank().value);
  }
  return {{.pool = fmt::format("GPU {} of host {}", device_info(device).bus_id, host_name()),
           .needed = needed,
           .available = memory_free(device)}};
}

Bytes CudaEngines::beside_buffers(Rank rank, const Schedule& forward,
                                  std::span<const std::vector<StoredProgram>* const> phases) const {
  const BesideBuffers needed = beside(rank, forward, phases);
  return needed.attention + needed.communication;
}

CudaEngines::BesideBuffers CudaEngines::beside(
    Rank rank, const Schedule& forward,
    std::span<const std::vector<StoredProgram>* const> phases) const {
  const bool over_nccl = options_.communication == device::Communication::nccl;
  return {.attention = attention_workspaces(
              device_attention::by_name(options_.kernels, "--kernels"), rank, forward, phases),
          .communication = over_nccl ? nccl_workspaces(rank, forward, phases) : Bytes{}};
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
  load_kernels();
  load_layer_kernels();
  load_latent_kernels();
  load_product_kernels();
  load_expert_kernels();
  load_word_kernels();
  if (!threads_) {
    describe(device);
    tell_apart(parts.transport, device);
  }
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
                        .world = world_,
                        .ranks_of_gpu = ranks_per_gpu_});
  if (parts.transport.rank().value == 0) {
    note(*engine, parts);
  }
  return engine;
}

/// Counts the GPUs of all processes. NCCL takes one rank a GPU of a host, by default and
/// before 2.30 in any case ("Duplicate GPU detected"). Processes that share one are hosts of their
/// own to it (NCCL_HOSTID, which it reads at its first communicator): messages then go over its
/// network, and are right, if slow.
void CudaEngines::tell_apart(Transport& transport, int device) {
  if (options_.communication != device::Communication::nccl) {
    return;
  }
  const std::string mine =
      fmt::format("{} {}", transport.host(transport.rank()), device_info(device).bus_id);
  const std::vector<std::string> all = transport.all_gather_text(mine);
  {
    const std::scoped_lock lock(mutex_);
    report_.gpus = static_cast<int>(std::set(all.begin(), all.end()).size());
  }
  if (std::ranges::count(all, mine) < 2) {
    return;
  }
  setenv("NCCL_HOSTID", fmt::format("sp-plan-rank-{}", transport.rank().value).c_str(),
         0);  // NOLINT(concurrency-mt-unsafe): the only thread that runs
  warn(
      "ranks share a GPU over NCCL, which takes them for hosts of their own: numbers are right, "
      "times say nothing about links");
}

void CudaEngines::note(const CudaEngine& engine, const EngineParts& parts) {
  const int queues = hardware_queues();
  if (const int streams = engine.streams() * ranks_per_gpu_; streams > queues) {
    warn(
        fmt::format("{} streams of a GPU go through {} hardware queues "
                    "(CUDA_DEVICE_MAX_CONNECTIONS): those that share one wait for each other",
                    streams, queues));
  }
  const std::string refusal = engine.refusal();
  if (!refusal.empty()) {
    warn(
        fmt::format("cuDNN does not take streams of a share of the GPU, so attention runs on all "
                    "SMs and ranks hold each other up: {}",
                    refusal));
  }
  const std::array phases{&parts.forward_of_all, &parts.backward_of_all};
  const BesideBuffers needed = beside(parts.transport.rank(), parts.forward.schedule, phases);
  const SdpaPlans plans = sdpa_plans();
  const Seconds cost = engine.timed_event();
  const std::string made_for = made_for_text(engine.made_for());
  const std::string copies = copies_text(engine.copies());
  const std::scoped_lock lock(mutex_);
  report_.timed_event = cost;
  report_.attention_made_for = made_for.empty() ? report_.attention_made_for : made_for;
  report_.copies = copies.empty() ? report_.copies : copies;
  report_.attention_refused = refusal.empty() ? report_.attention_refused : refusal;
  report_.attention_plans = plans.compiled;
  report_.compiling_attention = plans.compiling;
  report_.attention_workspaces = needed.attention;
  report_.communication_workspaces = needed.communication;
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
