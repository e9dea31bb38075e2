// A calibration profile: what was measured on one machine, in one self-contained JSON file
// (docs/schema/profile.schema.json). Its `machine` has the keys and formats of topologies/, with
// GPU, generation and transports in place instead of by name; so the readers are the same ones.
#pragma once

#include "base/json.hpp"
#include "machine/machine.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spp {

struct Profile {
  std::string name;
  std::string date;  // begins YYYY-MM-DD
  std::string tool_version;
  std::vector<std::pair<std::string, std::string>> environment;  // as written: cpu, driver, …
  int nodes = 1;                                                 // that were measured
  MachineSpec machine;  // machine.gpu.measured: its attention kernels
  bool later = false;   // of a later version, which may say more than is read here

  /// Of the environment; "" if it is not told.
  [[nodiscard]] std::string told(std::string_view key) const;
  /// By ranks of ours, not read from other programs' output.
  [[nodiscard]] bool from_calibration() const { return !told("kernels").empty(); }
};

/// InputError names file and key. Strict: an unknown key, a number without its unit, a kernel that
/// is faster than the peak rate or was measured twice is refused. `samples` is not looked into.
Profile read_profile(const JsonView& document);
Profile read_profile(const std::filesystem::path& file);

/// What a profile is written of. Numbers as base/numbers.hpp has them.
struct ProfileParts {
  std::string name;
  Json environment, nodes;
  Json machine;                              // whole (MachineDocument)
  std::vector<MeasuredAttention> attention;  // by the machine's kernels
  std::optional<MeasuredAttention> pace;
  Json samples;      // raw
  std::string note;  // for people; "": none
};
/// "sp-plan/profile", of this moment.
Json profile_json(ProfileParts parts);

/// `machine` with what the profile measured: its GPU, and those of its transports that have the
/// name of the machine's. InputError(where) if the GPUs have different names, or if one is a
/// machine of CPU ranks and the other is not.
MachineSpec calibrated(MachineSpec machine, const Profile& profile, std::string_view where);

}  // namespace spp
