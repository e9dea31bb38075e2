// sp-plan: finds the command, runs it, and turns what it throws into one line and an exit code.
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "cli/command.hpp"
#include "cli/help.hpp"
#include "runtime/comm/transport.hpp"

#include <chrono>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace spp::cli {
namespace {

ExitCode run(std::vector<std::string> words) {
  if (words.empty()) {
    throw InputError("", "a command is missing (see 'sp-plan --help')");
  }
  const std::string first = words.front();
  words.erase(words.begin());
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
  const Arguments arguments(options_of(command), words);
  if (arguments.has("help")) {
    Output::text(help_of(command, Style::of_stdout()));
    return ExitCode::done;
  }
  Output output(arguments);
  command.run(arguments, output);
  return ExitCode::done;
}

/// Under mpirun all processes read the same command line; one of them speaks.
bool speaks_for_all() {
  for (const runtime::TransportBackend* transport : runtime::transports::all()) {
    if (transport->launched_rank() > 0) {
      return false;
    }
  }
  return true;
}

void complain_once(std::string_view message) {
  if (speaks_for_all()) {
    complain(message);
  } else {
    // A launcher ends all processes when the first one has failed: let the speaker speak before.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
}

constexpr std::string_view out_of_memory =
    "out of memory: this machine, or what limits this process, has too little left for it";

int run_and_catch(std::vector<std::string> words) {
  ExitCode code = ExitCode::failed;
  try {
    code = run(std::move(words));
  } catch (const Refusal& e) {
    complain_once(e.what());
    code = e.code;
  } catch (const InputError& e) {
    complain_once(e.what());
    code = ExitCode::usage;
  } catch (const BackendError& e) {
    complain(e.what());
  } catch (const std::bad_alloc&) {
    complain_once(out_of_memory);
    code = ExitCode::infeasible;
  } catch (const std::length_error&) {  // of a container that could never be allocated
    complain_once(out_of_memory);
    code = ExitCode::infeasible;
  } catch (const std::exception& e) {
    complain(fmt::format("this is a bug, please report it: {}", e.what()));
  }
  return static_cast<int>(code);
}

}  // namespace
}  // namespace spp::cli

int main(int argc, char** argv) {
  return spp::cli::run_and_catch({argv + 1, argv + std::max(argc, 1)});
}
