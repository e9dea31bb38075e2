#include "cli/interrupt.hpp"

#include <atomic>
#include <csignal>

namespace spp::cli {
namespace {

/// Global: a signal's handler is given nothing.
std::atomic<bool> noted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void note(int /*signal*/) { noted = true; }

void handle(void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  (void)sigaction(SIGINT, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  noted = false;
  struct sigaction now{};
  if (sigaction(SIGINT, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {  // else: ignored, nohup
    handle(note);
  }
}

Interrupt::~Interrupt() {
  struct sigaction now{};
  if (sigaction(SIGINT, nullptr, &now) == 0 && now.sa_handler == note) {
    handle(SIG_DFL);
  }
}

bool Interrupt::asked() { return noted; }

}  // namespace spp::cli
