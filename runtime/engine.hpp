// What runs the programs of a trial or a calibration: the host itself (host_engine.hpp), or devices
// (runtime/device/device.hpp). All around it is done on the host: inputs, checks, the control
// plane, which is a Transport in any case.
#pragma once

#include "runtime/comm/transport.hpp"
#include "runtime/execute.hpp"
#include "runtime/memory.hpp"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spp::runtime {

/// One phase of one rank. `memory` holds its inputs and takes its outputs.
struct PhaseParts {
  const Schedule& schedule;
  const StoredProgram& program;
  HostMemory& memory;
};

/// Of one rank, used by its thread. Both phases exist for as long as the engine does.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;
  /// Takes a phase's inputs from its host memory.
  virtual void load(Phase phase) = 0;
  virtual Execution execute(Phase phase) = 0;
  /// Brings a phase's outputs to its host memory.
  virtual void fetch(Phase phase) = 0;
};

struct EngineParts {
  Transport& transport;
  PhaseParts forward;
  const PhaseParts* backward;  // null: none
  const ExecuteOptions& options;
  /// Programs of all ranks, for what they set up together; without a backward the second is empty.
  const std::vector<StoredProgram>& forward_of_all;
  const std::vector<StoredProgram>& backward_of_all;
};

/// Memory that ranks share, and what one of them wants of it.
struct MemoryDemand {
  std::string pool;   // "host a", "GPU 0 of host a": the same for all who share it
  Bytes needed{};     // by this rank
  Bytes estimated{};  // of it, beside the buffers of its programs (EngineSource::beside_buffers)
  Bytes available{};  // to all of them; 0: not known
};

/// The engines of a run, in one process; outlives the threads of all ranks.
class EngineSource {
 public:
  EngineSource() = default;
  EngineSource(const EngineSource&) = delete;
  EngineSource& operator=(const EngineSource&) = delete;
  virtual ~EngineSource() = default;
  /// What must be in host memory.
  [[nodiscard]] virtual MemoryPart host_part() const = 0;
  /// Beside host memory: what one rank's program needs, all phases together.
  [[nodiscard]] virtual std::vector<MemoryDemand> demands(const Transport& transport,
                                                          Bytes needed) const = 0;
  /// Of the same memory: about what one rank needs beside the buffers of its programs, all phases
  /// together: workspaces of kernels and libraries. Phases: programs of all ranks.
  [[nodiscard]] virtual Bytes beside_buffers(Rank /*rank*/, const Schedule& /*forward*/,
                                             std::span<const std::vector<StoredProgram>* const>
                                             /*phases*/) const {
    return {};
  }
  /// Name of its attention kernels.
  [[nodiscard]] virtual std::string kernels() const = 0;
  /// "" if its attention kernels can run blocks of these queries and keys, else why not.
  [[nodiscard]] virtual std::string why_not(const Problem& problem, const TokenSet& q,
                                            const TokenSet& k) const = 0;
  /// All ranks call it at about the same time; more than once if they have ended all executions of
  /// the engines before. `parts` outlives the engine.
  virtual std::unique_ptr<Engine> make(const EngineParts& parts) = 0;
  /// Things that people should know about how the run was done; after the run.
  [[nodiscard]] virtual std::vector<std::string> warnings() const { return {}; }
};

/// All ranks together. Each process has chosen its kernels by what its host can: BackendError on
/// ranks whose kernels are not those of rank 0, whose name stands for all in what is reported.
void expect_same_kernels(Transport& transport, std::string_view kernels);

}  // namespace spp::runtime
