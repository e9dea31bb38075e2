#include "sim/op_costs.hpp"

#include <cmath>

namespace spp::sim {

bool KnownOps::recall(std::size_t loop, std::size_t index, Slot& slot) const {
  if (loop >= loops_.size() || index >= loops_[loop].size()) {
    return false;
  }
  const KnownOp& op = loops_[loop][index];
  slot.op_class = op.op_class;
  slot.streams = op.streams;
  slot.seconds = op.seconds;
  slot.flops = op.flops;
  slot.bytes = op.bytes;
  slot.host = op.host;
  slot.stand = op.stand;
  if (!is_kernel(op.op_class)) {
    slot.comm = op.comm;
    slot.to = op.to;
    slot.from = op.from;
    slot.group = op.group;
    slot.lowered = op.lowered;
  }
  return true;
}

void KnownOps::remember(std::size_t loop, const Slot& slot) {
  if (loop >= loops_.size()) {
    loops_.resize(loop + 1);
  }
  KnownOp& op = loops_[loop].emplace_back(KnownOp{.op_class = slot.op_class,
                                                  .streams = slot.streams,
                                                  .comm = slot.comm,
                                                  .seconds = slot.seconds,
                                                  .flops = slot.flops,
                                                  .host = slot.host,
                                                  .stand = slot.stand,
                                                  .bytes = slot.bytes,
                                                  .to = slot.to,
                                                  .from = slot.from,
                                                  .group = slot.group,
                                                  .lowered = {}});
  if (!is_kernel(slot.op_class)) {
    op.lowered = slot.lowered;
  }
}

void OpCosts::fill(const Op& op, const Shapes& shapes, Slot& slot) const {
  std::visit(Overloaded{[&](const Kernel& kernel) { fill(kernel, shapes, slot); },
                        [&](const Transfer& transfer) { fill(transfer, shapes, slot); }},
             op.body);
  if (costs_.host_of) {
    const HostTime host = costs_.host_of(op, shapes);
    slot.host = host.issue.count();
    slot.stand = host.stand.count();
  }
}

void OpCosts::fill(const Kernel& kernel, const Shapes& shapes, Slot& slot) const {
  const bool attention = is_attention(slot.kind);
  slot.op_class = attention ? OpClass::attention : OpClass::kernel;
  slot.seconds = costs_.kernel(kernel, shapes).count();
  slot.streams = !attention && slot.kind != OpKind::gemm && std::isfinite(cached_) &&
                 touched_bytes(kernel, shapes).as_double() > cached_;
  if (timeline_) {
    slot.flops = kernel_flops(kernel, shapes).value();
    slot.bytes = touched_bytes(kernel, shapes).value();
  }
}

void OpCosts::fill(const Transfer& transfer, const Shapes& shapes, Slot& slot) const {
  slot.comm = comm_kind_of(transfer);
  slot.bytes = sent_bytes(transfer, shapes).value();
  slot.flops = 0;
  lower(transfer, shapes, placement_, slot.lowered);
  if (const auto* exchange = std::get_if<Exchange>(&transfer)) {
    slot.op_class = OpClass::exchange;
    slot.to = exchange->to;
    slot.from = exchange->from;
    slot.seconds = exchange->to == shapes.rank ? local_copy_seconds(*exchange, shapes) : 0;
    return;
  }
  slot.op_class = OpClass::collective;
  slot.group = std::get<Collective>(transfer).group;
}

/// Reads and writes what the rank sends to itself.
double OpCosts::local_copy_seconds(const Exchange& exchange, const Shapes& shapes) const {
  Bytes bytes{};
  for (const BufferId id : exchange.send) {
    bytes += bytes_of(shapes.buffers[id.index()]);
  }
  return costs_.local_copy.value() > 0 ? 2 * (bytes / costs_.local_copy).count() : 0;
}

}  // namespace spp::sim
