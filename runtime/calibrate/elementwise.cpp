// The kernels around attention by bytes touched (counted as schedule/measure does), on as many
// ranks of a host as have a core of their own; operands in turn from memory larger than caches.
//
// `op`: what the executor itself takes for an op: a program of fills of one number.
#include "runtime/kernels/elementwise.hpp"

#include "base/error.hpp"
#include "runtime/calibrate/pace.hpp"
#include "runtime/calibrate/probes.hpp"
#include "runtime/calibrate/suites.hpp"
#include "runtime/execute.hpp"

namespace spp::runtime {
namespace {

class Elementwise {
 public:
  Elementwise(const Bench& bench, const AttentionBackend& kernels, Problem shape)
      : bench_(bench),
        shape_(std::move(shape)),
        pool_(has_core(bench) ? pool_bytes : 0),
        kernels_(kernels.make()),
        pace_(bench.transport, *kernels_, shape_.dtype, has_core(bench)),
        patient_{.budget = bench.budget / 28.0} {}

  std::vector<Series> run() {
    std::vector<Series> series;
    for (Probe& probe : kernel_probes(shape_, crew_of(bench_))) {
      const auto* work = std::get_if<KernelWork>(&probe.work[bench_.transport.rank().index()]);
      probe.series.seconds =
          measure(bench_.transport, patient_, Samples::each, work != nullptr, [&](int repetitions) {
            for (int i = 0; i < repetitions; ++i) {
              run(*work);
            }
          });
      pace_.beside(probe.series, Samples::each);
      series.push_back(std::move(probe.series));
    }
    return series;
  }

 private:
  static constexpr std::int64_t pool_bytes = 128 << 20;

  void run(const KernelWork& work) {
    const std::int64_t n = work.rows;
    const int width = shape_.head_dim;
    const DType dtype = shape_.dtype;
    const DType fp32 = DType::fp32;
    const auto box = [](const Rows& r) {
      return Box{.data = r.data, .dtype = r.dtype, .row_heads = r.heads};
    };
    switch (work.kernel) {
      case KernelWork::Kernel::merge:
        return merge(rows(n, width, fp32), rows(n, 1, fp32), rows(n, width, dtype),
                     rows(n, 1, fp32), false);
      case KernelWork::Kernel::accumulate:
        return accumulate(rows(n, width, fp32), rows(n, width, dtype), false);
      case KernelWork::Kernel::cast:
        return accumulate(rows(n, width, dtype), rows(n, width, fp32), true);
      case KernelWork::Kernel::copy:
        return move(box(rows(n, width, dtype)), box(rows(n, width, dtype)), n, 1, shape_.q_heads,
                    width, false);
      case KernelWork::Kernel::row_dot:
        return row_dot(rows(n, width, dtype), rows(n, width, dtype), rows(n, 1, fp32));
    }
    throw InternalError("an unknown kernel");
  }

  Rows rows(std::int64_t n, int width, DType dtype) {
    return {.data = pool_.next(n * shape_.q_heads * width * size_of(dtype)).data(),
            .dtype = dtype,
            .count = n,
            .batch = 1,
            .heads = shape_.q_heads,
            .width = width};
  }

  const Bench& bench_;
  Problem shape_;
  Pool pool_;
  const std::unique_ptr<AttentionKernels> kernels_;
  Paced pace_;
  Patient patient_;
};

/// A schedule of one rank whose ops do next to nothing.
Schedule empty_ops(std::int64_t ops) {
  Schedule schedule;
  schedule.contract.attention = {
      .seq = 1, .batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 1, .dtype = DType::fp32};
  schedule.contract.requested = schedule.contract.attention;
  schedule.streams = {"compute"};
  schedule.program = [ops](Rank) {
    const TokenSet token(TokenRange{.begin = 0, .count = 1});
    Program program;
    program.buffers.push_back({.name = "out",
                               .tensor = Tensor::out,
                               .role = BufferRole::scratch,
                               .dtype = DType::fp32,
                               .tokens = 1,
                               .heads = 1,
                               .head_range = {},
                               .tile = {}});
    program.loops.push_back({.trips = ops, .body = [token](std::int64_t, OpList& list) {
                               list.push_back({StreamId(0), Fill{.buffer = BufferId(0),
                                                                 .tokens = token,
                                                                 .heads = {.begin = 0, .end = 1}}});
                             }});
    return program;
  };
  return schedule;
}

/// Seconds of an op in the executor.
Series empty_op(const Bench& bench, const AttentionBackend& kernels) {
  constexpr int ops = 2000;
  const Schedule schedule = empty_ops(ops);
  const std::vector<StoredProgram> programs = store(schedule);
  HostMemory memory(programs.front());
  const auto rank_kernels = kernels.make();
  const Patient patient{.budget = bench.budget / 28.0};
  auto seconds =
      measure(bench.transport, patient, Samples::each, has_core(bench), [&](int repetitions) {
        for (int i = 0; i < repetitions; ++i) {
          (void)execute(schedule, programs.front(), memory, *rank_kernels, bench.transport, {});
        }
      });
  for (double& s : seconds) {
    s /= ops;
  }
  Series series = empty_op_probe(crew_of(bench)).series;
  series.seconds = std::move(seconds);
  return series;
}

}  // namespace

std::vector<Series> elementwise_suite(const Bench& bench, const AttentionBackend& kernels,
                                      const Problem& shape) {
  std::vector<Series> series = Elementwise(bench, kernels, shape).run();
  series.push_back(empty_op(bench, kernels));
  return series;
}

}  // namespace spp::runtime
