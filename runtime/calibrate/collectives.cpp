// Collectives, in the groups that meshes have: consecutive ranks, or ranks a stride apart, all
// groups of a kind at the same time.
#include "runtime/comm/collectives.hpp"

#include "runtime/calibrate/probes.hpp"
#include "runtime/calibrate/suites.hpp"

#include <algorithm>

namespace spp::runtime {
namespace {

constexpr int tag = 0;

class Collectives {
 public:
  explicit Collectives(const Bench& bench)
      : bench_(bench), out_(5 * bench.largest), in_(5 * bench.largest) {}

  std::vector<Series> run() {
    std::vector<Probe> probes =
        collective_probes({.ranks = bench_.ranks(), .per_node = bench_.per_node}, bench_.largest);
    const auto count = std::max<double>(1, static_cast<double>(probes.size()));
    const Patient patient{.budget = bench_.budget / count};
    for (Probe& probe : probes) {
      const auto& work = std::get<CollectiveWork>(probe.work[bench_.transport.rank().index()]);
      probe.series.seconds =
          measure(bench_.transport, patient, Samples::slowest, true, [&](int repetitions) {
            for (int i = 0; i < repetitions; ++i) {
              finish(bench_.transport, *post(work), probe.series.what);
            }
          });
      series_.push_back(std::move(probe.series));
    }
    return std::move(series_);
  }

 private:
  std::unique_ptr<Pending> post(const CollectiveWork& work) {
    const auto& [what, group, part] = work;
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
    if (what == CommKind::all_reduce) {
      return all_reduce(bench_.transport, tag, group, std::move(send), std::move(receive),
                        DType::fp32);
    }
    return reduce_scatter(bench_.transport, tag, group, std::move(send), DType::fp32,
                          receive.front(), DType::fp32);
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
