// An all_reduce through a whole engine: a schedule of its own, since no strategy has one.
#pragma once

#include "runtime/engine.hpp"
#include "runtime/kernels/convert.hpp"
#include "schedule/builder.hpp"
#include "schedule/storage.hpp"

#include <mutex>
#include <string>
#include <vector>

namespace spp::test {

/// Every rank's numbers are added up over all ranks, then over pairs of ranks that lie half of them
/// apart (odd counts: over each alone). "" if all ranks have the right sums.
inline std::string all_reduce_failure(runtime::EngineSource& engines, int ranks, DType dtype) {
  const HeadRange heads{0, 2};
  Schedule schedule;
  schedule.contract.attention = {
      .seq = std::int64_t{5} * ranks, .q_heads = 2, .kv_heads = 2, .head_dim = 8, .dtype = dtype};
  schedule.contract.requested = schedule.contract.attention;
  schedule.mesh = Mesh({{.name = "ranks", .size = ranks}});
  schedule.streams = {"compute", "team"};
  const TokenSet tokens({.begin = 0, .count = schedule.contract.attention.seq});
  const int apart = ranks % 2 == 0 ? ranks / 2 : 1;
  const int together = ranks % 2 == 0 ? 2 : 1;
  schedule.program = [&](Rank rank) {
    ProgramBuilder b(schedule.contract.attention, rank);
    const BufferId x = b.input("x", spp::Tensor::d_q, tokens, heads);
    const BufferId sum = b.scratch("sum", spp::Tensor::d_q, tokens.count(), heads.count());
    const BufferId y = b.output("y", spp::Tensor::d_q, tokens, heads);
    const auto reduce = [&](const RankGroup& group, BufferId from, BufferId to) {
      b.op(StreamId(1), Collective{.kind = CollectiveKind::all_reduce,
                                   .group = group,
                                   .from = from,
                                   .to = to,
                                   .to_tokens = tokens,
                                   .to_heads = heads});
    };
    reduce({.first = 0, .stride = 1, .size = ranks}, x, sum);
    reduce({.first = together == 1 ? rank.value : rank.value % apart,
            .stride = apart,
            .size = together},
           sum, y);
    return b.finish();
  };
  const std::vector<StoredProgram> programs = store(schedule);
  const std::vector<StoredProgram> none;
  const std::int64_t count =
      schedule.contract.attention.seq * heads.count() * schedule.contract.attention.head_dim;
  // Whole numbers below 256, which all types hold.
  const auto value = [](int rank, std::int64_t i) {
    return static_cast<int>((std::int64_t{3} * rank + i) % 7);
  };
  std::string failure;
  std::mutex mutex;
  runtime::transports::by_name("inproc", "test").run(ranks, [&](runtime::Transport& transport) {
    const Rank self = transport.rank();
    const StoredProgram& program = programs[self.index()];
    runtime::HostMemory memory(program, engines.host_part());
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      numbers[static_cast<std::size_t>(i)] = static_cast<float>(value(self.value, i));
    }
    runtime::from_floats(dtype, numbers, memory.bytes(BufferId(0)).data());
    const runtime::ExecuteOptions options;
    runtime::abort_on_throw(transport, [&] {
      const auto engine = engines.make({.transport = transport,
                                        .forward = {schedule, program, memory},
                                        .backward = nullptr,
                                        .options = options,
                                        .forward_of_all = programs,
                                        .backward_of_all = none});
      engine->load(Phase::forward);
      (void)engine->execute(Phase::forward);
      engine->fetch(Phase::forward);
      transport.barrier();
    });
    runtime::to_floats(dtype, memory.bytes(BufferId(2)).data(), numbers);
    for (std::int64_t i = 0; i < count; ++i) {
      int expected = 0;
      for (int r = 0; r < ranks; ++r) {
        expected += together * value(r, i);
      }
      const float got = numbers[static_cast<std::size_t>(i)];
      if (got != static_cast<float>(expected)) {
        const std::scoped_lock lock(mutex);
        failure = fmt::format("{} ranks, rank {}, number {}: {}, not {}", ranks, self.value, i, got,
                              expected);
      }
    }
  });
  return failure;
}

}  // namespace spp::test
