#include "runtime/device/device.hpp"

#include "base/error.hpp"

#if defined(SPP_CUDA)
#include "runtime/device/cuda/attention.hpp"
#include "runtime/device/cuda/cuda.hpp"
#include "runtime/device/cuda/engines.hpp"
#include "runtime/device/cuda/nccl_library.hpp"
#include "runtime/kernels/cudnn/sdpa.hpp"

#include <cstdlib>
#endif

namespace spp::runtime::device {

#if defined(SPP_CUDA)

std::vector<std::string> compiled() {
  std::vector<std::string> words{"cuda"};
  if (cuda::nccl_compiled()) {
    words.emplace_back("nccl");
  }
  if (!sdpa_why_not().starts_with("not compiled in")) {
    words.emplace_back("cudnn");
  }
  return words;
}

std::string why_not_cuda() {
  // Streams of ranks that share a GPU run side by side only on hardware queues of their own; the
  // driver reads this when it starts.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // NOLINT(concurrency-mt-unsafe): no threads yet
  return cuda::why_not_cuda();
}

std::string why_not_nccl() { return cuda::why_not_nccl(); }

int gpu_count() { return why_not_cuda().empty() ? cuda::device_count() : 0; }

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const cuda::DeviceAttentionBackend* kernels : cuda::device_attention::all()) {
    names.emplace_back(kernels->name);
  }
  return names;
}

std::string choose_kernels(const DeviceOptions& options, const Problem& problem,
                           std::vector<std::string>& passed_over) {
  // A strategy's blocks may still be such that they cannot be done, which the first call says.
  const TokenSet all(TokenRange{.begin = 0, .count = problem.end()});
  if (!options.kernels.empty()) {
    const auto& kernels = cuda::device_attention::by_name(options.kernels, "--kernels");
    if (const std::string why_not = kernels.why_not(problem, all, all); !why_not.empty()) {
      throw InputError("--kernels", fmt::format("{}: {}", options.kernels, why_not));
    }
    return options.kernels;
  }
  for (const cuda::DeviceAttentionBackend* kernels : cuda::device_attention::all()) {
    const std::string why_not = kernels->why_not(problem, all, all);
    if (why_not.empty()) {
      return std::string(kernels->name);
    }
    passed_over.push_back(fmt::format("{} kernels: {}", kernels->name, why_not));
  }
  throw InternalError("the reference kernels of a GPU run everything");
}

std::unique_ptr<DeviceEngines> make_engines(const DeviceOptions& options, int ranks,
                                            const TransportBackend& transport) {
  if (const std::string why_not = why_not_cuda(); !why_not.empty()) {
    throw BackendError("CUDA", why_not, -1);
  }
  return std::make_unique<cuda::CudaEngines>(options, ranks, transport.name == "inproc");
}

#else

namespace {
constexpr std::string_view missing =
    "not compiled in: there was no CUDA toolkit, or no GPU (SPP_CUDA=ON scripts/sp-plan)";
}

std::vector<std::string> compiled() { return {}; }
std::string why_not_cuda() { return std::string(missing); }
std::string why_not_nccl() { return std::string(missing); }
int gpu_count() { return 0; }
std::vector<std::string> kernel_names() { return {}; }
std::string choose_kernels(const DeviceOptions&, const Problem&, std::vector<std::string>&) {
  throw BackendError("CUDA", missing, -1);
}
std::unique_ptr<DeviceEngines> make_engines(const DeviceOptions&, int, const TransportBackend&) {
  throw BackendError("CUDA", missing, -1);
}

#endif

}  // namespace spp::runtime::device
