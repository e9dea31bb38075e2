#include "machine/gemm_format.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

namespace spp {
namespace {

constexpr std::array<std::string_view, 5> gemm_formats{"plain", "fp8", "fp8-block", "mxfp8",
                                                       "nvfp4"};

}  // namespace

std::string_view to_string(GemmFormat format) {
  return gemm_formats.at(static_cast<std::size_t>(format));
}

GemmFormat parse_gemm_format(std::string_view text, std::string_view where) {
  for (std::size_t i = 0; i < gemm_formats.size(); ++i) {
    if (gemm_formats.at(i) == text) {
      return static_cast<GemmFormat>(i);
    }
  }
  const std::vector<std::string> words(gemm_formats.begin(), gemm_formats.end());
  throw InputError(where,
                   fmt::format("unknown number format '{}'{}", text, did_you_mean(text, words)));
}

}  // namespace spp
