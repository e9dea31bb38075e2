// Errors by who can mend them: the user (InputError), us (InternalError), a back end
// (BackendError). An infeasible candidate is none of these: it is a result (`why_not`). Only cli/
// catches.
#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace spp {

/// Wrong input. `where` names the file and key or the option; the message names the value and what
/// would be right. One line, shown as "where: message".
class InputError : public std::runtime_error {
 public:
  InputError(std::string_view where, std::string_view message)
      : std::runtime_error(where.empty() ? std::string(message)
                                         : fmt::format("{}: {}", where, message)),
        message_at_(where.empty() ? 0 : where.size() + 2) {}
  /// What it was made of.
  [[nodiscard]] std::string_view where() const {
    return message_at_ == 0 ? "" : std::string_view(what()).substr(0, message_at_ - 2);
  }
  [[nodiscard]] std::string_view message() const {
    return std::string_view(what()).substr(message_at_);
  }

 private:
  std::size_t message_at_;
};

/// A broken invariant: our bug.
class InternalError : public std::logic_error {
 public:
  explicit InternalError(std::string_view message,
                         std::source_location at = std::source_location::current())
      : std::logic_error(fmt::format("internal error at {}:{} in {}: {}", at.file_name(), at.line(),
                                     at.function_name(), message)) {}
};

/// A failing library or device call: the call, the library's own text, the rank it happened on.
class BackendError : public std::runtime_error {
 public:
  BackendError(std::string_view call, std::string_view text, int rank)
      : std::runtime_error(fmt::format("{} failed on rank {}: {}", call, rank, text)) {}
  /// Of a process that is no rank.
  BackendError(std::string_view call, std::string_view text)
      : std::runtime_error(fmt::format("{} failed: {}", call, text)) {}
};

/// Throws InternalError with the caller's location when `ok` is false.
inline void ensure(bool ok, std::string_view what,
                   std::source_location at = std::source_location::current()) {
  if (!ok) {
    throw InternalError(what, at);
  }
}

}  // namespace spp
