// The engine of one rank: its phases in device memory, and the streams and the communicator that
// they share. Made by CudaEngines (engines.hpp) on the thread of the rank.
#pragma once

#include "base/error.hpp"
#include "runtime/device/cuda/executor.hpp"
#include "runtime/device/cuda/inproc.hpp"
#include "runtime/engine.hpp"

#include <memory>
#include <optional>
#include <set>
#include <utility>

namespace spp::runtime::cuda {

class CudaEngine final : public Engine {
 public:
  struct Setup {
    const DeviceAttentionBackend& attention;
    const StreamSource* streams;  // null: the primary context
    InprocWorld& world;
    int ranks_of_gpu = 1;
  };

  /// Everything that may wait for the device or takes long is done when this returns.
  CudaEngine(const EngineParts& parts, std::unique_ptr<DeviceCommunicator> communicator,
             const Setup& setup)
      : world_(setup.world),
        communicator_(std::move(communicator)),
        streams_(setup.streams),
        forward_(make(parts, parts.forward, setup)),
        backward_(parts.backward != nullptr ? make(parts, *parts.backward, setup) : nullptr) {}

  void load(Phase phase) override {
    PhaseOnDevice& p = of(phase);
    copy_roles(p.host.program, is_given, p.host.memory, *p.memory, streams_.compute());
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
    copy_roles(p.host.program, is_result, *p.memory, p.host.memory, streams_.compute());
  }

  [[nodiscard]] Seconds timed_event() const { return event_cost(streams_.compute()); }
  [[nodiscard]] int streams() const { return static_cast<int>(streams_.count()); }
  [[nodiscard]] std::optional<CopyWay> copies() const { return communicator_->copies(); }
  /// The SMs that attention kernels were made for (DeviceAttention::made_for).
  [[nodiscard]] std::set<int> made_for() const {
    std::set<int> sms = forward_->executor.made_for();
    if (backward_ != nullptr) {
      sms.merge(backward_->executor.made_for());
    }
    return sms;
  }
  /// DeviceAttention::refusal
  [[nodiscard]] std::string refusal() const {
    const std::string of_forward = forward_->executor.refusal();
    return of_forward.empty() && backward_ != nullptr ? backward_->executor.refusal() : of_forward;
  }

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
    const auto memory = std::make_shared<const DeviceMemory>(phase.program);
    return std::make_unique<PhaseOnDevice>(phase, memory,
                                           ExecutorParts{.schedule = phase.schedule,
                                                         .program = phase.program,
                                                         .memory = *memory,
                                                         .attention = setup.attention,
                                                         .communicator = *communicator_,
                                                         .transport = parts.transport,
                                                         .streams = streams_,
                                                         .options = parts.options,
                                                         .ranks_of_gpu = setup.ranks_of_gpu});
  }
  PhaseOnDevice& of(Phase phase) {
    PhaseOnDevice* p = phase == Phase::forward ? forward_.get() : backward_.get();
    ensure(p != nullptr, "a phase that the trial does not have");
    return *p;
  }

  InprocWorld& world_;
  std::unique_ptr<DeviceCommunicator> communicator_;
  RankStreams streams_;  // of all phases: these go first
  std::unique_ptr<PhaseOnDevice> forward_, backward_;
};

}  // namespace spp::runtime::cuda
