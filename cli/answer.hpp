// A command asked from inside this process, as python/ does: with what the program's shell would
// have parsed, for the document that it would have printed.
#pragma once

#include "cli/command.hpp"
#include "cli/failure.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

struct Answer {
  ExitCode code = ExitCode::done;
  std::string failure;  // the one line, unless `code` is done
  /// Also of a command that was refused: what it found out before.
  std::optional<Json> document;
  std::vector<std::string> warnings;
};

/// `goes_on` is asked now and then; what it throws, if that is no std::exception, passes through.
Answer answer(std::string_view command, std::vector<std::string> positionals,
              const std::vector<Given>& options, const Watch& goes_on);

}  // namespace spp::cli
