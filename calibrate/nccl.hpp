// Links of a machine from NCCL's own tests (machine/nccl_tests.hpp): as series of a calibration,
// which are fitted alike.
#pragma once

#include "machine/machine.hpp"
#include "machine/nccl_tests.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace spp::calibrate {

/// The link part of a machine's profile.
struct NcclProfile {
  Json document;
  std::vector<NcclTest> tests;  // that it was made of
  std::vector<std::string> warnings;
};
NcclProfile profile_of_nccl_tests(const std::vector<std::string_view>& files,
                                  const std::string& topology, const std::string& name,
                                  const Catalog& catalog);

}  // namespace spp::calibrate
