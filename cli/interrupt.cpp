#include "cli/interrupt.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace spp::cli {
namespace {

/// Global: a signal's handler is given nothing.
std::atomic<bool> noted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void note(int /*signal*/) { noted = true; }

/// What speak() writes: filled before the handler stands, since a handler cannot allocate.
std::string& last_words() {
  static std::string words;
  return words;
}

/// SA_RESETHAND has put the default back: raised again, the signal ends the program.
extern "C" void speak(int signal) {
  const std::string& words = last_words();
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, words.data(), words.size());
  (void)std::raise(signal);
}

void handle(void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  (void)sigaction(SIGINT, &action, nullptr);
}

/// The one handler by the other, if it stands.
void replace(void (*standing)(int), void (*by)(int)) {
  struct sigaction now{};
  if (sigaction(SIGINT, nullptr, &now) == 0 && now.sa_handler == standing) {
    handle(by);
  }
}

}  // namespace

Interrupt::Interrupt() {
  noted = false;
  replace(SIG_DFL, note);  // else: ignored, nohup
}

Interrupt::~Interrupt() { replace(note, SIG_DFL); }

bool Interrupt::asked() { return noted; }

LastWords::LastWords(const std::string& line) {
  last_words() = fmt::format("\nsp-plan: {}\n", line);
  replace(SIG_DFL, speak);
}

LastWords::~LastWords() { replace(speak, SIG_DFL); }

}  // namespace spp::cli
