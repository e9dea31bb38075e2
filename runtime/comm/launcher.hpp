// What launchers (mpirun, srun, torchrun) tell the processes that they start.
#pragma once

#include <cstdlib>

namespace spp::runtime {

/// A number in the environment; 0 if there is none.
inline int launcher_number(const char* variable) {
  const char* text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return text == nullptr ? 0 : std::atoi(text);
}

/// Tasks of the srun step that this process belongs to; 0 where it belongs to none, as in a batch
/// script.
inline int srun_tasks() { return launcher_number("SLURM_STEP_NUM_TASKS"); }

}  // namespace spp::runtime
