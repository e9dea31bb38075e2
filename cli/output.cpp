#include "cli/output.hpp"

#include "base/error.hpp"
#include "base/printable.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

/// An object of few scalars, if a line has room for it.
std::string as_line(const Json& value, std::size_t indent) {
  constexpr std::size_t width = 100;
  if (!value.is_object() ||
      !std::ranges::all_of(value, [](const Json& member) { return is_scalar(member); })) {
    return "";
  }
  std::string line;
  for (const auto& [key, member] : value.items()) {
    line += fmt::format("{}{}: {}", line.empty() ? "{" : ", ", Json(key).dump(),
                        member.dump(-1, ' ', false, Json::error_handler_t::replace));
    if (indent + line.size() >= width) {
      return "";
    }
  }
  return line + "}";
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
  } else if (const std::string line = as_line(value, indent); !line.empty() && indent > 0) {
    out += line;
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

/// A variable of the environment; "" if it is not set.
std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// NO_COLOR (no-color.org): set and not empty, no colours. A dumb terminal has none.
bool no_color() { return !variable("NO_COLOR").empty() || variable("TERM") == "dumb"; }

/// Of stdout's terminal; as wide as tables may be at most where it does not say.
std::size_t terminal_width() {
  constexpr std::size_t least = 60;
  constexpr std::size_t usual = 100;
  constexpr std::size_t most = 160;  // longer lines are hard to read
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return usual;
  }
  return std::clamp<std::size_t>(size.ws_col, least, most);
}

/// Whether the locale was set to one that has ASCII alone. Not set at all it says nothing.
bool ascii_only() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const std::string_view locale = variable(name); !locale.empty()) {
      return locale == "C" || locale == "POSIX";
    }
  }
  return false;
}

/// What tables have beyond ASCII, spelled in ASCII with as many characters.
std::string in_ascii(std::string text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> spellings{
      {{"±", "~"}, {"…", "."}, {"×", "x"}, {"·", "."}, {"–", "-"}, {"≥", ">"}}};
  for (const auto& [from, to] : spellings) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }

/// Not fmt::print, which throws when nothing can be written: what is said beside the result must
/// not cost the result.
void say(std::string_view text) noexcept {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
  (void)std::fflush(stderr);
}

}  // namespace

Style Style::of_stdout() {
  Style style;
  if (stdout_is_terminal()) {
    style.color = !no_color();
    style.width = terminal_width();
  }
  return style;
}
std::string Style::bold(std::string_view text) const {
  return color ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
}
std::string Style::dim(std::string_view text) const {
  return color ? fmt::format("\x1b[2m{}\x1b[0m", text) : std::string(text);
}

// ---- progress
// --------------------------------------------------------------------------------------

Progress::Progress(std::string_view what, bool quiet, std::string unit, OnInterrupt on_interrupt)
    : what_(printable_line(what)), unit_(std::move(unit)) {
  if (on_interrupt == OnInterrupt::stops) {
    interrupt_.emplace();
  }
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

void Progress::turn_to(std::string_view what) {
  const std::scoped_lock lock(mutex_);
  what_ = printable_line(what);
  done_ = of_ = 0;
}

Watch Progress::watch() {
  return [this](double done, double of) { return update(done, of); };
}

bool Progress::update(double done, double of) {
  if (caller_) {
    return caller_(done, of);
  }
  const std::scoped_lock lock(mutex_);
  done_ = done;
  of_ = of > 0 ? std::max(of, done) : of;  // how much it is may be an estimate
  return !interrupt_ || !Interrupt::asked();
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
    say("\r\x1b[K");
  }
}

std::string progress_text(double done, double of, std::string_view unit, double seconds) {
  const auto count = [](double value) {
    return value < 1e4   ? fmt::format("{:.0f}", value)
           : value < 1e6 ? fmt::format("{:.0f}K", value / 1e3)
           : value < 1e9 ? fmt::format("{:.0f}M", value / 1e6)
                         : fmt::format("{:.3g}G", value / 1e9);
  };
  done = std::min(done, of);  // `of` may have been a little too small a guess
  std::string text = fmt::format("{} of {}", count(done), count(of));
  if (!unit.empty()) {
    text += fmt::format(" {}", unit);
  }
  if (done > 0) {
    const bool may_end = unit.ends_with("at most");  // a search long before its budget is spent
    text += fmt::format(", {} {:.0f} s left", may_end ? "at most" : "about",
                        seconds * (of - done) / done);
  }
  return text;
}

