#include "runtime/ops.hpp"

#include "base/error.hpp"

namespace spp::runtime {

TimelineEvent event_of(const Schedule& schedule, const StoredProgram& program, std::int32_t index,
                       Seconds begin, Seconds end) {
  const StoredOp& stored = program.ops[static_cast<std::size_t>(index)];
  const Shapes shapes = shapes_of(schedule, program);
  const OpBody& body = stored.op.body;
  return {
      .rank = program.rank,
      .op = index,
      .stream = stored.op.stream,
      .kind = static_cast<std::uint8_t>(body.index()),
      .begin = begin,
      .end = end,
      .bytes =
          (is_communication(body) ? sent_bytes(body, shapes) : touched_bytes(body, shapes)).value(),
      .flops = attention_flops(body, schedule.problem).value(),
      .waited_for = stored.waits.empty() ? -1 : stored.waits.back(),
      .waited_for_rank = Rank()};
}

void expect_sent(const StoredOp& stored, const Shapes& shapes, Bytes sent) {
  const Bytes planned = sent_bytes(stored.op.body, shapes);
  if (sent != planned) {
    throw BackendError(
        name_of(stored.op.body),
        fmt::format("{} bytes were sent, the schedule says {}", sent.value(), planned.value()),
        shapes.rank.value);
  }
}

}  // namespace spp::runtime
