// From options to the planner's Request: which work, which machine, which degrees. Whatever was not
// given and had to be assumed is listed, never silent.
#pragma once

#include "cli/options.hpp"
#include "machine/profile.hpp"
#include "machine/stack.hpp"
#include "planner/plan.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

struct Job {
  Request request;
  std::unique_ptr<sim::Cluster> cluster;  // request.cluster; none if no machine was given
  int gpus_of_node = 0;                   // that there are; the cluster may have fewer of each
  std::unique_ptr<StackSpec> stack;       // request.stack, unless sp-plan's; request.practice
  std::optional<Profile> profile;         // --profile
  int denoising_steps = 0;                // of an image or a video; 0: this is no such step
  std::vector<Assumption> assumptions;
  std::vector<std::string> warnings;  // for Output::warn()
  Json resolved;                      // "request" of our documents
  std::string title;                  // one line for people
  std::string at_any_length;          // the same without the length
  Origins origins;                    // of what --plan's file says
};

enum class MachineNeed : std::uint8_t { required, optional };

/// InputError names the option, its value and what would be right.
Job read_job(const Arguments& arguments, MachineNeed machine = MachineNeed::required);

/// The one plan that simulate and verify work on: degrees, defaults for the rest. InputError if it
/// is not legal. Writes the plan's choices into job.resolved.
StepPlan read_plan(Job& job);

/// The attention schedules that a phase consists of.
std::vector<Phase> phases_of(StepPhase phase);

/// "… is not available yet": the one line for what the contract names and this version lacks.
[[noreturn]] void not_available(std::string_view where, std::string_view what);

}  // namespace spp::cli
