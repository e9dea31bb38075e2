// A command of sp-plan: one file each in cli/commands/, listed in cli/CMakeLists.txt, from which
// the table `commands::all()` is generated. Help, man page and completions are made from these
// tables.
#pragma once

#include "cli/options.hpp"
#include "cli/output.hpp"

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace spp::cli {

/// What sp-plan tells the shell.
enum class ExitCode : std::uint8_t {
  done = 0,
  failed = 1,      // a back end, or a bug
  usage = 2,       // wrong usage or input
  infeasible = 3,  // no legal plan, or nothing fits
  refused = 4      // a check or a gate failed
};

/// Ends a command whose answer is "no": one line on stderr and this exit code. The result, if there
/// is one, has been printed before.
class Refusal : public std::runtime_error {
 public:
  Refusal(ExitCode exit_code, const std::string& message)
      : std::runtime_error(message), code(exit_code) {}
  ExitCode code;
};

struct Command {
  std::string_view name;
  std::string_view summary;      // one line, for the list of commands
  std::string_view description;  // a paragraph
  std::string_view arguments;    // "" or "list | show NAME | check FILE"
  std::span<const OptionGroup> groups;
  std::span<const Option> options;  // its own
  std::string_view examples;        // lines "sp-plan …"
  void (*run)(const Arguments& arguments, Output& output);
  bool as_ranks = false;  // under a launcher its processes are the ranks of one run
  bool plain = false;     // its answer is text as it is (Output::plain), no document, no table
};

namespace commands {
/// All commands, in the order of cli/CMakeLists.txt. Generated.
std::span<const Command* const> all();
}  // namespace commands

/// Options of a command: shared groups first, then its own, then those of all commands that it has
/// a use for.
std::vector<Option> options_of(const Command& command);

/// The command called `name`; else InputError with "did you mean".
const Command& command_named(std::string_view name);

}  // namespace spp::cli
