#include "runtime/calibrate/pace.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace spp::runtime {

AttentionBlock pace_block(DType dtype) {
  const TokenSet tokens(TokenRange{.begin = 0, .count = 512});
  return {
      .q = tokens, .k = tokens, .head_dim = 64, .mask = {.kind = MaskKind::full}, .dtype = dtype};
}

double slow_part(const std::vector<double>& samples) {
  if (samples.empty()) {
    return 0;
  }
  const double limit = 1.1 * median_of(samples);
  const auto slow = std::ranges::count_if(samples, [&](double s) { return s > limit; });
  return static_cast<double>(slow) / static_cast<double>(samples.size());
}

Pace::Pace(Transport& transport, AttentionKernels& kernels, DType dtype, bool active)
    : transport_(transport), kernels_(kernels), operands_(pace_block(dtype)), active_(active) {
  constexpr Seconds long_enough{0.002};
  transport_.barrier();
  if (active_) {
    run(1);  // first touch of memory, primitives
    const double start = core_seconds();
    run(1);
    const double once = std::max(core_seconds() - start, 1e-9);
    repetitions_ = static_cast<int>(std::clamp(std::ceil(long_enough.count() / once), 1.0, 64.0));
  }
}

std::vector<double> Pace::sample() {
  transport_.barrier();
  std::vector<double> mine;
  if (active_) {
    run(1);  // caches are full of other things
    const double start = core_seconds();
    run(repetitions_);
    mine.push_back((core_seconds() - start) / repetitions_);
  }
  std::vector<double> all;
  for (const auto& of_rank : all_gather_numbers(transport_, mine)) {
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  return all;
}

void Pace::run(int repetitions) {
  for (int i = 0; i < repetitions; ++i) {
    operands_.run(kernels_, [] {});
  }
}

Paced::Paced(Transport& transport, AttentionKernels& kernels, DType dtype, bool active)
    : pace_(transport, kernels, dtype, active), last_(pace_.sample()), all_(last_) {}

void Paced::beside(Series& series, Samples samples) {
  const std::vector<double> before = std::exchange(last_, pace_.sample());
  all_.insert(all_.end(), last_.begin(), last_.end());
  std::vector<double> beside;
  for (std::size_t rank = 0; rank < last_.size(); ++rank) {
    beside.push_back((before[rank] + last_[rank]) / 2);
  }
  if (samples != Samples::each) {
    beside = {std::reduce(beside.begin(), beside.end()) / static_cast<double>(beside.size())};
  }
  for (std::size_t i = 0; series.pace.size() < series.seconds.size(); ++i) {
    series.pace.push_back(beside[i % beside.size()]);
  }
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

}  // namespace spp::runtime
