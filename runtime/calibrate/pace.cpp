#include "runtime/calibrate/pace.hpp"

#include <algorithm>
#include <cmath>

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
  double once = 0;
  if (active_) {
    run(1);  // first touch of memory, primitives
    const double start = core_seconds();
    run(1);
    once = std::max(core_seconds() - start, 1e-9);
    repetitions_ = static_cast<int>(std::clamp(std::ceil(long_enough.count() / once), 1.0, 64.0));
  }
  cost_ = Seconds(all_gather_numbers(transport_, {once * (repetitions_ + 1)}).front().front());
}

void Pace::sample() {
  transport_.barrier();
  if (!active_) {
    return;
  }
  run(1);  // caches are full of other things
  const double start = core_seconds();
  run(repetitions_);
  samples_.push_back((core_seconds() - start) / repetitions_);
}

std::vector<double> Pace::of_all() const {
  const auto by_rank = all_gather_numbers(transport_, samples_);
  std::vector<double> all;
  for (std::size_t i = 0;; ++i) {
    const std::size_t before = all.size();
    for (const auto& samples : by_rank) {
      if (i < samples.size()) {
        all.push_back(samples[i]);
      }
    }
    if (all.size() == before) {
      return all;
    }
  }
}

void Pace::run(int repetitions) {
  for (int i = 0; i < repetitions; ++i) {
    operands_.run(kernels_, [] {});
  }
}

}  // namespace spp::runtime
