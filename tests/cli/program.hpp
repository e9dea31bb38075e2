// Runs the real sp-plan and catches what it says.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace spp::test {

struct Result {
  int code = -1;
  std::string out;
  std::string err;
};

struct RunOptions {
  std::string program = "cli/sp-plan";  // in the build tree
  std::map<std::string, std::string> environment;
  bool terminal = false;              // stdout is a terminal (a pseudo terminal, read into `out`)
  std::filesystem::path folder = {};  // where it starts; empty: where the tests run
  std::string input = {};             // what comes through a pipe on stdin; empty: /dev/null
  bool nobody = false;                // root's tests run it without root's rights
};

/// `words` without the program's name.
Result sp_plan(const std::vector<std::string>& words, const RunOptions& options = {});
/// The same; words are separated by spaces.
Result sp_plan(const std::string& line, const RunOptions& options = {});

}  // namespace spp::test
