// The kernels of a layer beside attention, and of a step beside its layers, on as many ranks of a
// host as have a core of their own; operands in turn from memory larger than caches, as weights and
// values of a layer lie.
#include "base/error.hpp"
#include "base/median.hpp"
#include "runtime/calibrate/layer_probes.hpp"
#include "runtime/calibrate/pace.hpp"
#include "runtime/calibrate/suites.hpp"
#include "runtime/host_kernels.hpp"
#include "runtime/ops.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace spp::runtime {
namespace {

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
    time_all(row_probes(shape_, crew_of(bench_), bench_.largest), row_part,
             [](const Probe& probe) { return probe.series.size; });
    time_all(gemm_probes(shape_.dtype, crew_of(bench_), bench_.largest), 1,
             [](const Probe& probe) { return probe.series.gemm->shape.flops().value(); });
    return std::move(series_);
  }

 private:
  static constexpr std::int64_t pool_bytes = 128 << 20;

  /// In their order, which is that of rising work. The smallest of each kind is timed whatever it
  /// takes; the time of each of the others is foretold as if it went as the last of its kind did,
  /// which is too much rather than too little, and it is left out where not even the least number
  /// of samples goes into what is left of `part` of the budget. Of that each has its part for more.
  void time_all(std::vector<Probe> probes, double part,
                const std::function<double(const Probe&)>& work) {
    std::map<Kind, double> last;  // seconds by work
    const auto foretold = [&](const Probe& probe) {
      const auto like = last.find(kind_of(probe));
      return like == last.end() ? 0 : like->second * work(probe);
    };
    const auto expected = [&](const Probe& probe) {
      return std::max(foretold(probe), Patient{}.sample.count());
    };
    for (std::size_t i = 0; i < probes.size(); ++i) {
      double of_rest = 0;
      for (std::size_t k = i; k < probes.size(); ++k) {
        of_rest += expected(probes[k]);
      }
      const Kind kind = kind_of(probes[i]);
      const double own = work(probes[i]);
      const Seconds left = bench_.budget * part - clock_.elapsed();
      Patient patient{.budget = left * (expected(probes[i]) / of_rest)};
      if (last.contains(kind)) {
        patient.longest = left;
        patient.once = Seconds(foretold(probes[i]));
      }
      if (time(probes[i], patient)) {
        last[kind] = median_of(series_.back().seconds) / own;
      }
    }
  }

  using Kind = std::pair<std::string, std::optional<GemmKind>>;
  static Kind kind_of(const Probe& probe) {
    const Series& series = probe.series;
    return {series.what, series.gemm ? std::optional(series.gemm->kind) : std::nullopt};
  }

  /// False if it would take too long.
  bool time(Probe& probe, const Patient& patient) {
    const Work& work = probe.work[bench_.transport.rank().index()];
    const bool active = !std::holds_alternative<std::monostate>(work);
    std::optional<LayerKernel> kernel;
    if (active) {
      kernel = probe.series.gemm ? kernel_of(*probe.series.gemm)
                                 : kernel_of(std::get<RowWork>(work), shape_);
      write_words(*kernel);
    }
    probe.series.seconds =
        measure(bench_.transport, patient, Samples::each, active, [&](int repetitions) {
          for (int i = 0; i < repetitions; ++i) {
            run(*kernel);
          }
        });
    if (probe.series.seconds.empty()) {
      return false;
    }
    pace_.beside(probe.series, Samples::each);
    series_.push_back(std::move(probe.series));
    return true;
  }

  void run(const LayerKernel& kernel) {
    std::vector<Rows> reads;
    std::vector<Rows> writes;
    for (const LayerOperand& o : kernel.reads) {
      reads.push_back(rows(o));
    }
    for (const LayerOperand& o : kernel.writes) {
      writes.push_back(o.in_place >= 0 ? reads[static_cast<std::size_t>(o.in_place)] : rows(o));
    }
    const HostKernels target{.attention = *kernels_, .poll = poll_};
    if (const auto* kind = std::get_if<GemmKind>(&kernel.what)) {
      return target.gemm(
          {.a = reads[0], .b = reads[1], .c = writes[0], .kind = *kind, .add = false});
    }
    run_row_call({.definition = kernel.graph.definition(0),
                  .backward = std::get<RowFunction>(kernel.what).backward,
                  .tokens = TokenSet(TokenRange{.begin = 0, .count = kernel.tokens}),
                  .routing = kernel.graph.routing,
                  .reads = reads,
                  .writes = writes},
                 target);
  }

  Rows rows(const LayerOperand& o) {
    const std::span<std::byte> memory = o.is_words ? std::span(words_) : pool_.next(o.bytes());
    return {.data = memory.data(),
            .dtype = o.dtype,
            .count = o.rows,
            .batch = 1,
            .heads = o.heads,
            .width = static_cast<int>(o.width)};
  }

  /// Where results of others have been there are no numbers of words.
  void write_words(const LayerKernel& kernel) {
    for (const LayerOperand& o : kernel.reads) {
      if (o.is_words) {
        words_.resize(static_cast<std::size_t>(o.bytes()));
        fill_numbers(rows(o), o.middle, o.reach);
      }
    }
  }

  const Bench& bench_;
  Problem shape_;
  Pool pool_;
  std::vector<std::byte> words_;  // of the probe that is timed
  const std::unique_ptr<AttentionKernels> kernels_;
  Poll poll_;
  Paced pace_;
  CommonClock clock_{bench_.transport};
  std::vector<Series> series_;
};

}  // namespace

std::vector<Series> layer_suite(const Bench& bench, const AttentionBackend& kernels,
                                const Problem& shape) {
  return Layer(bench, kernels, shape).run();
}

}  // namespace spp::runtime
