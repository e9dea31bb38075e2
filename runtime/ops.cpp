#include "runtime/ops.hpp"

#include "base/error.hpp"

#include <algorithm>

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

std::vector<Rank> peers_of(const OpBody& body, Rank self) {
  std::vector<Rank> peers;
  const auto add = [&](Rank rank) {
    if (rank != self && std::ranges::find(peers, rank) == peers.end()) {
      peers.push_back(rank);
    }
  };
  const auto* transfer = std::get_if<Transfer>(&body);
  if (transfer == nullptr) {
    return peers;
  }
  if (const auto* exchange = std::get_if<Exchange>(transfer)) {
    add(exchange->from);
    add(exchange->to);
  } else {
    const RankGroup& group = std::get<Collective>(*transfer).group;
    for (int i = 0; i < group.size; ++i) {
      add(group.rank(i));
    }
  }
  return peers;
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
