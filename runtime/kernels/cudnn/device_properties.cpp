#include "runtime/kernels/cudnn/device_properties.hpp"

#include "base/json.hpp"

namespace spp::runtime {

DeviceProperties h200(int sms) {
  return {.name = "NVIDIA H200",
          .sms = sms,
          .shared_per_block_opt_in = 232448,
          .clock_khz = 1980000,
          .memory_clock_khz = 3201000,
          .l2_bytes = std::int64_t{60} << 20,
          .memory_bytes = std::int64_t{141} << 30};
}

std::string to_json(const DeviceProperties& device) {
  // cuDNN refuses the text when one of these keys is missing.
  const Json json{
      {"cudaDeviceId", 0},
      {"deviceName", device.name},
      {"deviceVer", device.compute_capability},
      {"driverVer", device.driver},
      {"multiProcessorCount", device.sms},
      {"maxGridSize", {2147483647, 65535, 65535}},
      {"maxBlockSize", {1024, 1024, 64}},
      {"maxThreadsPerBlock", 1024},
      {"maxThreadsPerSM", device.threads_per_sm},
      {"maxCtasPerSM", device.blocks_per_sm},
      {"warpSize", 32},
      {"regsPerBlock", device.registers_per_sm},
      {"maxRegistersPerSM", device.registers_per_sm},
      {"maxSharedMemoryPerBlock", device.shared_per_block},
      {"maxSharedMemoryPerBlockOptin", device.shared_per_block_opt_in},
      {"reservedSharedMemoryPerBlock", device.shared_reserved_per_block},
      {"smClockRateKHz", device.clock_khz},
      {"memClockRateKHz", device.memory_clock_khz},
      {"l2CacheSize", device.l2_bytes},
      {"totalGlobalMem", device.memory_bytes},
      {"pciDeviceId", 0},
      {"isTccDriver", 0},
      {"supportCoopLaunch", 1},
  };
  return json.dump();
}

}  // namespace spp::runtime
