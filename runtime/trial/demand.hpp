// Memory that a trial takes of this process, known before its schedules are walked.
#pragma once

#include "runtime/trial/trial.hpp"

namespace spp::runtime {

/// `ranks_here`: of the schedule's ranks, those that are threads of this process. Ranks on GPUs
/// keep only inputs and outputs on the host.
Bytes trial_memory(const TrialRequest& request, int ranks_here);

}  // namespace spp::runtime
