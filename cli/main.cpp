// sp-plan: finds the command, runs it, and turns what it throws into one line and an exit code.
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "base/suggest.hpp"
#include "cli/backend.hpp"
#include "cli/command.hpp"
#include "cli/failure.hpp"
#include "cli/help.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

namespace spp::cli {
namespace {

/// What this process is to a launcher, by all words of its command line.
Launched launched_as(const std::vector<std::string>& words) {
  const bool as_ranks = std::ranges::any_of(commands::all(), [&](const Command* command) {
    return command->as_ranks && !words.empty() && command->name == words.front();
  });
  return as_ranks ? launched_by(words) : Launched{};
}

ExitCode run(const std::vector<std::string>& line) {
  if (line.empty()) {
    throw InputError("", "a command is missing (see 'sp-plan --help')");
  }
  const std::string& first = line.front();
  const std::vector<std::string> words(line.begin() + 1, line.end());
  if (first == "--version" || first == "-V") {
    Output::text(version_text());
    return ExitCode::done;
  }
  if (first == "--help" || first == "-h" || (first == "help" && words.empty())) {
    Output::text(overview(Style::of_stdout()));
    return ExitCode::done;
  }
  if (first == "help") {
    Output::text(help_of(command_named(words.front()), Style::of_stdout()));
    return ExitCode::done;
  }
  if (first.starts_with('-')) {
    const std::vector<std::string> known{"--help", "--version"};
    throw InputError(
        first, fmt::format("unknown option{}; a command comes first", did_you_mean(first, known)));
  }
  const Command& command = command_named(first);
  Arguments arguments(options_of(command), words);
  if (arguments.has("help")) {
    Output::text(help_of(command, Style::of_stdout()));
    return ExitCode::done;
  }
  const Launched launched = launched_as(line);
  Output output(arguments, launched.ranks > 0);
  if (launched.rank == 0) {  // the others write nothing, and may be where nothing can be written
    expect_outputs(arguments);
  }
  arguments.take_handed_over();
  command.run(arguments, output);
  return ExitCode::done;
}

/// Processes of a launcher that are the ranks of one run mostly refuse alike, and rank 0 says why.
/// What holds on another rank's host alone, nobody else can say. Processes of all other commands
/// speak for themselves, whoever started them.
void complain_as_rank(std::string_view message, const std::vector<std::string>& words) {
  const int rank = launched_as(words).rank;
  if (rank == 0) {
    complain(message);
    return;
  }
  // A launcher ends all processes when the first one has failed: rank 0 comes before.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  complain(fmt::format("rank {} on {}: {}", rank, host_name(), message));
}

int run_and_catch(const std::vector<std::string>& words) {
  try {
    return static_cast<int>(run(words));
  } catch (...) {
    const Failure failure = current_failure();
    if (failure.of_this_rank) {
      complain(failure.message);
    } else {
      complain_as_rank(failure.message, words);
    }
    return static_cast<int>(failure.code);
  }
}

/// Where a caller has closed stdin, stdout or stderr, the next file that is opened would take its
/// place, and what is printed would go there. A result that nobody can read is a failure: stdout is
/// opened such that writing fails.
void open_standard_files() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(file, F_GETFD) == -1 && errno == EBADF) {
      // takes the lowest free number, which is this one
      (void)::open("/dev/null", file == STDOUT_FILENO ? O_RDONLY : O_RDWR);
    }
  }
}

}  // namespace
}  // namespace spp::cli

int main(int argc, char** argv) {
  spp::cli::open_standard_files();
  // A file beyond `ulimit -f` is then an error of its write, which leaves nothing half-written.
  (void)std::signal(SIGXFSZ, SIG_IGN);
  return spp::cli::run_and_catch({argv + 1, argv + std::max(argc, 1)});
}
