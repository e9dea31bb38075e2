// Point-to-point messages. An exchange in both directions is what rings do, so that is what is
// timed; `size` is what one rank sends.
//
// Core time of a message: a rank works through a fixed loop that polls the transport about every
// 0.2 ms, once with an exchange always under way and once without. What its thread takes longer, in
// time of its own core, over the bytes that it has sent meanwhile, is what a byte that goes out and
// one that comes in cost together.
#include "runtime/calibrate/probes.hpp"
#include "runtime/calibrate/suites.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>

namespace spp::runtime {
namespace {

constexpr int tag = 0;

class Links {
 public:
  explicit Links(const Bench& bench)
      : bench_(bench), out_(4 * bench.largest), in_(4 * bench.largest) {}

  std::vector<Series> run() {
    const Layout layout{.ranks = bench_.ranks(), .per_node = bench_.per_node};
    const Patient short_one{.budget = bench_.budget / (30.0 * (bench_.nodes() > 1 ? 3 : 1))};
    std::vector<Probe> probes = link_probes(layout, bench_.largest);
    for (Probe& probe : probes) {
      time(probe, short_one);
    }
    for (const std::string_view scope : {"intra", "inter"}) {
      const auto pair = std::ranges::find_if(probes, [&](const Probe& p) {
        return p.series.what == "pair" && p.series.scope == scope;
      });
      if (pair != probes.end()) {
        cpu(std::string(scope), mine(*pair));
      }
    }
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

  void finish(Pending& running) {
    bench_.transport.progress();
    while (!running.advance()) {
      bench_.transport.idle();
      bench_.transport.progress();
    }
  }

  void time(Probe& probe, const Patient& patient) {
    const ExchangeWork* work = mine(probe);
    probe.series.seconds =
        measure(bench_.transport, patient, Samples::slowest, work != nullptr, [&](int repetitions) {
          for (int i = 0; i < repetitions; ++i) {
            finish(*post(*work, work->bytes));
          }
        });
    series_.push_back(probe.series);
  }

  /// Works for about 0.2 ms, in registers.
  void work() {
    for (int i = 0; i < 100'000; ++i) {
      number_ = number_ * 6364136223846793005ULL + 1442695040888963407ULL;
    }
    kept_ = number_;
  }

  /// Core seconds of the loop, with exchanges one after the other if `bytes` is above 0.
  struct Loop {
    double core_seconds = 0;
    std::unique_ptr<Pending> running;
    int posted = 0;
    int ended = 0;
  };
  Loop loop(const ExchangeWork& n, std::int64_t bytes) {
    constexpr int rounds = 100;
    Loop l;
    const double start = core_seconds();
    for (int i = 0; i < rounds; ++i) {
      work();
      bench_.transport.progress();
      if (l.running != nullptr && l.running->advance()) {
        l.running.reset();
        ++l.ended;
      }
      if (l.running == nullptr && bytes > 0) {
        l.running = post(n, bytes);
        ++l.posted;
      }
    }
    l.core_seconds = core_seconds() - start;
    return l;
  }

  /// Ends what is under way, and what the partner has begun beyond that.
  void drain(const ExchangeWork* n, std::int64_t bytes, Loop& l) {
    int posted = 0;
    for (const auto& numbers :
         all_gather_numbers(bench_.transport, {static_cast<double>(l.posted)})) {
      posted = std::max(posted, static_cast<int>(numbers.front()));
    }
    if (n == nullptr) {
      return;
    }
    for (;;) {
      if (l.running != nullptr) {
        finish(*l.running);
        l.running.reset();
      }
      if (l.posted == posted) {
        return;
      }
      l.running = post(*n, bytes);
      ++l.posted;
    }
  }

  void cpu(std::string scope, const ExchangeWork* n) {
    constexpr std::int64_t bytes = 256 << 10;
    constexpr int samples = 9;
    std::vector<double> costs;
    for (int i = -1; i < samples; ++i) {
      bench_.transport.barrier();
      const double without = n != nullptr ? loop(*n, 0).core_seconds : 0;
      bench_.transport.barrier();
      Loop with = n != nullptr ? loop(*n, bytes) : Loop();
      const double moved = static_cast<double>(bytes) * with.ended;
      drain(n, bytes, with);
      const double cost = moved > 0 ? std::max(0.0, with.core_seconds - without) / moved : 0;
      for (const auto& numbers : all_gather_numbers(bench_.transport, {cost})) {
        if (i >= 0 && numbers.front() > 0) {
          costs.push_back(numbers.front());
        }
      }
    }
    if (!costs.empty()) {
      series_.push_back({.suite = "links",
                         .what = "cpu",
                         .scope = std::move(scope),
                         .ranks = 2,
                         .active = 2,
                         .size = static_cast<double>(bytes),
                         .seconds = std::move(costs),
                         .block = std::nullopt});
    }
  }

  const Bench& bench_;
  Pool out_, in_;
  std::vector<Series> series_;
  std::uint64_t number_ = 1;
  volatile std::uint64_t kept_ = 0;
};

}  // namespace

std::vector<Series> links_suite(const Bench& bench) {
  if (bench.ranks() < 2) {
    return {};
  }
  Links links(bench);
  std::vector<Series> series;
  abort_on_throw(bench.transport, [&] { series = links.run(); });
  return series;
}

}  // namespace spp::runtime
