// sp-plan man: the man page.
#include "cli/command.hpp"
#include "cli/help.hpp"

namespace spp::cli::commands {
namespace {

void man_command(const Arguments& arguments, Output& output) {
  arguments.expect_no_positionals();
  output.plain(man_page());
}

}  // namespace

extern const Command man{
    .name = "man",
    .summary = "the man page, in roff",
    .description = "Prints the man page, made from the table of commands and options.",
    .arguments = "",
    .groups = {},
    .options = {},
    .examples = "sp-plan man | man -l -",
    .run = man_command,
    .plain = true,
};

}  // namespace spp::cli::commands
