// What launchers (mpirun, srun, torchrun) tell the processes that they start: every variable of
// theirs that is read, in one place. Nothing here throws: who needs a launcher asks what is wrong,
// all others go on.
#pragma once

#include <string>

namespace spp::runtime {

/// A process of several that a launcher has started.
struct Launch {
  int ranks = 0;  // 0: there was no launcher, or something is wrong
  int rank = 0;   // 0 where it is not known
  /// "RANK is '5', not a whole number from 0 to 1 (WORLD_SIZE is 2)"; else "".
  std::string wrong;

  [[nodiscard]] bool found() const { return ranks > 0 || !wrong.empty(); }
};

/// mpirun, or srun with PMI: OMPI_COMM_WORLD_*, PMI_*, PMIX_RANK, SLURM_*.
Launch launched_by_mpi();

/// torchrun, or whoever sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, all of them.
struct TorchLaunch : Launch {
  std::string master;     // MASTER_ADDR
  int port = 0;           // MASTER_PORT
  bool one_host = false;  // LOCAL_WORLD_SIZE says that all ranks are on this one
};
TorchLaunch launched_by_torchrun();

/// What only processes of one job know, and where it is from; both "" if there is nothing.
struct JobToken {
  std::string variable, value;
};
/// SP_PLAN_JOB_TOKEN; else TORCHELASTIC_RUN_ID with TORCHELASTIC_RESTART_COUNT; else SLURM_JOB_ID
/// with SLURM_STEP_ID.
JobToken job_token();

/// Tasks of the srun step that this process belongs to; 0 where it belongs to none, as in a batch
/// script.
int srun_tasks();

}  // namespace spp::runtime
