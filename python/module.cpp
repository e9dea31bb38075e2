// sp_plan._native: the commands of cli/ and their tables, for sp_plan/__init__.py, which gives them
// names, signatures and exceptions. The GIL is released while a command works.
#include "base/error.hpp"
#include "base/version.hpp"
#include "cli/answer.hpp"
#include "cli/help.hpp"
#include "python/convert.hpp"

#include <chrono>
#include <optional>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace spp::python {
namespace {

namespace py = pybind11;

/// Python has an exception to raise. No std::exception, so that nobody takes it for one of ours.
struct Raised {};

/// Lets Python's signal handlers run, which in its main thread raise KeyboardInterrupt. Threads
/// that a command starts have none.
class Signals {
 public:
  bool operator()(double /*done*/, double /*of*/) {
    constexpr std::chrono::milliseconds pause{50};
    if (std::this_thread::get_id() != caller_) {
      return true;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < pause) {
      return true;
    }
    last_ = now;
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) {
      throw Raised();  // what it was stays set in this thread
    }
    return true;
  }

 private:
  std::thread::id caller_ = std::this_thread::get_id();
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// name -> text, True for a switch, or a document.
std::vector<cli::Given> given_of(const py::dict& options) {
  std::vector<cli::Given> given;
  for (const auto& [key, value] : options) {
    cli::Given& option = given.emplace_back(cli::Given{.option = key.cast<std::string>()});
    if (py::isinstance<py::str>(value)) {
      option.text = value.cast<std::string>();
    } else if (!py::isinstance<py::bool_>(value)) {
      option.document = to_json(value, fmt::format("--{}", option.option));
    }
  }
  return given;
}

/// (exit code, line, document or None, warnings)
py::tuple answer(const std::string& command, std::vector<std::string> positionals,
                 const py::dict& options) {
  cli::Answer result;
  try {
    const std::vector<cli::Given> given = given_of(options);
    const py::gil_scoped_release released;
    result = cli::answer(command, std::move(positionals), given, Signals());
  } catch (const InputError& e) {  // of a document
    result = {.code = cli::ExitCode::usage, .failure = e.what()};
  } catch (const Raised&) {
    throw py::error_already_set();
  }
  return py::make_tuple(static_cast<int>(result.code), result.failure,
                        result.document ? to_python(*result.document) : py::none(),
                        result.warnings);
}

/// The table of commands and their options, for signatures, help and stubs.
py::list commands() {
  py::list list;
  for (const cli::Command* command : cli::commands::all()) {
    py::list options;
    for (const cli::Option& option : cli::options_of(*command)) {
      if (option.group != cli::OptionGroup::output) {
        options.append(py::make_tuple(std::string(option.name), std::string(option.value),
                                      std::string(option.help), cli::choices_of(option)));
      }
    }
    list.append(py::make_tuple(std::string(command->name), std::string(command->description),
                               std::move(options)));
  }
  return list;
}

}  // namespace
}  // namespace spp::python

PYBIND11_MODULE(_native, module) {
  module.attr("version") = std::string(spp::version());
  module.def("version_text", &spp::cli::version_text);
  module.def("commands", &spp::python::commands);
  module.def("answer", &spp::python::answer);
}
