// What measurements depend on. Apart, because only here headers of libraries are needed for nothing
// but a version.
#include "runtime/calibrate/calibrate.hpp"

#if defined(SPP_CUDA)
#include <cuda_runtime_api.h>
#endif
#if defined(SPP_CUDNN)
#include <cudnn_version.h>
#endif
#if defined(SPP_MPI)
#include <mpi.h>
#endif
#if defined(SPP_NCCL)
#include <nccl.h>
#endif
#if defined(SPP_ONEDNN)
#include <oneapi/dnnl/dnnl_version.h>
#endif

#include "base/file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string>

namespace spp::runtime {

std::string cpu_model() {
  std::istringstream cpuinfo(system_text("/proc/cpuinfo"));
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) {
      return line.substr(std::min(line.size(), line.find(':') + 2));
    }
  }
  return "unknown";
}

std::vector<std::pair<std::string, std::string>> library_versions() {
  std::vector<std::pair<std::string, std::string>> versions;
#if defined(SPP_MPI)
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);  // allowed before MPI_Init
  const std::string mpi(text.data());
  versions.emplace_back("mpi", mpi.substr(0, mpi.find_first_of(",\n")));
#endif
#if defined(SPP_ONEDNN)
  versions.emplace_back("onednn", fmt::format("{}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR,
                                              DNNL_VERSION_PATCH));
#endif
#if defined(SPP_CUDA)
  versions.emplace_back("cuda",
                        fmt::format("{}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10));
#endif
#if defined(SPP_CUDNN)
  versions.emplace_back("cudnn",
                        fmt::format("{}.{}.{}", CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL));
#endif
#if defined(SPP_NCCL)
  versions.emplace_back("nccl", fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
#endif
  versions.emplace_back("compiler", __VERSION__);
  return versions;
}

}  // namespace spp::runtime
