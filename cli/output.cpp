#include "cli/output.hpp"

#include "base/error.hpp"
#include "base/printable.hpp"
#include "runtime/comm/transport.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace spp::cli {
namespace {

using namespace std::chrono_literals;

bool is_scalar(const Json& value) { return !value.is_object() && !value.is_array(); }

/// Lists without objects stand in one line.
bool is_inline(const Json& value) {
  return is_scalar(value) ||
         (value.is_array() &&
          std::ranges::all_of(value, [](const Json& v) { return is_inline(v); })) ||
         (value.is_object() && value.empty());
}

void dump(const Json& value, std::string& out, std::size_t indent) {
  const std::string pad(indent + 2, ' ');
  if (is_scalar(value) || value.empty()) {
    out += value.dump(-1, ' ', false, Json::error_handler_t::replace);
  } else if (value.is_array() && is_inline(value)) {
    out += '[';
    for (std::size_t i = 0; i < value.size(); ++i) {
      out += i == 0 ? "" : ", ";
      dump(value[i], out, indent);
    }
    out += ']';
  } else if (value.is_array()) {
    out += "[\n";
    for (std::size_t i = 0; i < value.size(); ++i) {
      out += pad;
      dump(value[i], out, indent + 2);
      out += i + 1 < value.size() ? ",\n" : "\n";
    }
    out += std::string(indent, ' ') + "]";
  } else {
    out += "{\n";
    std::size_t i = 0;
    for (const auto& [key, member] : value.items()) {
      out += pad + Json(key).dump() + ": ";
      dump(member, out, indent + 2);
      out += ++i < value.size() ? ",\n" : "\n";
    }
    out += std::string(indent, ' ') + "}";
  }
}

/// NO_COLOR (no-color.org): set and not empty, no colours.
bool no_color() {
  const char* value = std::getenv("NO_COLOR");
  return value != nullptr && *value != '\0';
}

bool stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) == 1 &&
         std::ranges::all_of(runtime::transports::all(), [](const auto* transport) {
           return transport->launched_ranks() == 0;
         });
}

}  // namespace

Style Style::of_stdout() { return {.color = stdout_is_terminal() && !no_color()}; }
std::string Style::bold(std::string_view text) const {
  return color ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
}
std::string Style::dim(std::string_view text) const {
  return color ? fmt::format("\x1b[2m{}\x1b[0m", text) : std::string(text);
}

// ---- progress
// --------------------------------------------------------------------------------------

Progress::Progress(std::string what, bool quiet) : what_(printable_line(what)) {
  if (!quiet) {
    thread_ = std::jthread([this](const std::stop_token& stop) { tick(stop); });
  }
}

Progress::~Progress() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
}

void Progress::update(std::int64_t done, std::int64_t of) {
  const std::scoped_lock lock(mutex_);
  done_ = done;
  of_ = of;
}

void Progress::tick(const std::stop_token& stop) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  const auto start = std::chrono::steady_clock::now();
  std::chrono::milliseconds pause = 1000ms;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, stop, pause, [] { return false; }) && !stop.stop_requested()) {
    draw(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), terminal);
    // Elsewhere a line after 1, 11, 31, 71 seconds, then every minute.
    pause = terminal ? 200ms
                     : std::min<std::chrono::milliseconds>(drawn_ ? 2 * pause : 10000ms, 60000ms);
    drawn_ = true;
  }
  if (drawn_ && terminal) {
    std::fputs("\r\x1b[K", stderr);
  }
}

void Progress::draw(double seconds, bool terminal) {
  std::string line = what_;
  if (of_ > 0) {
    constexpr std::int64_t width = 30;
    if (terminal) {
      const auto full =
          static_cast<std::size_t>(std::clamp<std::int64_t>(done_ * width / of_, 0, width));
      line += fmt::format(" [{}{}]", std::string(full, '#'), std::string(width - full, '.'));
    }
    line += fmt::format(" {} of {}", done_, of_);
  }
  line += fmt::format(", {:.0f} s", seconds);
  fmt::print(stderr, "{}{}{}", terminal ? "\r\x1b[K" : "sp-plan: ", line, terminal ? "" : "\n");
  std::fflush(stderr);
}

// ---- results
// ---------------------------------------------------------------------------------------

Output::Output(const Arguments& arguments) : quiet_(arguments.has("quiet")) {
  if (arguments.has("json") && arguments.has("table")) {
    throw InputError("--json", "given together with --table; choose one");
  }
  file_ = arguments.get("output", "");
  table_ =
      !arguments.has("json") && (stdout_is_terminal() || arguments.has("table") || !file_.empty());
  style_ = Style::of_stdout();
  if (!file_.empty()) {
    expect_writable(file_, "--output");
  }
}

void Output::result(const Json& document,
                    const std::function<std::string(const Style&)>& table) const {
  const std::string shown = table_ ? printable_page(table(style_)) : "";
  const std::string json = !table_ || !file_.empty() ? to_text(document) : "";
  if (!file_.empty()) {
    write_file(file_, json);
  }
  text(table_ ? shown : json);
}

void Output::text(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) {
    throw BackendError("writing to stdout", "no space, or closed", 0);
  }
}

std::string to_text(const Json& document) {
  std::string out;
  dump(document, out, 0);
  out += '\n';
  return out;
}

void complain(std::string_view message) {
  fmt::print(stderr, "sp-plan: {}\n", printable_line(message));
}

}  // namespace spp::cli
