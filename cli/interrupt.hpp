// Ctrl-C as a wish: a search that is asked to stop answers with what it has.
#pragma once

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

}  // namespace spp::cli
