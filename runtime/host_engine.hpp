// The host as an engine: runs programs where their inputs and outputs are.
#pragma once

#include "runtime/engine.hpp"
#include "runtime/kernels/attention.hpp"

namespace spp::runtime {

class HostEngines final : public EngineSource {
 public:
  explicit HostEngines(const AttentionBackend* kernels) : kernels_(kernels) {}
  [[nodiscard]] MemoryPart host_part() const override { return MemoryPart::all; }
  [[nodiscard]] std::vector<MemoryDemand> demands(const Transport&, Bytes) const override {
    return {};
  }
  [[nodiscard]] std::string kernels() const override { return std::string(kernels_->name); }
  [[nodiscard]] std::string why_not(const Problem& problem, const TokenSet&,
                                    const TokenSet&) const override {
    return kernels_->why_not(problem.dtype);
  }
  std::unique_ptr<Engine> make(const EngineParts& parts) override;

 private:
  const AttentionBackend* kernels_;
};

}  // namespace spp::runtime
