// What the executor costs: a rank runs ops of exactly known length, and everything beyond their sum
// is interpretation of the schedule, time-keeping and polling. Prints one line a case; lengths of
// ops are the argument's milliseconds (default 1).
#include "base/median.hpp"
#include "runtime/execute.hpp"
#include "runtime/trial/trial.hpp"
#include "schedule/builder.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <thread>

using namespace spp;

namespace {

using Clock = std::chrono::steady_clock;

/// Spins for a fixed time, polling as real kernels do; remembers how long it really took.
class Spin : public runtime::AttentionKernels {
 public:
  Spin(Seconds length, Seconds& total) : length_(length), total_(total) {}
  void forward(const runtime::AttentionForwardArgs&, const runtime::Poll& poll) override {
    const auto begin = Clock::now();
    while (Clock::now() - begin < length_ / 2) {
    }
    poll();
    while (Clock::now() - begin < length_) {
    }
    total_ += Clock::now() - begin;
  }
  void backward(const runtime::AttentionBackwardArgs&, const runtime::Poll&) override {}
  void gemm(const runtime::GemmArgs&, const runtime::Poll&) override {}

 private:
  Seconds length_;
  Seconds& total_;
};

/// `ops` kernels, each followed by a message to oneself on another stream that the next one needs.
Schedule chain(std::int64_t ops) {
  Schedule s;
  s.contract.attention = {.seq = 16,
                          .batch = 1,
                          .q_heads = 1,
                          .kv_heads = 1,
                          .head_dim = 8,
                          .mask = {.kind = MaskKind::full},
                          .dtype = DType::fp32};
  s.contract.requested = s.contract.attention;
  s.streams = {"compute", "ring"};
  s.program = [ops, problem = s.contract.attention](Rank rank) {
    ProgramBuilder b(problem, rank);
    const TokenSet all({.begin = 0, .count = problem.seq});
    const HeadRange head{.begin = 0, .end = 1};
    const BufferId q = b.input("q", Tensor::q, all, head);
    const BufferId k = b.input("k", Tensor::k, all, head);
    const BufferId v = b.input("v", Tensor::v, all, head);
    const BufferId out = b.output("out", Tensor::out, all, head);
    const BufferId lse = b.output("lse", Tensor::lse, all, head);
    const BufferId copy = b.scratch("k_copy", Tensor::k, problem.seq, 1);
    b.loop(ops, [=](std::int64_t, OpList& list) {
      list.push_back(
          {StreamId(1), Exchange{.to = rank, .from = rank, .send = {k}, .receive = {copy}}});
      list.push_back({StreamId(0), AttentionForward{.q = q,
                                                    .k = copy,
                                                    .v = v,
                                                    .out = out,
                                                    .lse = lse,
                                                    .q_tokens = all,
                                                    .k_tokens = all,
                                                    .heads = head,
                                                    .kv_heads = head}});
    });
    return b.finish();
  };
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  const Seconds length((argc > 1 ? std::atof(argv[1]) : 1.0) * 1e-3);
  constexpr std::int64_t ops = 500;
  const Schedule schedule = chain(ops);
  const std::vector<StoredProgram> programs = store(schedule);
  fmt::print(
      "| {} kernels of {:.2f} ms, {} messages | elapsed ms | kernels ms | overhead | per op us |\n"
      "|---|---|---|---|---|\n",
      ops, length.count() * 1e3, ops);
  runtime::transports::by_name("inproc", "bench").run(1, [&](runtime::Transport& transport) {
    for (const bool timeline : {true, false}) {
      std::vector<Seconds> elapsed;
      std::vector<Seconds> overhead;
      for (int round = 0; round < 7; ++round) {
        Seconds kernels{};
        Spin spin(length, kernels);
        runtime::HostMemory memory(programs.front());
        const runtime::ExecuteOptions options{.timeline = timeline};
        const runtime::Execution run =
            runtime::execute(schedule, programs.front(), memory, spin, transport, options);
        elapsed.push_back(run.elapsed);
        overhead.push_back(run.elapsed - kernels);
      }
      const Seconds all = median_of(elapsed);
      const Seconds extra = median_of(overhead);
      fmt::print("| {} | {:.2f} | {:.2f} | {:.3f} % | {:.2f} |\n",
                 timeline ? "every op timed" : "not timed", all.count() * 1e3,
                 (all - extra).count() * 1e3, 100 * extra / all, extra.count() * 1e6 / (2 * ops));
    }
  });
}
