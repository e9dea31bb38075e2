// What an exception means to whoever called: one line and an exit code. The one place where sp-plan
// catches, for the program and for callers in this process alike.
#pragma once

#include "cli/command.hpp"

#include <string>

namespace spp::cli {

struct Failure {
  ExitCode code = ExitCode::failed;
  std::string message;        // one line
  bool of_this_rank = false;  // where processes run together; else likely of all of them
};

/// The exception that is being handled; inside of a catch (...).
Failure current_failure();

}  // namespace spp::cli
