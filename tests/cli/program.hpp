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
  std::string interrupt_at;         // once stderr has this, Ctrl-C is sent; empty: never
  std::uint64_t address_space = 0;  // bytes that the program may map; 0: no limit
};

/// `words` without the program's name.
Result sp_plan(const std::vector<std::string>& words, const RunOptions& options = {});
/// The same; words are separated by spaces.
Result sp_plan(const std::string& line, const RunOptions& options = {});

}  // namespace spp::test
