#include "runtime/device/cuda/attention.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"

#include <vector>

namespace spp::runtime::cuda::device_attention {

const DeviceAttentionBackend& by_name(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const DeviceAttentionBackend* backend : all()) {
    if (backend->name == name) {
      return *backend;
    }
    names.emplace_back(backend->name);
  }
  throw InputError(where, fmt::format("unknown attention kernels of a GPU '{}'{}", name,
                                      did_you_mean(name, names)));
}

}  // namespace spp::runtime::cuda::device_attention
