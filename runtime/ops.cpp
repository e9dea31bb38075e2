#include "runtime/ops.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <map>
#include <utility>

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
          .waited_for = -1,
          .waited_for_rank = Rank()};
}

void tell_waits(const StoredProgram& program, std::vector<TimelineEvent>& events) {
  std::vector<Seconds> ends(program.ops.size());
  for (const TimelineEvent& event : events) {
    ends[static_cast<std::size_t>(event.op)] = event.end;
  }
  std::vector<std::int32_t> before(program.ops.size(), -1);  // on the same stream
  std::map<StreamId, std::int32_t> last;
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    const auto [at, first] =
        last.try_emplace(program.ops[op].op.stream, static_cast<std::int32_t>(op));
    before[op] = first ? -1 : std::exchange(at->second, static_cast<std::int32_t>(op));
  }
  for (TimelineEvent& event : events) {
    const auto op = static_cast<std::size_t>(event.op);
    Seconds latest = before[op] < 0 ? Seconds(0) : ends[static_cast<std::size_t>(before[op])];
    for (const std::int32_t wait : program.ops[op].waits) {
      if (const Seconds end = ends[static_cast<std::size_t>(wait)]; end > latest) {
        latest = end;
        event.waited_for = wait;
      }
    }
  }
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
