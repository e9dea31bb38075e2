#include "base/document.hpp"

#include "base/version.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <ctime>

namespace spp {

Json document(std::string_view kind) {
  return {{"format", fmt::format("sp-plan/{}", kind)},
          {"format_version", "1.0"},
          {"tool_version", fmt::format("{} ({})", version(), commit())}};
}

Json headed(std::string_view kind, std::string_view name) {
  return {{"format", fmt::format("sp-plan/{}", kind)}, {"format_version", "1.0"}, {"name", name}};
}

std::string utc(const char* form) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 64> text{};
  (void)std::strftime(text.data(), text.size(), form, &parts);
  return text.data();
}

}  // namespace spp
