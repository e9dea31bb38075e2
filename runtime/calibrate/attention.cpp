// Attention kernels on the blocks of plans. As many ranks of a host run at a time as have a core of
// their own: in a plan all cores work, and they share caches, memory and clock. Operands come from
// several copies in turn, so that none of them waits in a cache of the core; in a plan, too, keys
// and values have just come from another rank.
#include "base/median.hpp"
#include "runtime/calibrate/operands.hpp"
#include "runtime/calibrate/pace.hpp"
#include "runtime/calibrate/probes.hpp"
#include "runtime/calibrate/suites.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

namespace spp::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t cold_bytes = 16 << 20;  // several times a core's own cache
constexpr std::int64_t most_copies = 16;

class Attention {
 public:
  Attention(const Bench& bench, const AttentionBackend& backend)
      : bench_(bench), backend_(backend), kernels_(backend.make()), poll_([this] {
          bench_.transport.working();
          bench_.transport.progress();
        }) {}

  void peak() {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      if (!backend_.why_not(dtype).empty()) {
        continue;
      }
      const TokenSet tokens(TokenRange{.begin = 0, .count = 512});
      const AttentionBlock block{.q = tokens,
                                 .k = tokens,
                                 .head_dim = 512,
                                 .mask = {.kind = MaskKind::full},
                                 .dtype = dtype};
      Series series = attention_probes({block}, "peak", crew_of(bench_)).front().series;
      add_samples(series,
                  {.least = enough(), .budget = bench_.budget * 0.03, .longest = bench_.budget});
      keep(std::move(series));
    }
  }

  /// In sweeps: one visit to every block, then the next visit to every one, until all medians are
  /// known well or time is up. What the pace does not tell of a machine that is slower for some
  /// seconds, spoils some samples of many blocks, which their medians pass over, and not all
  /// samples of some, which would look like those blocks' own cost. Where there is no time for all
  /// of them, those left out lie between others, since their times will be interpolated.
  void blocks(const std::vector<AttentionBlock>& blocks) {
    constexpr int most_sweeps = 64;
    std::vector<Probe> probes = attention_probes(blocks, "attention", crew_of(bench_));
    if (probes.empty()) {
      return;
    }
    const std::vector<std::size_t> order = ends_then_middles(probes.size());
    Paced pace(bench_.transport, *kernels_, blocks.front().dtype, has_core(bench_));
    for (int sweep = 0; sweep < most_sweeps; ++sweep) {
      bool all_known = true;
      for (const std::size_t at : order) {
        Series& series = probes[at].series;
        if (sweep > 0 && (series.seconds.empty() || is_known(series))) {
          continue;
        }
        // The smallest one is measured whatever it takes: a profile without any is none.
        const bool must = sweep == 0 && at == 0;
        const Seconds left = must ? forever : bench_.budget - elapsed();
        if (left > Seconds(0)) {
          const int rounds = must ? enough() : sweep == 0 ? 2 : 1;
          const Seconds once(sweep == 0 ? 0 : median_of(series.seconds));
          add_samples(series, {.least = rounds, .most = rounds, .longest = left, .once = once});
          pace.beside(series, Samples::each);
          all_known = false;
        }
      }
      if (all_known) {
        break;
      }
    }
    for (Probe& probe : probes) {
      keep(std::move(probe.series));
    }
    Series series = attention_probes({pace_block(blocks.front().dtype)}, "pace", crew_of(bench_))
                        .front()
                        .series;
    series.seconds = pace.of_all();
    keep(std::move(series));
  }

  std::vector<Series> series() { return std::move(series_); }

 private:
  static constexpr Seconds forever{std::numeric_limits<double>::infinity()};

  /// Rounds in which all ranks together take the least number of samples.
  [[nodiscard]] int enough() const {
    return std::max(2, (Patient{}.least + with_core(bench_) - 1) / with_core(bench_));
  }

  static bool is_known(const Series& series) {
    constexpr double well = 0.01;
    return std::ssize(series.seconds) >= Patient{}.least &&
           error_of_median(over_pace(series)) <= well;
  }

  /// On rank 0's clock, which all go by.
  Seconds elapsed() {
    const Seconds mine = Clock::now() - start_;
    return Seconds(all_gather_numbers(bench_.transport, {mine.count()}).front().front());
  }

  /// None if they would take too long.
  void add_samples(Series& series, const Patient& patient) {
    const AttentionBlock& block = *series.block;
    const bool active = has_core(bench_);
    std::vector<BlockOperands> copies;
    if (active) {
      copies.emplace_back(block);
      const std::int64_t wanted = std::clamp<std::int64_t>(
          cold_bytes / std::max<std::int64_t>(1, copies.front().bytes()) + 1, 2, most_copies);
      while (static_cast<std::int64_t>(copies.size()) < wanted) {
        copies.emplace_back(block);
      }
    }
    std::size_t turn = 0;
    const auto seconds =
        measure(bench_.transport, patient, Samples::each, active, [&](int repetitions) {
          for (int i = 0; i < repetitions; ++i) {
            copies[turn++ % copies.size()].run(*kernels_, poll_);
          }
        });
    series.seconds.insert(series.seconds.end(), seconds.begin(), seconds.end());
  }

  void keep(Series series) {
    if (!series.seconds.empty()) {
      series_.push_back(std::move(series));
    }
  }

  const Bench& bench_;
  const AttentionBackend& backend_;
  std::unique_ptr<AttentionKernels> kernels_;
  Poll poll_;
  Clock::time_point start_ = Clock::now();
  std::vector<Series> series_;
};

}  // namespace

std::vector<Series> attention_suite(const Bench& bench, const AttentionBackend& kernels,
                                    const std::vector<AttentionBlock>& blocks) {
  Attention attention(bench, kernels);
  attention.peak();
  attention.blocks(blocks);
  return attention.series();
}

}  // namespace spp::runtime
