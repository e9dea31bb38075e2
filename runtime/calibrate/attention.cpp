// Attention kernels on the blocks of plans. As many ranks of a host run at a time as have a core of
// their own: in a plan all cores work, and they share caches, memory and clock. Operands come from
// several copies in turn, so that none of them waits in a cache of the core; in a plan, too, keys
// and values have just come from another rank.
#include "runtime/calibrate/probes.hpp"
#include "runtime/calibrate/suites.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace spp::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t cold_bytes = 16 << 20;  // several times a core's own cache
constexpr std::int64_t most_copies = 16;

std::int64_t last_of(const TokenSet& tokens) {
  std::int64_t last = 0;
  for (const TokenRange& r : tokens.ranges()) {
    last = std::max(last, r.last());
  }
  return last;
}

/// Memory of one tensor with numbers in it.
class Filled {
 public:
  Filled(std::int64_t tokens, const AttentionBlock& b, int heads, int width, DType dtype)
      : rows_{.data = nullptr,
              .dtype = dtype,
              .count = tokens,
              .batch = b.batch,
              .heads = heads,
              .width = width},
        memory_(static_cast<std::size_t>(rows_.bytes())) {
    rows_.data = memory_.data();
  }
  Filled& fill(float middle, float reach) {
    fill_numbers(rows_, middle, reach);
    return *this;
  }
  [[nodiscard]] const Rows& rows() const { return rows_; }

 private:
  Rows rows_;
  std::vector<std::byte> memory_;
};

/// What one call reads and writes.
class Operands {
 public:
  explicit Operands(const AttentionBlock& b) : block_(b) {
    const auto of_q = [&](int width, DType dtype) -> Filled& {
      return tensors_.emplace_back(b.q.count(), b, b.q_heads, width, dtype);
    };
    const auto of_k = [&]() -> Filled& {
      return tensors_.emplace_back(b.k.count(), b, b.kv_heads, b.head_dim, b.dtype);
    };
    tensors_.reserve(10);
    const auto keys = static_cast<float>(b.k.count());
    of_q(b.head_dim, b.dtype).fill(0, 1);             // q
    of_k().fill(0, 1);                                // k
    of_k().fill(0, 1);                                // v
    of_q(1, DType::fp32).fill(std::log(keys), 0.1F);  // lse
    of_q(b.head_dim, b.dtype);                        // out; backward: d_q
    if (b.phase == Phase::backward) {
      of_q(b.head_dim, b.dtype).fill(0, 1);  // d_out
      of_q(1, DType::fp32).fill(0, 0.1F);    // delta
      of_k();                                // d_k
      of_k();                                // d_v
    }
    visible_ = {.q_tokens = b.q,
                .k_tokens = b.k,
                .mask = b.mask,
                .seq = std::max(last_of(b.q), last_of(b.k)) + 1};
  }

  void run(AttentionKernels& kernels, const Poll& poll) const {
    const auto rows = [this](std::size_t i) { return tensors_[i].rows(); };
    if (block_.phase == Phase::forward) {
      kernels.forward({.q = rows(0),
                       .k = rows(1),
                       .v = rows(2),
                       .out = rows(4),
                       .lse = rows(3),
                       .visible = visible_},
                      poll);
      return;
    }
    kernels.backward({.q = rows(0),
                      .k = rows(1),
                      .v = rows(2),
                      .d_out = rows(5),
                      .lse = rows(3),
                      .delta = rows(6),
                      .d_q = rows(4),
                      .d_k = rows(7),
                      .d_v = rows(8),
                      .visible = visible_},
                     poll);
  }
  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const Filled& t : tensors_) {
      sum += t.rows().bytes();
    }
    return sum;
  }

 private:
  AttentionBlock block_;
  std::vector<Filled> tensors_;
  Visibility visible_;
};

class Attention {
 public:
  Attention(const Bench& bench, const AttentionBackend& backend)
      : bench_(bench),
        backend_(backend),
        kernels_(backend.make()),
        poll_([this] { bench_.transport.progress(); }) {}

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

  /// Every block is visited several times, with all others in between: a machine that is slower for
  /// some seconds then spoils some samples of many blocks, which their medians pass over, and not
  /// all samples of some, which would look like those blocks' own cost.
  void blocks(const std::vector<AttentionBlock>& blocks) {
    constexpr int visits = 3;
    std::vector<Probe> probes = attention_probes(blocks, "attention", crew_of(bench_));
    for (int visit = 0; visit < visits; ++visit) {
      for (std::size_t i = 0; i < probes.size(); ++i) {
        const Seconds left = (bench_.budget - elapsed()) / (visits - visit);
        const double share = 2.0 / static_cast<double>(probes.size() - i);
        const Patient patient{
            .least = (enough() + visits - 1) / visits,
            .budget = std::max(Seconds(0.0), left * std::min(share, 0.5)),
            // The smallest one is measured whatever it takes: a profile without any is none.
            .longest = i == 0 || visit > 0 ? forever : std::max(Seconds(0.002), left)};
        if (visit == 0 || !probes[i].series.seconds.empty()) {
          add_samples(probes[i].series, patient);
        }
      }
    }
    for (Probe& probe : probes) {
      keep(std::move(probe.series));
    }
  }

  std::vector<Series> series() { return std::move(series_); }

 private:
  static constexpr Seconds forever{std::numeric_limits<double>::infinity()};

  /// Rounds in which all ranks together take 7 samples.
  [[nodiscard]] int enough() const {
    constexpr int least = 7;
    return std::max(2, (least + with_core(bench_) - 1) / with_core(bench_));
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
    std::vector<Operands> copies;
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
