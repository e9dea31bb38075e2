// Point-to-point messages. An exchange in both directions is what rings do, so that is what is
// timed; `size` is what one rank sends.
//
// Core time of a message: a rank works through a fixed loop that polls the transport about every
// 0.2 ms, once with an exchange always under way and once without. What its thread takes longer, in
// time of its own core, over the bytes that it has sent meanwhile, is what a byte that goes out and
// one that comes in cost together.
#include "base/error.hpp"
#include "runtime/calibrate/suites.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
namespace spp::runtime {
namespace {

constexpr int tag = 0;

/// Who talks to whom.
struct Neighbours {
  bool active = false;
  Rank to, from;
};

class Links {
 public:
  explicit Links(const Bench& bench)
      : bench_(bench), out_(4 * bench.largest), in_(4 * bench.largest) {}

  std::vector<Series> run() {
    const Rank self = bench_.transport.rank();
    const int n = bench_.per_node;
    const int first = bench_.node() * n;
    const auto in_node = [&](int local) { return Rank(first + (local + n) % n); };
    const auto in_next = [&](int step) {
      return Rank((self.value + step * n + bench_.ranks()) % bench_.ranks());
    };
    const Patient short_one{.budget = bench_.budget / (30.0 * (bench_.nodes() > 1 ? 3 : 1))};
    if (n > 1) {
      sweep(
          "ring", "intra", n, bench_.ranks(), short_one,
          {.active = true, .to = in_node(bench_.local() + 1), .from = in_node(bench_.local() - 1)});
      const Rank peer(1 - self.value);
      const Neighbours pair{.active = self.value < 2, .to = peer, .from = peer};
      sweep("pair", "intra", 2, 2, short_one, pair);
      cpu("intra", pair);
    }
    if (bench_.nodes() > 1) {
      const bool leads = bench_.local() == 0;
      sweep("ring", "inter", bench_.nodes(), bench_.nodes(), short_one,
            {.active = leads, .to = in_next(1), .from = in_next(-1)});
      const Rank peer(bench_.node() == 0 ? n : 0);
      const Neighbours pair{.active = leads && bench_.node() < 2, .to = peer, .from = peer};
      sweep("pair", "inter", 2, 2, short_one, pair);
      cpu("inter", pair);
      sweep("pairs", "inter", bench_.nodes(), bench_.ranks(), short_one,
            {.active = true, .to = in_next(1), .from = in_next(-1)});
    }
    return std::move(series_);
  }

 private:
  std::unique_ptr<Pending> post(const Neighbours& n, std::int64_t bytes) {
    return exchange(
        bench_.transport, tag,
        {.to = n.to, .from = n.from, .send = {out_.next(bytes)}, .receive = {in_.next(bytes)}});
  }

  void finish(Pending& running) {
    bench_.transport.progress();
    while (!running.advance()) {
      bench_.transport.idle();
      bench_.transport.progress();
    }
  }

  void sweep(std::string what, std::string scope, int ranks, int active, const Patient& patient,
             const Neighbours& n) {
    for (const std::int64_t bytes : message_sizes(bench_.largest)) {
      auto seconds =
          measure(bench_.transport, patient, Samples::slowest, n.active, [&](int repetitions) {
            for (int i = 0; i < repetitions; ++i) {
              finish(*post(n, bytes));
            }
          });
      add(what, scope, ranks, active, bytes, std::move(seconds));
    }
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
  Loop loop(const Neighbours& n, std::int64_t bytes) {
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
  void drain(const Neighbours& n, std::int64_t bytes, Loop& l) {
    int posted = 0;
    for (const auto& numbers :
         all_gather_numbers(bench_.transport, {static_cast<double>(l.posted)})) {
      posted = std::max(posted, static_cast<int>(numbers.front()));
    }
    if (!n.active) {
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
      l.running = post(n, bytes);
      ++l.posted;
    }
  }

  void cpu(std::string scope, const Neighbours& n) {
    constexpr std::int64_t bytes = 256 << 10;
    constexpr int samples = 9;
    std::vector<double> costs;
    for (int i = -1; i < samples; ++i) {
      bench_.transport.barrier();
      const double without = n.active ? loop(n, 0).core_seconds : 0;
      bench_.transport.barrier();
      Loop with = n.active ? loop(n, bytes) : Loop();
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
      add("cpu", std::move(scope), 2, 2, bytes, std::move(costs));
    }
  }

  void add(std::string what, std::string scope, int ranks, int active, std::int64_t bytes,
           std::vector<double> seconds) {
    series_.push_back({.suite = "links",
                       .what = std::move(what),
                       .scope = std::move(scope),
                       .ranks = ranks,
                       .active = active,
                       .size = static_cast<double>(bytes),
                       .seconds = std::move(seconds),
                       .block = std::nullopt});
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
