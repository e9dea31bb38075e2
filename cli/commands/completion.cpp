// sp-plan completion: the completion script of a shell.
#include "cli/completion.hpp"

#include "base/error.hpp"
#include "cli/command.hpp"

namespace spp::cli::commands {
namespace {

void completion_command(const Arguments& arguments, Output& output) {
  if (arguments.positionals().size() != 1) {
    throw InputError("completion", "which shell? (one of: bash, zsh, fish)");
  }
  output.plain(completion_script(arguments.positionals()[0]));
}

}  // namespace

extern const Command completion{
    .name = "completion",
    .summary = "the completion script of a shell",
    .description = "Prints a completion script, made from the table of commands and options.",
    .arguments = "bash | zsh | fish",
    .groups = {},
    .options = {},
    .examples =
        "source <(sp-plan completion bash)\nsp-plan completion zsh > ~/.zfunc/_sp-plan\n"
        "sp-plan completion fish > ~/.config/fish/completions/sp-plan.fish",
    .run = completion_command,
    .plain = true,
};

}  // namespace spp::cli::commands
