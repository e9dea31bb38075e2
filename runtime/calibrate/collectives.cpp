// Collectives, in the groups that meshes have: consecutive ranks, or ranks a stride apart, all
// groups of a kind at the same time.
#include "runtime/comm/collectives.hpp"

#include "runtime/calibrate/suites.hpp"
#include "schedule/measure.hpp"

#include <algorithm>
#include <array>

namespace spp::runtime {
namespace {

constexpr int tag = 0;

class Collectives {
 public:
  explicit Collectives(const Bench& bench)
      : bench_(bench), out_(5 * bench.largest), in_(5 * bench.largest) {}

  std::vector<Series> run() {
    struct Kind {
      RankGroup group;
      std::string scope;
    };
    std::vector<Kind> kinds;
    const int self = bench_.transport.rank().value;
    const int n = bench_.per_node;
    for (int size = 2; size <= n; ++size) {
      if (n % size == 0) {
        kinds.push_back({{.first = self / size * size, .stride = 1, .size = size}, "intra"});
      }
    }
    if (bench_.nodes() > 1) {
      kinds.push_back({{.first = self % n, .stride = n, .size = bench_.nodes()}, "inter"});
      if (n > 1) {
        kinds.push_back({{.first = 0, .stride = 1, .size = bench_.ranks()}, "inter"});
      }
    }
    const auto sizes = message_sizes(bench_.largest);
    const double count = 3.0 * static_cast<double>(kinds.size() * sizes.size());
    const Patient patient{.budget = bench_.budget / std::max(1.0, count)};
    for (const Kind& kind : kinds) {
      for (const CommKind what :
           {CommKind::all_to_all, CommKind::all_gather, CommKind::reduce_scatter}) {
        for (const std::int64_t bytes : sizes) {
          time(what, kind.group, kind.scope, bytes, patient);
        }
      }
    }
    return std::move(series_);
  }

 private:
  /// `bytes` that a rank sends in all.
  void time(CommKind what, const RankGroup& group, const std::string& scope, std::int64_t bytes,
            const Patient& patient) {
    const std::int64_t part = std::max<std::int64_t>(4, bytes / (group.size - 1) / 4 * 4);
    auto seconds = measure(bench_.transport, patient, Samples::slowest, true, [&](int repetitions) {
      for (int i = 0; i < repetitions; ++i) {
        finish(*post(what, group, part));
      }
    });
    series_.push_back({.suite = "collectives",
                       .what = std::string(to_string(what)),
                       .scope = scope,
                       .ranks = group.size,
                       .active = bench_.ranks(),
                       .size = static_cast<double>(part * (group.size - 1)),
                       .seconds = std::move(seconds),
                       .block = std::nullopt});
  }

  std::unique_ptr<Pending> post(CommKind what, const RankGroup& group, std::int64_t part) {
    std::vector<std::span<const std::byte>> send;
    std::vector<std::span<std::byte>> receive;
    for (int i = 0; i < group.size; ++i) {
      send.emplace_back(out_.next(part));
      receive.push_back(in_.next(part));
    }
    if (what == CommKind::all_to_all) {
      return all_to_all(bench_.transport, tag, group, {.send = send, .receive = receive});
    }
    if (what == CommKind::all_gather) {
      return all_gather(bench_.transport, tag, group, send.front(), std::move(receive));
    }
    return reduce_scatter(bench_.transport, tag, group, std::move(send), DType::fp32,
                          receive.front(), DType::fp32);
  }

  void finish(Pending& running) {
    bench_.transport.progress();
    while (!running.advance()) {
      bench_.transport.idle();
      bench_.transport.progress();
    }
  }

  const Bench& bench_;
  Pool out_, in_;
  std::vector<Series> series_;
};

}  // namespace

std::vector<Series> collectives_suite(const Bench& bench) {
  if (bench.ranks() < 2) {
    return {};
  }
  Collectives collectives(bench);
  std::vector<Series> series;
  abort_on_throw(bench.transport, [&] { series = collectives.run(); });
  return series;
}

}  // namespace spp::runtime
