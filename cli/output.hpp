// Whom a command answers: a shell, or a caller in this process (python/).
//
// To a shell stdout carries one document, stderr everything else.
//
//   stdout                  a terminal, --table or -o: the table; else, or with --json: JSON.
//                           A rank's is no terminal: some launchers (Open MPI's mpirun) give every
//                           rank one of its own, whatever theirs is
//   -o FILE                 the JSON, whole or not at all
//   progress                stderr, only after a second: a bar on a terminal, else a line now and
//                           then; --quiet: never
//
// A caller is given the document and the warnings, and is asked now and then whether to go on; for
// it nothing is printed.
#pragma once

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/progress.hpp"
#include "cli/human.hpp"
#include "cli/interrupt.hpp"
#include "cli/options.hpp"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace spp::cli {

/// How text for people looks: colours only on a terminal that has them, without NO_COLOR; as wide
/// as the terminal, elsewhere 100 characters.
struct Style {
  bool color = false;
  std::size_t width = 100;
  /// That of stdout.
  static Style of_stdout();
  [[nodiscard]] std::string bold(std::string_view text) const;
  [[nodiscard]] std::string dim(std::string_view text) const;
};

/// What Ctrl-C does to a program: ends it, or stops the work, which answers with what it has.
enum class OnInterrupt : std::uint8_t { ends, stops };

/// Tells on stderr that work goes on, how much of it is done and how long the rest takes, as far as
/// that is known; or tells a caller. The clock starts with it, its end wipes the bar.
class Progress {
 public:
  /// `unit`: of what is counted, "ops".
  Progress(std::string_view what, bool quiet, std::string unit = "",
           OnInterrupt on_interrupt = OnInterrupt::ends);
  /// `caller` hears it instead.
  explicit Progress(Watch caller) : caller_(std::move(caller)) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// The next part of the work begins.
  void turn_to(std::string_view what);
  /// `of` = 0: not known. False: nobody waits any more, give up.
  bool update(double done, double of);
  /// The same for libraries. This must outlive it.
  [[nodiscard]] Watch watch();

 private:
  void tick(const std::stop_token& stop);
  void draw(double seconds, bool terminal);

  std::string what_, unit_;
  Watch caller_;
  std::optional<Interrupt> interrupt_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  double done_ = 0;
  double of_ = 0;
  bool drawn_ = false;
  std::jthread thread_;  // last: it uses the others
};

/// Refuses files that options write and that cannot be written, or that another option or an
/// argument names, too: one of the two would be lost. InputError names the option.
void expect_outputs(const Arguments& arguments);

class Output {
 public:
  /// A shell. `launched`: this is one of a launcher's processes. InputError if the options
  /// contradict each other, or stdout would carry more than the result.
  Output(const Arguments& arguments, bool launched);
  /// A caller in this process; what `goes_on` throws ends the command.
  explicit Output(Watch goes_on) : table_(false), quiet_(true), caller_(std::move(goes_on)) {}

  [[nodiscard]] bool quiet() const { return quiet_; }
  /// The answer. `table` is called only when the table is wanted.
  void result(const Json& document, const std::function<std::string(const Style&)>& table);
  /// What the answer does not say for itself.
  void warn(const std::vector<std::string>& warnings);
  /// Of work that may take longer than a second; hands on what it is told.
  [[nodiscard]] Progress progress(std::string_view what, std::string unit = "",
                                  OnInterrupt on_interrupt = OnInterrupt::ends) const;

  /// For a caller: the answer, if there was one.
  [[nodiscard]] const std::optional<Json>& document() const { return document_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

  /// Prints text as it is.
  static void text(std::string_view text);
  /// An answer that is neither a document nor a table (man page, completions): to stdout, or with
  /// -o to the file, whole or not at all; to a caller as a string.
  void plain(std::string_view text);

 private:
  bool table_ = true;
  bool quiet_ = false;
  Style style_;
  std::string file_;
  Watch caller_;  // none: a shell
  std::optional<Json> document_;
  std::vector<std::string> warnings_;
};

/// "12M of 48M ops, about 35 s left": what Progress shows of `done` of `of` after `seconds`.
std::string progress_text(double done, double of, std::string_view unit, double seconds);

/// The first row as heading, lines at most as wide as they may be.
std::string headed(const Table& table, const Style& style);

/// JSON made for people too: objects indented, lists of scalars and short objects of scalars in one
/// line. Ends with a newline.
std::string to_text(const Json& document);

/// Writes to stderr: "sp-plan: …" in one line. A stderr that cannot be written costs the message
/// only.
void complain(std::string_view message) noexcept;

}  // namespace spp::cli
