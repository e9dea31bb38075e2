#include "runtime/host_engine.hpp"

namespace spp::runtime {
namespace {

class HostEngine final : public Engine {
 public:
  HostEngine(const EngineParts& parts, std::unique_ptr<AttentionKernels> kernels)
      : parts_(parts), kernels_(std::move(kernels)) {}
  void load(Phase) override {}
  void fetch(Phase) override {}
  Execution execute(Phase phase) override {
    const PhaseParts& p = phase == Phase::forward ? parts_.forward : *parts_.backward;
    return runtime::execute(p.schedule, p.program, p.memory, *kernels_, parts_.transport,
                            parts_.options);
  }

 private:
  EngineParts parts_;
  std::unique_ptr<AttentionKernels> kernels_;
};

}  // namespace

std::unique_ptr<Engine> HostEngines::make(const EngineParts& parts) {
  return std::make_unique<HostEngine>(parts, kernels_->make());
}

}  // namespace spp::runtime
