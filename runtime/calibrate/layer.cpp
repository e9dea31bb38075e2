// The kernels of a layer beside attention, on as many ranks of a host as have a core of their own;
// operands in turn from memory larger than caches, as weights and values of a layer lie.
#include "base/error.hpp"
#include "base/median.hpp"
#include "runtime/calibrate/layer_probes.hpp"
#include "runtime/calibrate/pace.hpp"
#include "runtime/calibrate/suites.hpp"
#include "runtime/host_kernels.hpp"
#include "runtime/ops.hpp"

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <utility>

namespace spp::runtime {
namespace {

using Clock = std::chrono::steady_clock;

class Layer {
 public:
  Layer(const Bench& bench, const AttentionBackend& kernels, Problem shape)
      : bench_(bench),
        shape_(std::move(shape)),
        pool_(has_core(bench) ? pool_bytes : 0),
        kernels_(kernels.make()),
        poll_([this] {
          bench_.transport.working();
          bench_.transport.progress();
        }),
        pace_(bench.transport, *kernels_, shape_.dtype, has_core(bench)) {}

  std::vector<Series> run() {
    constexpr double row_part = 0.3;  // of the budget
    const auto bytes = [](const Probe& probe) { return probe.series.size; };
    time_all(row_probes(shape_, crew_of(bench_), bench_.largest), row_part, bytes);
    const auto flops = [](const Probe& probe) {
      constexpr double small = 1e7;  // what a small one takes is not its FLOPs
      return probe.series.gemm->shape.flops().value() + small;
    };
    time_all(gemm_probes(shape_.dtype, crew_of(bench_), bench_.largest), 1, flops);
    return std::move(series_);
  }

 private:
  static constexpr std::int64_t pool_bytes = 128 << 20;

  /// By rising work. Each gets a part of `part` of the budget, of what is left of it, by its work,
  /// and is left out where that would not suffice if it went as the last one did; the smallest of
  /// each kind is not.
  void time_all(std::vector<Probe> probes, double part,
                const std::function<double(const Probe&)>& work) {
    double of_all = 0;
    for (const Probe& probe : probes) {
      of_all += work(probe);
    }
    double last = 0;  // seconds by work
    std::set<std::pair<std::string, std::optional<GemmKind>>> known;
    for (Probe& probe : probes) {
      const Series& series = probe.series;
      const bool must =
          known.emplace(series.what, series.gemm ? std::optional(series.gemm->kind) : std::nullopt)
              .second;
      const double own = work(probe);
      const Seconds own_part = (bench_.budget * part - elapsed()) * (own / of_all);
      of_all -= own;
      const Patient patient{.budget = own_part, .longest = own_part, .once = Seconds(last * own)};
      if (must || !patient.leaves_out(patient.once.count())) {
        time(probe, {.budget = own_part});
        last = median_of(series_.back().seconds) / own;
      }
    }
  }

  /// On rank 0's clock, which all go by.
  Seconds elapsed() {
    const Seconds mine = Clock::now() - start_;
    return Seconds(all_gather_numbers(bench_.transport, {mine.count()}).front().front());
  }

  void time(Probe& probe, const Patient& patient) {
    const Work& work = probe.work[bench_.transport.rank().index()];
    const bool active = !std::holds_alternative<std::monostate>(work);
    std::optional<LayerKernel> kernel;
    if (active) {
      kernel = probe.series.gemm ? kernel_of(*probe.series.gemm)
                                 : kernel_of(std::get<RowWork>(work), shape_);
    }
    probe.series.seconds =
        measure(bench_.transport, patient, Samples::each, active, [&](int repetitions) {
          for (int i = 0; i < repetitions; ++i) {
            run(*kernel, work);
          }
        });
    pace_.beside(probe.series, Samples::each);
    series_.push_back(std::move(probe.series));
  }

  void run(const LayerKernel& kernel, const Work& work) {
    const std::vector<Rows> reads = rows(kernel.reads);
    const std::vector<Rows> writes = rows(kernel.writes);
    const HostKernels target{.attention = *kernels_, .poll = poll_};
    if (const auto* gemm = std::get_if<GemmBlock>(&work)) {
      return target.gemm(
          {.a = reads[0], .b = reads[1], .c = writes[0], .kind = gemm->kind, .add = false});
    }
    run_row_call({.definition = kernel.graph.definition(0),
                  .backward = std::get<RowWork>(work).function.backward,
                  .tokens = TokenSet(TokenRange{.begin = 0, .count = kernel.tokens}),
                  .reads = reads,
                  .writes = writes},
                 target);
  }

  std::vector<Rows> rows(const std::vector<LayerOperand>& operands) {
    std::vector<Rows> result;
    for (const LayerOperand& o : operands) {
      result.push_back({.data = pool_.next(o.bytes()).data(),
                        .dtype = o.dtype,
                        .count = o.rows,
                        .batch = 1,
                        .heads = o.heads,
                        .width = static_cast<int>(o.width)});
    }
    return result;
  }

  const Bench& bench_;
  Problem shape_;
  Pool pool_;
  const std::unique_ptr<AttentionKernels> kernels_;
  Poll poll_;
  Paced pace_;
  Clock::time_point start_ = Clock::now();
  std::vector<Series> series_;
};

}  // namespace

std::vector<Series> layer_suite(const Bench& bench, const AttentionBackend& kernels,
                                const Problem& shape) {
  return Layer(bench, kernels, shape).run();
}

}  // namespace spp::runtime
