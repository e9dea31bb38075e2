#include "runtime/calibrate/engine_suites.hpp"

#include "base/error.hpp"
#include "base/median.hpp"
#include "runtime/calibrate/instrument.hpp"
#include "runtime/calibrate/layer_probes.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <numeric>

namespace spp::runtime {
namespace {

std::vector<Series> series_of(std::span<const Probe> probes) {
  std::vector<Series> series;
  for (const Probe& probe : probes) {
    series.push_back(probe.series);
  }
  return series;
}

/// In one schedule; those that alone are too large for memory are left out.
std::vector<Series> together(const Instrument& instrument, std::vector<Probe> probes,
                             Samples samples) {
  std::erase_if(probes, [&](const Probe& probe) { return !instrument.fits({&probe, 1}); });
  while (!probes.empty() && !instrument.fits(probes)) {
    probes.pop_back();
  }
  if (!probes.empty()) {
    (void)instrument.time(probes, samples, instrument.left());
  }
  return series_of(probes);
}

std::vector<Probe> elementwise_probes(const Instrument& instrument, const EngineBench& bench) {
  const Crew everybody = instrument.everybody();
  // First: before them nothing else is put on a device's streams, which start when all of them are.
  std::vector<Probe> probes{empty_op_probe(everybody)};
  const auto add = [&](std::vector<Probe> more) {
    std::ranges::move(more, std::back_inserter(probes));
  };
  add(kernel_probes(bench.shape, everybody, bench.largest));
  if (everybody.active > 1) {
    add(kernel_probes(bench.shape, instrument.crew(1), bench.largest));
  }
  return probes;
}

/// Probes that work more and more, and by whose work their time can be foretold.
struct Rising {
  std::vector<Probe> probes;
  std::function<double(const Probe&)> work;  // of all ops of a sample
  double growth = 1;                         // at most, from the first of a schedule to the last
};

/// Those that go into one schedule together, in their order.
std::vector<std::span<Probe>> groups_of(const Instrument& instrument, Rising& rising) {
  auto& [probes, work, growth] = rising;
  std::erase_if(probes, [&](const Probe& probe) { return !instrument.fits({&probe, 1}); });
  std::vector<std::span<Probe>> groups;
  for (std::size_t at = 0; at < probes.size();) {
    std::size_t end = at + 1;
    while (end < probes.size() && instrument.fits({probes.data() + at, end + 1 - at}) &&
           work(probes[end]) <= growth * work(probes[at])) {
      ++end;
    }
    groups.emplace_back(probes.data() + at, end - at);
    at = end;
  }
  return groups;
}

/// While `budget` lasts: the smallest whatever they take; then the largest that are likely to fit,
/// and again from there while larger ones do; then what is left out so far, from above. Large
/// kernels are what layers have, and small ones alone say nothing about them.
class WideFirst {
 public:
  WideFirst(const Instrument& instrument, const EngineBench& bench, Rising rising, Seconds budget)
      : instrument_(instrument),
        bench_(bench),
        rising_(std::move(rising)),
        groups_(groups_of(instrument, rising_)),
        once_(groups_.size()),
        after_(instrument.left() - budget) {}

  std::vector<Series> run() {
    for (std::size_t at = 0; at < groups_.size();) {
      time(at);
      std::size_t next = at;
      for (std::size_t i = at + 1; i < groups_.size(); ++i) {
        next = fits(once_[at] * (work_of(i) / work_of(at))) ? i : next;
      }
      if (next == at) {
        break;
      }
      at = next;
    }
    for (std::size_t i = groups_.size(), above = i; i-- > 0;) {
      if (once_[i] > Seconds(0)) {
        above = i;
      } else if (above < groups_.size() && fits(once_[above])) {
        time(i);
      }
    }
    return std::move(series_);
  }

 private:
  [[nodiscard]] double work_of(std::size_t group) const {
    return std::transform_reduce(groups_[group].begin(), groups_[group].end(), 0.0, std::plus<>(),
                                 rising_.work);
  }
  [[nodiscard]] Seconds left() const { return instrument_.left() - after_; }
  /// If an execution takes so long, and its setup as the last one's.
  [[nodiscard]] bool fits(Seconds once) const {
    constexpr double executions = 1 + 7;  // the least
    return setup_ + once * executions <= left();
  }
  void time(std::size_t group) {
    constexpr double part = 0.25;  // of what is left
    const Course course = instrument_.time(groups_[group], Samples::each, left() * part);
    const std::vector<double> of_first =
        numbers_of_rank_0(bench_.transport, {course.setup.count(), course.once.count()});
    setup_ = Seconds(of_first[0]);
    once_[group] = Seconds(of_first[1]);
    std::ranges::move(series_of(groups_[group]), std::back_inserter(series_));
  }

