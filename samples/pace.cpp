#include "samples/pace.hpp"

#include "base/median.hpp"
#include "samples/statistics.hpp"

#include <algorithm>
#include <string_view>

namespace spp {

AttentionBlock pace_block(DType dtype) {
  const TokenSet tokens(TokenRange{.begin = 0, .count = 512});
  return {
      .q = tokens, .k = tokens, .head_dim = 64, .mask = {.kind = MaskKind::full}, .dtype = dtype};
}

std::vector<double> over_pace(const Series& series) {
  std::vector<double> values = series.seconds;
  for (std::size_t i = 0; i < std::min(values.size(), series.pace.size()); ++i) {
    values[i] /= series.pace[i];
  }
  return values;
}

std::vector<Series> at_one_pace(std::vector<Series> series) {
  const auto pace = std::ranges::find(series, std::string_view("pace"), &Series::what);
  if (pace == series.end() || pace->seconds.empty()) {
    return series;
  }
  const double usual = median_of(pace->seconds);
  for (Series& s : series) {
    if (s.pace.size() == s.seconds.size()) {
      s.seconds = over_pace(s);
      std::ranges::for_each(s.seconds, [&](double& seconds) { seconds *= usual; });
    }
  }
  return series;
}

}  // namespace spp
