// Runs the real sp-plan and catches what it says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace spp::test {

struct Result {
  int code = -1;
  std::string out;
  std::string err;
  double core_seconds = 0;  // of a core, however busy the machine is
  long peak_kilobytes = 0;  // resident
};

struct RunOptions {
  std::string program = "cli/sp-plan";  // in the build tree
  std::map<std::string, std::string> environment;
  bool terminal = false;            // stdout is a terminal (a pseudo terminal, read into `out`)
  int columns = 0;                  // of that terminal; 0: it does not say
  std::string err_file;             // where stderr goes instead of `err`; "closed": it is
  std::string interrupt_at;         // once stderr has this, Ctrl-C is sent; empty: never
  std::uint64_t address_space = 0;  // bytes that the program may map; 0: no limit
  std::filesystem::path folder;     // where it starts; empty: where the tests run
  std::string input;                // what comes through a pipe on stdin; empty: /dev/null
  bool nobody = false;              // root's tests run it without root's rights
};

/// A sp-plan that runs meanwhile, of several that talk to each other.
class Running {
 public:
  /// `words` without the program's name.
  explicit Running(const std::vector<std::string>& words, const RunOptions& options = {});
  ~Running();
  Running(Running&& other) noexcept;
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  [[nodiscard]] int pid() const { return pid_; }
  /// Waits until it has ended.
  Result end();

 private:
  int pid_ = -1;  // -1: it has ended
  int out_ = -1, err_ = -1;
  std::string interrupt_at_;
};

/// `words` without the program's name.
Result sp_plan(const std::vector<std::string>& words, const RunOptions& options = {});
std::vector<std::string> words_of(const std::string& line);
/// The same; words are separated by spaces.
Result sp_plan(const std::string& line, const RunOptions& options = {});

}  // namespace spp::test
