#include "base/chrome_trace.hpp"

#include "base/json.hpp"

#include <iterator>
#include <utility>

namespace spp {
namespace {

std::string quoted(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

template <class... Args>
void ChromeTrace::append(fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
}

void ChromeTrace::begin_line() {
  append("{}", separator_);
  separator_ = ",\n";
}

ChromeTrace::ChromeTrace(std::string_view title) {
  append("{{\"displayTimeUnit\": \"ms\", \"otherData\": {{\"title\": {}}},\n\"traceEvents\": [",
         quoted(title));
}

void ChromeTrace::name_process(int process, std::string_view name) {
  begin_line();
  append("{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": {}, \"args\": {{\"name\": {}}}}}",
         process, quoted(name));
}

void ChromeTrace::name_thread(int process, int thread, std::string_view name) {
  begin_line();
  append(
      "{{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": {}, \"tid\": {}, \"args\": "
      "{{\"name\": {}}}}}",
      process, thread, quoted(name));
}

void ChromeTrace::add(const Bar& bar) {
  begin_line();
  append("{{\"name\": \"{}\", ", bar.name);
  if (!bar.category.empty()) {
    append("\"cat\": \"{}\", ", bar.category);
  }
  append("\"ph\": \"X\", \"pid\": {}, \"tid\": {}, \"ts\": {}, \"dur\": {}, \"args\": {{{}}}}}",
         bar.process, bar.thread, bar.begin * 1e6, (bar.end - bar.begin) * 1e6, bar.args);
}

std::string ChromeTrace::take() {
  append("\n]}}\n");
  return fmt::to_string(text_);
}

}  // namespace spp
