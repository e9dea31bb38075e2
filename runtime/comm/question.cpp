#include "runtime/comm/question.hpp"

#include "base/hash.hpp"
#include "base/version.hpp"

#include <fmt/format.h>

namespace spp::runtime {

Question question_of(const RunSettings& settings) {
  Hash request;
  if (settings.request) {
    request.add(settings.request());
  }
  return {.program = fmt::format("{} ({})", version(), commit()),
          .request = settings.request ? request.value() : 0};
}

std::string another_version(std::string_view of_rank_0) {
  return fmt::format("another version: rank 0 is sp-plan {}", of_rank_0);
}

}  // namespace spp::runtime
