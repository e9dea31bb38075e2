// Point-to-point messages. An exchange in both directions is what rings do, so that is what is
// timed; `size` is what one rank sends.
//
// Core time of a message: all ranks compute attention, which polls the transport as in a plan, once
// without messages and once with an exchange always under way. What their threads take longer, in
// time of their own cores, over the bytes that they have sent meanwhile, is what a byte that goes
// out and one that comes in cost together: system calls, copies, and what both push out of the
// caches. (Beside work in registers the same bytes took 5 to 15 % less, over emulated networks.)
#include "base/parse.hpp"
#include "runtime/calibrate/pace.hpp"
#include "runtime/calibrate/probes.hpp"
#include "runtime/calibrate/suites.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

namespace spp::runtime {
namespace {

constexpr int tag = 0;

/// Fits into the cache of a core, as the tiles of larger ones do.
AttentionBlock block_beside(DType dtype) {
  const TokenSet tokens(TokenRange{.begin = 0, .count = 512});
  return {.q = tokens,
          .k = tokens,
          .q_heads = 2,
          .kv_heads = 2,
          .head_dim = 64,
          .mask = {.kind = MaskKind::full},
          .dtype = dtype};
}

class Links {
  using Clock = std::chrono::steady_clock;

 public:
  Links(const Bench& bench, const AttentionBackend& kernels, DType dtype)
      : bench_(bench),
        kernels_(kernels.make()),
        pace_(bench.transport, *kernels_, dtype, has_core(bench)),
        beside_(block_beside(dtype)),
        out_(4 * bench.largest),
        in_(4 * bench.largest) {}

  std::vector<Series> run() {
    const Layout layout{.ranks = bench_.ranks(), .per_node = bench_.per_node};
    const Patient short_one{.budget = bench_.budget / (30.0 * (bench_.nodes() > 1 ? 3 : 1))};
    std::vector<Probe> probes = link_probes(layout, bench_.largest);
    for (Probe& probe : probes) {
      time(probe, short_one);
    }
    // The patterns in which all ranks take part.
    const auto cpu_of = [&](std::string_view what, std::string_view scope) {
      const auto probe = std::ranges::find_if(
          probes, [&](const Probe& p) { return p.series.what == what && p.series.scope == scope; });
      if (probe != probes.end()) {
        cpu(*probe, bench_.budget / 10.0);
      }
    };
    cpu_of("ring", "intra");
    cpu_of("pairs", "inter");
    return std::move(series_);
  }

 private:
  /// Null: this rank is quiet.
  [[nodiscard]] const ExchangeWork* mine(const Probe& probe) const {
    return std::get_if<ExchangeWork>(&probe.work[bench_.transport.rank().index()]);
  }

  std::unique_ptr<Pending> post(const ExchangeWork& work, std::int64_t bytes) {
    ExchangeParts parts{.to = work.to, .from = work.from, .send = {}, .receive = {}};
    if (work.to.valid()) {
      parts.send = {out_.next(bytes)};
    }
    if (work.from.valid()) {
      parts.receive = {in_.next(bytes)};
    }
    return exchange(bench_.transport, tag, parts);
  }

  void time(Probe& probe, const Patient& patient) {
    const ExchangeWork* work = mine(probe);
    probe.series.seconds =
        measure(bench_.transport, patient, Samples::slowest, work != nullptr, [&](int repetitions) {
          for (int i = 0; i < repetitions; ++i) {
            finish(bench_.transport, *post(*work, work->bytes), probe.series.what);
          }
        });
    series_.push_back(probe.series);
  }

