#include "runtime/calibrate/pace.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace spp::runtime {

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

}  // namespace spp::runtime
