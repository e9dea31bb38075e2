// Results as documents: what docs/schema/*.schema.json describe. Names carry their unit.
#pragma once

#include "base/document.hpp"
#include "cli/request.hpp"
#include "schedule/coverage.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

/// Groups of ranks are listed, or are empty lists: the degrees and the order say them, too.
enum class Groups : std::uint8_t { listed, left_out };
Json to_json(const StepPlan& plan, Groups groups = Groups::listed);
/// How tokens come to experts; null: these lie on no other rank.
Json dispatcher_json(const StepPlan& plan);
Json to_json(const Candidate& candidate, Groups groups = Groups::listed);
Json to_json(const std::vector<Assumption>& assumptions);
/// One phase, simulated. `streams`: their names.
Json call_json(const sim::Simulation& simulation, Phase phase,
               const std::vector<std::string>& streams);
Json to_json(const ComponentSeconds& seconds);
Json to_json(const GpuSpec& gpu);
Json to_json(const MachineSpec& m);

Json plan_document(const Job& job, const PlanResult& result, Seconds elapsed);
Json simulation_document(const Job& job, const Evaluation& evaluation, Seconds elapsed);

/// What verify found out about one schedule.
struct Verified {
  std::string phase;  // "fwd", "bwd"
  Proof proof;
  Bytes peak_memory{};  // buffers alive at once on the rank with most
};
struct Verification {
  std::string subject;  // the plan's name, or the file of a schedule
  std::vector<Verified> schedules;
  [[nodiscard]] bool proven() const;
};
/// `job` and `plan` are null for a schedule from a file.
Json verification_document(const Verification& verification, const Job* job, const StepPlan* plan,
                           Seconds elapsed);

}  // namespace spp::cli
