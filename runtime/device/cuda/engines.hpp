// The engines of a trial on NVIDIA GPUs (runtime/device/device.hpp).
#pragma once

#include "runtime/device/cuda/green_context.hpp"
#include "runtime/device/cuda/inproc.hpp"
#include "runtime/device/device.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace spp::runtime::cuda {

class CudaEngine;

/// Index of a rank among those of its host.
int local_rank(const Transport& transport);

class CudaEngines final : public device::DeviceEngines {
 public:
  /// `threads`: all ranks are threads of this process, else it is one rank. InputError if there are
  /// too few GPUs.
  CudaEngines(const device::DeviceOptions& options, int ranks, bool threads);
  ~CudaEngines() override;

  [[nodiscard]] MemoryPart host_part() const override { return MemoryPart::ends; }
  [[nodiscard]] std::vector<MemoryDemand> demands(const Transport& transport,
                                                  Bytes needed) const override;
  [[nodiscard]] Bytes beside_buffers(
      Rank rank, const Schedule& forward,
      std::span<const std::vector<StoredProgram>* const> phases) const override;
  [[nodiscard]] std::string kernels() const override { return options_.kernels; }
  [[nodiscard]] std::string why_not(const Problem& problem, const TokenSet& q,
                                    const TokenSet& k) const override;
  std::unique_ptr<Engine> make(const EngineParts& parts) override;
  [[nodiscard]] std::vector<std::string> warnings() const override;
  [[nodiscard]] device::DeviceReport report() const override;

 private:
  struct BesideBuffers {
    Bytes attention{}, communication{};
  };
  [[nodiscard]] BesideBuffers beside(
      Rank rank, const Schedule& forward,
      std::span<const std::vector<StoredProgram>* const> phases) const;
  [[nodiscard]] int device_of(const Transport& transport) const;
  void share_gpus();
  void connect_gpus();
  void describe(int device);
  void tell_apart(Transport& transport, int device);
  void note(const CudaEngine& engine, const EngineParts& parts);
  void warn(const std::string& text);
  std::unique_ptr<DeviceCommunicator> make_communicator(const EngineParts& parts);

  device::DeviceOptions options_;
  int ranks_;
  bool threads_;
  int gpus_here_;
  int ranks_per_gpu_ = 1;
  std::map<int, std::vector<std::unique_ptr<GreenContext>>> shares_;  // by device
  InprocWorld world_;
  mutable std::mutex mutex_;  // of all below
  std::vector<std::string> warnings_;
  device::DeviceReport report_;
};

}  // namespace spp::runtime::cuda
