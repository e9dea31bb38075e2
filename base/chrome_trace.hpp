// The Trace Event Format of Chrome and Perfetto (ui.perfetto.dev), written: bars on threads of
// processes.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace spp {

class ChromeTrace {
 public:
  struct Bar {
    std::string_view name;
    std::string_view category;  // "": none
    int process = 0, thread = 0;
    double begin = 0, end = 0;  // seconds
    std::string_view args;      // members of a JSON object
  };

  explicit ChromeTrace(std::string_view title);
  void name_process(int process, std::string_view name);
  void name_thread(int process, int thread, std::string_view name);
  void add(const Bar& bar);
  /// The document. Nothing can be added then.
  std::string take();

 private:
  template <class... Args>
  void append(fmt::format_string<Args...> format, Args&&... args);
  void begin_line();

  fmt::memory_buffer text_;
  std::string_view separator_ = "\n";
};

}  // namespace spp
