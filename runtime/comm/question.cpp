#include "runtime/comm/question.hpp"

#include "base/version.hpp"

#include <fmt/format.h>

namespace spp::runtime {
namespace {

/// FNV-1a: tells what was asked for apart, by accident, not by intent.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace

Question question_of(const RunSettings& settings) {
  return {.program = fmt::format("{} ({})", version(), commit()),
          .request = settings.request ? hash_of(settings.request()) : 0};
}

std::string another_version(std::string_view of_rank_0) {
  return fmt::format("another version: rank 0 is sp-plan {}", of_rank_0);
}

}  // namespace spp::runtime
