// Links of a machine from NCCL's own tests (machine/nccl_tests.hpp): as series of a calibration,
// which are fitted alike.
#pragma once

#include "machine/machine.hpp"
#include "machine/machine_write.hpp"
#include "machine/nccl_tests.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace spp::calibrate {

/// What was measured takes the place of what `machine` says of its links; `known` is the same
/// machine, `document` as Catalog::whole_machine_of gives it. Tests that say nothing of links are
/// taken out of `tests`. InputError if none is left, or they are of another machine.
void put_nccl_tests(MachineDocument& document, const MachineSpec& known,
                    std::vector<NcclTest>& tests, std::vector<std::string>& warnings);

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
