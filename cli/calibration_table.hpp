// Calibrations for people.
#pragma once

#include "calibrate/nccl.hpp"
#include "calibrate/profile.hpp"

#include <string>

namespace spp::cli {

/// What a profile says, made of `input`.
std::string profile_table(const Json& profile, const calibrate::ProfileInput& input, bool color);
std::string nccl_table(const calibrate::NcclProfile& profile, bool color);

}  // namespace spp::cli
