// Ctrl-C as a wish: a search that is asked to stop answers with what it has. And what a program
// that Ctrl-C ends still says.
#pragma once

#include <string>

namespace spp::cli {

/// While one lives, the first SIGINT is only noted; the next one ends the program as ever.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  [[nodiscard]] static bool asked();
};

/// While one lives, a SIGINT writes that line to stderr before it ends the program as ever (shells
/// see 130). One at a time.
class LastWords {
 public:
  explicit LastWords(const std::string& line);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
};

}  // namespace spp::cli
