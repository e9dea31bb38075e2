#include "cli/answer.hpp"

#include "base/printable.hpp"

#include <utility>

namespace spp::cli {

Answer answer(std::string_view command, std::vector<std::string> positionals,
              const std::vector<Given>& options, const Watch& goes_on) {
  Answer result;
  Output output(goes_on);
  try {
    const Command& asked = command_named(command);
    const Arguments arguments(options_of(asked), std::move(positionals), options);
    expect_outputs(arguments);
    asked.run(arguments, output);
  } catch (...) {
    const Failure failure = current_failure();
    result.code = failure.code;
    result.failure = printable_line(failure.message);
  }
  result.document = output.document();
  result.warnings = output.warnings();
  return result;
}

}  // namespace spp::cli
