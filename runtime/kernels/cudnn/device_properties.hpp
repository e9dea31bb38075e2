// What cuDNN's heuristics and compilers need to know of a device, so that plans can be made and
// tested where there is none.
#pragma once

#include <cstdint>
#include <string>

namespace spp::runtime {

/// Properties of a GPU, as cudaDeviceProp counts them. Sizes in bytes.
struct DeviceProperties {
  std::string name;
  int compute_capability = 900;  // 100 * major + 10 * minor: 9.0 is 900
  int sms = 0;
  int driver = 13000;  // CUDA version of the driver: 13.0
  std::int64_t registers_per_sm = 65536;
  std::int64_t shared_per_block = 49152;
  std::int64_t shared_per_block_opt_in = 0;
  std::int64_t shared_reserved_per_block = 1024;
  int threads_per_sm = 2048;
  int blocks_per_sm = 32;
  std::int64_t clock_khz = 0;
  std::int64_t memory_clock_khz = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
};

/// H200 SXM with `sms` of its 132 SMs (fewer: a green context).
DeviceProperties h200(int sms = 132);

/// The text that cuDNN takes (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
std::string to_json(const DeviceProperties& device);

}  // namespace spp::runtime
