// The kernels around attention by bytes touched (counted as schedule/measure does), on as many
// ranks of a host as have a core of their own; operands in turn from memory larger than caches.
//
// `op`: what the executor itself takes for an op: a program of fills of one number.
#include "runtime/kernels/elementwise.hpp"

#include "runtime/calibrate/suites.hpp"
#include "runtime/execute.hpp"

#include <algorithm>

namespace spp::runtime {
namespace {

class Elementwise {
 public:
  Elementwise(const Bench& bench, const Problem& shape)
      : bench_(bench),
        shape_(shape),
        pool_(has_core(bench) ? 8 * largest : 0),
        patient_{.budget = bench.budget / 28.0} {}

  std::vector<Series> run() {
    const DType dtype = shape_.dtype;
    const int width = shape_.head_dim;
    for (std::int64_t bytes = 256 << 10; bytes <= largest; bytes *= 4) {
      const std::int64_t n =
          std::max<std::int64_t>(1, bytes / (std::int64_t{4} * width * shape_.q_heads));
      const auto make = [this, n](int w, DType t) { return rows(n, w, t); };
      add("merge",
          size(n, width, dtype) + 3 * size(n, 1, DType::fp32) + 2 * size(n, width, DType::fp32),
          [=] {
            merge(make(width, DType::fp32), make(1, DType::fp32), make(width, dtype),
                  make(1, DType::fp32), false);
          });
      add("accumulate", size(n, width, dtype) + 2 * size(n, width, DType::fp32),
          [=] { accumulate(make(width, DType::fp32), make(width, dtype), false); });
      add("cast", size(n, width, DType::fp32) + size(n, width, dtype),
          [=] { accumulate(make(width, dtype), make(width, DType::fp32), true); });
      add("copy", 2 * size(n, width, dtype), [=, this] {
        const auto box = [&](const Rows& r) {
          return Box{.data = r.data, .dtype = r.dtype, .row_heads = r.heads};
        };
        move(box(make(width, dtype)), box(make(width, dtype)), n, 1, shape_.q_heads, width, false);
      });
      add("row_dot", 2 * size(n, width, dtype) + size(n, 1, DType::fp32),
          [=] { row_dot(make(width, dtype), make(width, dtype), make(1, DType::fp32)); });
    }
    return std::move(series_);
  }

 private:
  static constexpr std::int64_t largest = 16 << 20;

  [[nodiscard]] std::int64_t size(std::int64_t n, int width, DType dtype) const {
    return n * shape_.q_heads * width * size_of(dtype);
  }
  Rows rows(std::int64_t n, int width, DType dtype) {
    return {.data = pool_.next(size(n, width, dtype)).data(),
            .dtype = dtype,
            .count = n,
            .batch = 1,
            .heads = shape_.q_heads,
            .width = width};
  }

  template <class Kernel>
  void add(std::string what, std::int64_t touched, Kernel kernel) {
    auto seconds =
        measure(bench_.transport, patient_, Samples::each, has_core(bench_), [&](int repetitions) {
          for (int i = 0; i < repetitions; ++i) {
            kernel();
          }
        });
    series_.push_back({.suite = "elementwise",
                       .what = std::move(what),
                       .scope = "",
                       .ranks = 1,
                       .active = with_core(bench_),
                       .size = static_cast<double>(touched),
                       .seconds = std::move(seconds),
                       .block = std::nullopt});
  }

  const Bench& bench_;
  Problem shape_;
  Pool pool_;
  Patient patient_;
  std::vector<Series> series_;
};

/// A schedule of one rank whose ops do next to nothing.
Schedule empty_ops(std::int64_t ops) {
  Schedule schedule;
  schedule.problem = {
      .seq = 1, .batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 1, .dtype = DType::fp32};
  schedule.requested = schedule.problem;
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
                               .tile = {},
                               .head_range = {}});
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
  HostMemory memory(programs.front(), schedule.problem);
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
  return {.suite = "elementwise",
          .what = "op",
          .scope = "",
          .ranks = 1,
          .active = with_core(bench),
          .size = 0,
          .seconds = std::move(seconds),
          .block = std::nullopt};
}

}  // namespace

std::vector<Series> elementwise_suite(const Bench& bench, const AttentionBackend& kernels,
                                      const Problem& shape) {
  std::vector<Series> series = Elementwise(bench, shape).run();
  series.push_back(empty_op(bench, kernels));
  return series;
}

}  // namespace spp::runtime
