// Where results go: stdout carries one document, stderr everything else.
//
//   stdout                  a terminal, --table or -o: the table; else, or with --json: JSON.
//                           A rank's is no terminal: some launchers (Open MPI's mpirun) give every
//                           rank one of its own, whatever theirs is
//   -o FILE                 the JSON, whole or not at all
//   progress                stderr, only after a second: a bar on a terminal, else a line now and
//                           then; --quiet: never
#pragma once

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/progress.hpp"
#include "cli/options.hpp"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

namespace spp::cli {

/// How text for people looks: colours only on a terminal without NO_COLOR.
struct Style {
  bool color = false;
  /// That of stdout.
  static Style of_stdout();
  [[nodiscard]] std::string bold(std::string_view text) const;
  [[nodiscard]] std::string dim(std::string_view text) const;
};

/// Tells on stderr that work goes on, how much of it is done and how long the rest takes, as far as
/// that is known. The clock starts with it, its end wipes the bar.
class Progress {
 public:
  /// `unit`: of what is counted, "ops".
  Progress(std::string what, bool quiet, std::string unit = "");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// `of` = 0: not known.
  void update(double done, double of);
  /// The same for libraries; never gives up. This must outlive it.
  [[nodiscard]] Watch watch();

 private:
  void tick(const std::stop_token& stop);
  void draw(double seconds, bool terminal);

  std::string what_, unit_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  double done_ = 0;
  double of_ = 0;
  bool drawn_ = false;
  std::jthread thread_;  // last: it uses the others
};

class Output {
 public:
  /// `launched`: this is one of a launcher's processes. InputError if the options contradict each
  /// other or FILE cannot be written.
  Output(const Arguments& arguments, bool launched);

  [[nodiscard]] bool quiet() const { return quiet_; }
  /// Prints a result. `table` is called only when the table is wanted.
  void result(const Json& document, const std::function<std::string(const Style&)>& table) const;
  /// Prints text as it is (completions, man page).
  static void text(std::string_view text);

 private:
  bool table_ = true;
  bool quiet_ = false;
  Style style_;
  std::string file_;
};

/// "12M of 48M ops, about 35 s left": what Progress shows of `done` of `of` after `seconds`.
std::string progress_text(double done, double of, std::string_view unit, double seconds);

/// JSON made for people too: objects indented, lists of scalars in one line. Ends with a newline.
std::string to_text(const Json& document);

/// Writes to stderr: "sp-plan: …" in one line. A stderr that cannot be written costs the message
/// only.
void complain(std::string_view message) noexcept;

}  // namespace spp::cli
