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
#include <map>

namespace spp::runtime {
namespace {

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

  /// The smallest block of each phase first, whatever it takes: a profile without any is none. Then
  /// in sweeps: one visit to every block, then the next visit to every one, until all medians are
  /// known well or time is up. What the pace does not tell of a machine that is slower for some
  /// seconds, spoils some samples of many blocks, which their medians pass over, and not all
  /// samples of some, which would look like those blocks' own cost. Where there is no time for all
  /// of them, those left out lie between others, since their times will be interpolated; and one
  /// that would take a large part of what is left waits, so that the others have their turn.
  void blocks(const std::vector<AttentionBlock>& blocks) {
    constexpr int most_sweeps = 64;
    constexpr double first_part = 0.25;  // of the time left, for the first visit to a block
    std::vector<Probe> probes = attention_probes(blocks, "attention", crew_of(bench_));
    if (probes.empty()) {
      return;
    }
    Paced pace(bench_.transport, *kernels_, blocks.front().dtype, has_core(bench_));
    for (Probe& probe : probes) {  // by rising FLOPs
      if (!largest_.contains(probe.series.block->phase)) {
        visit(probe.series, {.least = enough(), .most = enough()}, pace);
      }
    }
    const std::vector<std::size_t> order = ends_then_middles(probes.size());
    for (int sweep = 0; sweep < most_sweeps; ++sweep) {
      bool all_known = true;
      for (const std::size_t at : order) {
        Series& series = probes[at].series;
        const bool first = series.seconds.empty();
        if (!first && (sweep == 0 || is_known(series))) {
          continue;
        }
        const int rounds = first ? 2 : 1;
        const Seconds left = bench_.budget - clock_.elapsed();
        all_known =
            !visit(series,
                   {.least = rounds,
                    .most = rounds,
                    .longest = left * (first ? first_part : 1.0),
                    .once = first ? foretold(*series.block) : Seconds(median_of(series.seconds))},
                   pace) &&
            all_known;
      }
      if (all_known && sweep > 0) {
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
  struct Measured {
    double flops = 0;
    Seconds once{};
  };

  /// Rounds in which all ranks together take the least number of samples.
  [[nodiscard]] int enough() const {
    return std::max(2, (Patient{}.least + with_core(bench_) - 1) / with_core(bench_));
  }

  static bool is_known(const Series& series) {
    constexpr double well = 0.01;
    return std::ssize(series.seconds) >= Patient{}.least &&
           error_of_median(over_pace(series)) <= well;
  }

  /// If it goes as the largest block of its phase that was measured: small ones go slower by FLOP.
  [[nodiscard]] Seconds foretold(const AttentionBlock& block) const {
    const Measured& like = largest_.at(block.phase);
    return like.once * (flops_of(block).value() / like.flops);
  }

  /// Adds samples, and notes the pace beside them; false if they would take too long.
  bool visit(Series& series, const Patient& patient, Paced& pace) {
    if (!add_samples(series, patient)) {
      return false;
    }
    pace.beside(series, Samples::each);
    const double flops = std::max(1.0, flops_of(*series.block).value());  // 0: the mask hides all
    if (Measured& like = largest_[series.block->phase]; flops >= like.flops) {
      like = {.flops = flops, .once = Seconds(median_of(series.seconds))};
    }
    return true;
  }

  static std::vector<BlockOperands> cold_copies(const AttentionBlock& block) {
    std::vector<BlockOperands> copies;
    copies.emplace_back(block);
    const std::int64_t wanted = std::clamp<std::int64_t>(
        cold_bytes / std::max<std::int64_t>(1, copies.front().bytes()) + 1, 2, most_copies);
    while (static_cast<std::int64_t>(copies.size()) < wanted) {
      copies.emplace_back(block);
    }
    return copies;
  }

  /// False, and none, if they would take too long.
  bool add_samples(Series& series, const Patient& patient) {
    std::vector<BlockOperands> copies;
    std::size_t turn = 0;
    const auto seconds =
        measure(bench_.transport, patient, Samples::each, has_core(bench_), [&](int repetitions) {
          if (copies.empty()) {  // in the first try, since what is left out has not even that
            copies = cold_copies(*series.block);
          }
          for (int i = 0; i < repetitions; ++i) {
            copies[turn++ % copies.size()].run(*kernels_, poll_);
          }
        });
    series.seconds.insert(series.seconds.end(), seconds.begin(), seconds.end());
    return !seconds.empty();
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
  CommonClock clock_{bench_.transport};
  std::map<Phase, Measured> largest_;
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