  const Instrument& instrument_;
  const EngineBench& bench_;
  Rising rising_;
  std::vector<std::span<Probe>> groups_;
  std::vector<Seconds> once_;  // an execution of each group; 0: not timed
  Seconds after_;              // what the budget leaves to others
  Seconds setup_{};            // of the last schedule
  std::vector<Series> series_;
};

/// Row-wise functions on one rank of a device, since the simulator lets its ranks share its memory;
/// GEMMs on all that have SMs of their own.
std::vector<Series> layer_series(const Instrument& instrument, const EngineBench& bench) {
  constexpr std::int64_t operands = 4;       // of GEMMs, times the largest message
  constexpr std::int64_t beyond_caches = 8;  // of rows, likewise
  constexpr double row_part = 0.3;           // of the budget
  const Rising rows{
      .probes = row_probes(bench.shape, instrument.crew(1), beyond_caches * bench.largest),
      .work = [](const Probe& probe) { return probe.series.size; },
      .growth = 4};
  const Rising gemms{
      .probes = gemm_probes(bench.shape.dtype,
                            bench.split_devices ? instrument.everybody() : instrument.crew(1),
                            operands * bench.largest),
      .work =
          [](const Probe& probe) {
            const FlopCount own = probe.series.gemm->shape.flops();
            return own.value() * times_of(own);
          },
      .growth = 16};
  std::vector<Series> series =
      WideFirst(instrument, bench, rows, instrument.left() * row_part).run();
  std::ranges::move(WideFirst(instrument, bench, gemms, instrument.left()).run(),
                    std::back_inserter(series));
  return series;
}

/// Blocks of attention, by rising FLOPs, as many as go into the budget.
class Attention {
 public:
  Attention(const EngineBench& bench, const Instrument& instrument)
      : bench_(bench),
        instrument_(instrument),
        crew_(bench.split_devices ? instrument.everybody() : instrument.crew(1)) {}

  void peak() {
    struct Size {
      std::int64_t tokens;
      int heads;
    };
    constexpr std::array sizes{Size{32, 1},    Size{256, 2},   Size{1024, 4},
                               Size{2048, 16}, Size{4096, 16}, Size{8192, 16}};
    for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
      std::vector<AttentionBlock> blocks;
      for (const auto& [count, heads] : sizes) {
        const TokenSet tokens(TokenRange{.begin = 0, .count = count});
        blocks.push_back({.q = tokens,
                          .k = tokens,
                          .q_heads = heads,
                          .kv_heads = heads,
                          .mask = {.kind = MaskKind::full},
                          .dtype = dtype});
      }
      std::vector<Probe> probes = attention_probes(blocks, "peak", crew_);
      std::erase_if(probes, [&](const Probe& probe) { return !possible(probe); });
      if (!probes.empty()) {
        climb(std::move(probes));
      }
    }
  }

  void blocks(const std::vector<AttentionBlock>& blocks) {
    std::vector<Probe> probes = attention_probes(blocks, "attention", crew_);
    std::erase_if(probes, [&](const Probe& probe) { return !possible(probe); });
    cost_ = {};
    for (std::size_t at = 0; at < probes.size();) {
      const Seconds left = instrument_.left();
      if (at > 0) {
        thin(probes, at, left);
      }
      const std::size_t end = at < probes.size() ? end_of_group(probes, at, left) : at;
      if (end == at) {
        break;
      }
      const double part = likely(probes, at, end) / likely(probes, at, probes.size());
      time({probes.data() + at, end - at},
           left * part - Seconds(cost_.setup * static_cast<double>(end - at)));
      at = end;
    }
  }

  std::vector<Series> series() { return std::move(series_); }

 private:
  static constexpr double peak_part = 0.1;  // of the time that is left
  static constexpr std::size_t most_together = 8;
  static constexpr double most_growth = 64;  // of FLOPs in a group: costs are known about so far

  /// In seconds; 0: not known yet.
  struct Cost {
    double setup = 0;    // of a block that was measured last: compiled kernels, operands
    double of_flop = 0;  // of the same, with all that is around it
  };

  [[nodiscard]] bool possible(const Probe& probe) const {
    const AttentionBlock& block = *probe.series.block;
    return bench_.engines.why_not(problem_of(block), block.q, block.k).empty() &&
           instrument_.fits({&probe, 1});
  }

  /// Straight to the largest block that is likely to fit, and again from there while larger ones
  /// do: small ones say little, and every block may have to be compiled.
  void climb(std::vector<Probe> probes) {
    for (std::size_t at = 0, measured = probes.size();;) {
      const Seconds left = instrument_.left() * peak_part;
      for (std::size_t i = at; best_of_flop_ > 0 && i < probes.size(); ++i) {
        at = run_time(probes[i]) <= left ? i : at;
      }
      if (at == measured) {
        return;
      }
      if (measured < probes.size()) {
        series_.pop_back();
      }
      time({&probes[at], 1}, left / 2);
      measured = at;
    }
  }

