#include "cli/limits.hpp"

#include "base/available_memory.hpp"
#include "base/error.hpp"
#include "base/parse.hpp"
#include "cli/command.hpp"
#include "cli/human.hpp"

#include <cmath>
#include <limits>

namespace spp::cli {
namespace {

constexpr double ops_per_second = 1e6;
constexpr double most_seconds = 15 * 60;

/// "40 minutes", "3.2 days".
std::string duration(double seconds) {
  constexpr double minute = 60;
  constexpr double hour = 60 * minute;
  constexpr double day = 24 * hour;
  return seconds < 2 * hour  ? fmt::format("{:.0f} minutes", seconds / minute)
         : seconds < 2 * day ? fmt::format("{:.0f} hours", seconds / hour)
                             : fmt::format("{:.3g} days", seconds / day);
}

}  // namespace

Bytes usable_memory() {
  const Bytes available = available_memory();
  return available == Bytes(0)
             ? Bytes(std::numeric_limits<std::int64_t>::max())
             : Bytes(static_cast<std::int64_t>(memory_part * available.as_double()));
}

Effort search_limit(double seconds) {
  return {.ops = ops_per_second * seconds, .memory = usable_memory()};
}

void expect_feasible(const Arguments& arguments, const std::string& what, const Effort& effort,
                     const std::string& instead) {
  if (arguments.has("force")) {
    return;
  }
  if (const Bytes usable = usable_memory(); effort.memory > usable) {
    throw Refusal(
        ExitCode::infeasible,
        fmt::format("{} needs about {} of memory, and {} may be used ({:.0f} % of what "
                    "this machine has left): {}, or --force",
                    what, human(effort.memory), human(usable), 100 * memory_part, instead));
  }
  if (const double seconds = effort.ops / ops_per_second; seconds > most_seconds) {
    throw Refusal(ExitCode::infeasible,
                  fmt::format("{} takes about {} ({:.2g} ops), more than {}: {}, or --force", what,
                              duration(seconds), effort.ops, duration(most_seconds), instead));
  }
}

double seconds(const Arguments& arguments, std::string_view option, std::string_view otherwise) {
  constexpr double day = 86400;
  const std::string text = arguments.get(option, otherwise);
  const std::string where = fmt::format("--{}", option);
  const double value = parse_double(text, where);
  if (!(value > 0) || value > day) {
    throw InputError(where, fmt::format("'{}' is not above 0, up to {:.0f} seconds", text, day));
  }
  return value;
}

}  // namespace spp::cli