  struct Loop {
    int blocks = 0;
    double core_seconds = 0;
    int posted = 0, ended = 0;  // exchanges
    std::unique_ptr<Pending> running;
  };
  Loop quiet_loop(int blocks) {
    Loop l;
    const double start = core_seconds();
    for (; l.blocks < blocks; ++l.blocks) {
      beside_.run(*kernels_, [&] { bench_.transport.progress(); });
    }
    l.core_seconds = core_seconds() - start;
    return l;
  }
  /// Until a few exchanges have ended, one after the other; fewer if the link is slow.
  Loop exchange_loop(const ExchangeWork& n, std::int64_t bytes, int most_blocks) {
    constexpr int exchanges = 4;
    Loop l;
    const auto poll = [&] {
      bench_.transport.progress();
      if (l.running != nullptr && l.running->advance()) {
        l.running.reset();
        ++l.ended;
      }
      if (l.running == nullptr && l.posted < exchanges) {
        l.running = post(n, bytes);
        ++l.posted;
      }
    };
    const double start = core_seconds();
    for (; l.ended < exchanges && l.blocks < most_blocks; ++l.blocks) {
      poll();
      beside_.run(*kernels_, poll);
      std::this_thread::yield();  // the rank that it waits for may have the same core
    }
    l.core_seconds = core_seconds() - start;
    return l;
  }

  /// Ends what is under way, and what others have begun beyond that.
  void drain(const ExchangeWork& n, std::int64_t bytes, Loop& l) {
    int posted = 0;
    for (const auto& numbers :
         all_gather_numbers(bench_.transport, {static_cast<double>(l.posted)})) {
      posted = std::max(posted, static_cast<int>(numbers.front()));
    }
    for (;;) {
      if (l.running != nullptr) {
        finish(bench_.transport, *l.running, "exchange");
        l.running.reset();
      }
      if (l.posted == posted) {
        return;
      }
      l.running = post(n, bytes);
      ++l.posted;
    }
  }

  /// Blocks that take 10 ms of a core, on every rank alike.
  int usual_blocks() {
    quiet_loop(1);  // first touch of memory, primitives
    const double once = quiet_loop(1).core_seconds;
    double slowest = 0;
    for (const auto& numbers : all_gather_numbers(bench_.transport, {once})) {
      slowest = std::max(slowest, numbers.front());
    }
    return static_cast<int>(std::clamp(0.010 / std::max(slowest, 1e-6), 1.0, 100.0));
  }

  void cpu(const Probe& probe, Seconds budget) {
    constexpr int least = 3;
    constexpr int most = 25;
    const ExchangeWork& n = *mine(probe);
    const std::int64_t bytes = std::min<std::int64_t>(1 << 20, bench_.largest);
    Series series = probe.series;
    series.what = "cpu";
    series.size = static_cast<double>(bytes);
    series.seconds.clear();
    const int blocks = usual_blocks();
    const auto start = Clock::now();
    for (int i = -1; i < most; ++i) {
      bench_.transport.barrier();
      const Loop quiet = quiet_loop(blocks);
      bench_.transport.barrier();
      Loop busy = exchange_loop(n, bytes, 10 * blocks);
      drain(n, bytes, busy);
      const double longer = busy.core_seconds - busy.blocks * (quiet.core_seconds / quiet.blocks);
      const auto by_rank = all_gather_numbers(
          bench_.transport, {longer, static_cast<double>(busy.ended * bytes),
                             std::chrono::duration<double>(Clock::now() - start).count()});
      double of_all = 0;
      double moved = 0;
      for (const auto& numbers : by_rank) {
        of_all += numbers[0];
        moved += numbers[1];
      }
      // Rounds in which exchanges cost less than the noise count, as nothing: without them the
      // median would be too large.
      if (i >= 0 && moved > 0) {
        series.seconds.push_back(std::max(of_all / moved, least_seconds.count()));
      }
      pace_.beside(series, Samples::slowest);
      if (i + 1 >= least && by_rank.front()[2] > budget.count()) {
        break;
      }
    }
    if (!series.seconds.empty()) {
      series_.push_back(std::move(series));
    }
  }

  const Bench& bench_;
  const std::unique_ptr<AttentionKernels> kernels_;
  Paced pace_;
  const BlockOperands beside_;
  Pool out_, in_;
  std::vector<Series> series_;
};

}  // namespace

std::vector<Series> links_suite(const Bench& bench, const AttentionBackend& kernels, DType dtype) {
  if (bench.ranks() < 2) {
    return {};
  }
  Links links(bench, kernels, dtype);
  std::vector<Series> series;
  abort_on_throw(bench.transport, [&] { series = links.run(); });
  return series;
}

}  // namespace spp::runtime