void Progress::draw(double seconds, bool terminal) {
  std::string line = what_;  // "searching," before how much of it
  if (of_ <= 0 && line.ends_with(',')) {
    line.pop_back();
  }
  if (of_ > 0) {
    constexpr std::size_t width = 30;
    if (terminal) {
      const auto full = static_cast<std::size_t>(std::clamp(done_ / of_, 0.0, 1.0) * width);
      line += fmt::format(" [{}{}]", std::string(full, '#'), std::string(width - full, '.'));
    }
    line += " " + progress_text(done_, of_, unit_, seconds);
  }
  line += fmt::format(", {:.0f} s so far", seconds);
  say(fmt::format("{}{}{}", terminal ? "\r\x1b[K" : "sp-plan: ", line, terminal ? "" : "\n"));
}

// ---- results
// ---------------------------------------------------------------------------------------

Output::Output(const Arguments& arguments, bool launched) : quiet_(arguments.has("quiet")) {
  const auto wants = [&](std::string_view option) {  // not every command has it
    const auto& all = arguments.options();
    return std::ranges::find(all, option, &Option::name) != all.end() && arguments.has(option);
  };
  if (wants("json") && wants("table")) {
    throw InputError("--json", "given together with --table; choose one");
  }
  file_ = arguments.get("output", "");
  const bool terminal = stdout_is_terminal() && !launched;
  table_ = !wants("json") && (terminal || wants("table") || !file_.empty());
  if (terminal) {
    style_ = Style::of_stdout();
  }
  for (const Option& o : arguments.options()) {
    if (o.writes && o.name != "output" && arguments.has(o.name) &&
        is_same_file(arguments.get(o.name, ""), "/dev/stdout")) {
      throw InputError(fmt::format("--{}", o.name),
                       fmt::format("'{}' is where the result is printed; give another file",
                                   arguments.get(o.name, "")));
    }
  }
}

void expect_outputs(const Arguments& arguments) {
  for (const Option& written : arguments.options()) {
    const auto file = written.writes ? arguments.find(written.name) : std::nullopt;
    if (!file) {
      continue;
    }
    const std::string where = fmt::format("--{}", written.name);
    expect_writable(*file, where);
    const auto expect_other = [&](const std::string& other, const std::string& whose) {
      if (is_same_file(*file, other)) {
        throw InputError(where, fmt::format("'{}' is {}, too", *file, whose));
      }
    };
    for (const Option& o : arguments.options()) {
      const std::string name = o.name == written.name ? "" : arguments.get(o.name, "");
      if (o.writes ? !name.empty() : is_readable_file(name)) {
        expect_other(name, fmt::format("--{}'s file", o.name));
      }
    }
    for (const std::string& name : arguments.positionals()) {
      if (is_readable_file(name)) {
        expect_other(name, "a file that is read");
      }
    }
  }
}

void Output::result(const Json& document, const std::function<std::string(const Style&)>& table) {
  if (caller_) {
    document_ = document;
    return;
  }
  const std::string page = table_ ? printable_page(table(style_)) : "";
  const std::string shown = ascii_only() ? in_ascii(page) : page;
  const std::string json = !table_ || !file_.empty() ? to_text(document) : "";
  if (!file_.empty()) {
    write_file(file_, json);
  }
  text(table_ ? shown : json);
}

void Output::warn(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    if (caller_) {
      warnings_.push_back(warning);
    } else {
      complain(fmt::format("warning: {}", warning));
    }
  }
}

Progress Output::progress(std::string_view what, std::string unit, OnInterrupt on_interrupt) const {
  return caller_ ? Progress(caller_) : Progress(what, quiet_, std::move(unit), on_interrupt);
}

void Output::text(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) {
    throw BackendError("writing to stdout", "no space, or closed");
  }
}

void Output::plain(std::string_view text) {
  if (caller_) {
    document_ = Json(text);
    return;
  }
  if (file_.empty()) {
    Output::text(text);
  } else {
    write_file(file_, text);
  }
}

std::string headed(const Table& table, const Style& style) {
  std::string text;
  for (const std::string& line : table.lines()) {
    const std::string fitting = shortened(line, style.width);
    text += (text.empty() ? style.bold(fitting) : fitting) + "\n";
  }
  return text;
}

std::string to_text(const Json& document) {
  std::string out;
  dump(document, out, 0);
  out += '\n';
  return out;
}

void complain(std::string_view message) noexcept {
  try {
    say(fmt::format("sp-plan: {}\n", printable_line(message)));
  } catch (const std::exception&) {  // no memory for a line of text
    say("sp-plan: out of memory\n");
  }
}

}  // namespace spp::cli