  /// FLOPs of all executions that a block needs.
  static double work_of(const Probe& probe) {
    const int executions =
        1 + std::max(2, (Patient{}.least + probe.series.active - 1) / probe.series.active);
    return flops_of(*probe.series.block).value() * times_of(flops_of(*probe.series.block)) *
           executions;
  }
  /// All that it takes to measure a block, if it goes as the last ones did. Larger ones go faster
  /// by FLOP, so rather too much.
  [[nodiscard]] Seconds expected(const Probe& probe) const {
    return Seconds(cost_.setup + cost_.of_flop * work_of(probe));
  }
  /// Without what is around it, if it goes as blocks that are not small usually do.
  [[nodiscard]] Seconds run_time(const Probe& probe) const {
    constexpr double usual = 3;  // times the best
    return Seconds(usual * best_of_flop_ * work_of(probe));
  }
  /// All that it takes to measure blocks [from, to).
  [[nodiscard]] Seconds likely(const std::vector<Probe>& probes, std::size_t from,
                               std::size_t to) const {
    Seconds sum{1e-9};
    for (std::size_t i = from; i < to; ++i) {
      sum += Seconds(cost_.setup) + run_time(probes[i]);
    }
    return sum;
  }

  /// If not all can be measured, then evenly spaced ones.
  void thin(std::vector<Probe>& probes, std::size_t from, Seconds left) const {
    const double part = left / likely(probes, from, probes.size());
    if (part >= 1) {
      return;
    }
    std::vector<Probe> kept(probes.begin(), probes.begin() + static_cast<std::ptrdiff_t>(from));
    double due = 0;
    for (std::size_t i = from; i < probes.size(); ++i) {
      due += part;
      if (due >= 1) {
        due -= 1;
        kept.push_back(std::move(probes[i]));
      }
    }
    probes = std::move(kept);
  }

  /// Of those from `at` on that go into one schedule; `at`: no time is left for any. The smallest
  /// one is measured whatever it takes: a profile without any is no profile.
  [[nodiscard]] std::size_t end_of_group(const std::vector<Probe>& probes, std::size_t at,
                                         Seconds left) const {
    const AttentionBlock& first = *probes[at].series.block;
    Seconds sum{};
    std::size_t end = at;
    while (end < probes.size() && end - at < most_together) {
      const AttentionBlock& block = *probes[end].series.block;
      const bool alike = block.batch == first.batch && block.head_dim == first.head_dim &&
                         block.v_dim() == first.v_dim() && block.mask == first.mask &&
                         block.dtype == first.dtype &&
                         flops_of(block).value() <= most_growth * flops_of(first).value();
      sum += expected(probes[end]);
      if (end > 0 && (sum > left || (end > at && (at == 0 || !alike)) ||
                      !instrument_.fits({probes.data() + at, end + 1 - at}))) {
        break;
      }
      ++end;
    }
    return end;
  }

  void time(std::span<Probe> probes, Seconds budget) {
    const Course course = instrument_.time(probes, Samples::each, std::max(budget, Seconds(0.0)));
    double flops = 0;
    for (const Probe& probe : probes) {
      const AttentionBlock& block = *probe.series.block;
      const double own = std::max(1.0, flops_of(block).value());  // 0 if the mask hides all keys
      flops += own * times_of(flops_of(block));
      const double seconds = median_of(probe.series.seconds) / own;
      best_of_flop_ = best_of_flop_ > 0 ? std::min(best_of_flop_, seconds) : seconds;
      series_.push_back(probe.series);
    }
    const std::vector<double> of_first = numbers_of_rank_0(
        bench_.transport,
        {course.setup.count() / static_cast<double>(probes.size()), course.once.count() / flops});
    cost_ = {.setup = of_first[0], .of_flop = of_first[1]};
  }

  const EngineBench& bench_;
  const Instrument& instrument_;
  Crew crew_;
  Cost cost_;
  double best_of_flop_ = 0;  // seconds, of all that was measured
  std::vector<Series> series_;
};

}  // namespace

std::vector<Series> engine_suite(const std::string& suite, const EngineBench& bench,
                                 const std::vector<AttentionBlock>& blocks) {
  const Instrument instrument(bench);
  if (suite == "links") {
    return together(instrument, link_probes(bench.layout, bench.largest), Samples::slowest);
  }
  if (suite == "collectives") {
    return together(instrument, collective_probes(bench.layout, bench.largest), Samples::slowest);
  }
  if (suite == "elementwise") {
    return together(instrument, elementwise_probes(instrument, bench), Samples::each);
  }
  if (suite == "layer") {
    return layer_series(instrument, bench);
  }
  ensure(suite == "attention", "an unknown suite");
  Attention attention(bench, instrument);
  attention.peak();
  attention.blocks(blocks);
  return attention.series();
}

}  // namespace spp::runtime
