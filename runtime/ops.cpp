#include "runtime/ops.hpp"

#include "base/error.hpp"

namespace spp::runtime {

TimelineEvent event_of(const Schedule& schedule, const StoredProgram& program, std::int32_t index,
                       Seconds begin, Seconds end) {
  const StoredOp& stored = program.ops[static_cast<std::size_t>(index)];
  const Shapes shapes = shapes_of(schedule, program);
  const OpBody& body = stored.op.body;
  const auto* kernel = std::get_if<Kernel>(&body);
  const Bytes bytes = kernel != nullptr ? touched_bytes(*kernel, shapes)
                                        : sent_bytes(std::get<Transfer>(body), shapes);
  return {.rank = program.rank,
          .op = index,
          .stream = stored.op.stream,
          .kind = kind_of(body),
          .begin = begin,
          .end = end,
          .bytes = bytes.value(),
          .flops = kernel != nullptr ? kernel_flops(*kernel, shapes).value() : 0,
          .waited_for = stored.waits.empty() ? -1 : stored.waits.back(),
          .waited_for_rank = Rank()};
}

void expect_sent(const Transfer& transfer, const Shapes& shapes, Bytes sent) {
  const Bytes planned = sent_bytes(transfer, shapes);
  if (sent != planned) {
    throw BackendError(
        name_of(transfer),
        fmt::format("{} bytes were sent, the schedule says {}", sent.value(), planned.value()),
        shapes.rank.value);
  }
}

}  // namespace spp::runtime
