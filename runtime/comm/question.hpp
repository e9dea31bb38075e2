// What all processes of a run must have alike, since each has a command line of its own: the
// program, and what it was asked to do. tcp compares them at the door (tcp_setup.hpp), mpi when all
// ranks have met, with the same words.
#pragma once

#include "runtime/comm/transport.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace spp::runtime {

struct Question {
  std::string program;        // version and commit
  std::uint64_t request = 0;  // hash of RunSettings::request; 0: there is none
};
Question question_of(const RunSettings& settings);

/// What is said to a rank whose program is not rank 0's.
std::string another_version(std::string_view of_rank_0);
/// What is said to a rank that was asked to do something else than rank 0.
inline constexpr std::string_view another_request =
    "another request: all ranks need the same options and files";

}  // namespace spp::runtime
