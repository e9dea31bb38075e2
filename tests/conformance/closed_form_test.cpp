// The closed form of a strategy is the sum over the ops of its schedule: two descriptions that were
// written apart. Bytes and calls are equal as integers; FLOPs of these small problems stay below
// 2^53, so that their sums are exact too (1e-12 is far below one pair of tokens).
#include "schedule/arena.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <limits>
#include <map>

namespace spp {
namespace {

using test::Case;

/// What a schedule does, op by op, over all ranks.
struct Sums {
  std::array<Bytes, comm_kinds> sent{};
  std::array<Bytes, comm_kinds> received{};
  std::map<std::pair<Rank, Rank>, Bytes> messages_out, messages_in;  // exchanges, by (from, to)
  std::array<std::int64_t, comm_kinds> calls{};                      // on rank 0
  FlopCount flops;
  FlopCount busiest_flops;
  std::int64_t attention_calls = 0;
  Bytes peak_buffers;
  Bytes kept;
};

Bytes size_of_list(const BufferList& list, const Shapes& shapes) {
  Bytes total;
  for (const BufferId id : list) {
    total += bytes_of(shapes.buffers[id.index()]);
  }
  return total;
}

/// Bytes that arrive from other ranks.
Bytes received_bytes(const Transfer& transfer, const Shapes& shapes) {
  const auto size = [&](BufferId id) { return bytes_of(shapes.buffers[id.index()]); };
  if (const auto* o = std::get_if<Exchange>(&transfer)) {
    return o->from.valid() && o->from != shapes.rank ? size_of_list(o->receive, shapes) : Bytes(0);
  }
  const auto& o = std::get<Collective>(transfer);
  switch (o.kind) {
    case CollectiveKind::all_to_all: {
      // Own part of `to`: the same tokens and heads as in `from`.
      const auto& deal = std::get<HeadDeal>(o.deal);
      Buffer own = shapes.buffers[o.to.index()];
      own.tokens = deal.tokens;
      own.heads = deal.heads(o.group.index_of(shapes.rank)).count();
      return size(o.to) - bytes_of(own);
    }
    case CollectiveKind::all_gather:
      return size(o.to) - size(o.from);
    case CollectiveKind::reduce_scatter:
      return size(o.to) * (o.group.size - 1);
    case CollectiveKind::all_reduce:
      return Bytes(size(o.to).value() / o.group.size * 2 * (o.group.size - 1));
  }
  return Bytes(0);
}

/// Weights that a rank's forward leaves for its backward.
Bytes kept_by(const Program& program) {
  Bytes kept;
  for (const Buffer& buffer : program.buffers) {
    kept += buffer.tensor == Tensor::weights && buffer.role != BufferRole::scratch
                ? bytes_of(buffer)
                : Bytes(0);
  }
  return kept;
}

Sums sums_of(const Schedule& schedule) {
  Sums sums;
  for (int r = 0; r < schedule.mesh.size(); ++r) {
    const Rank rank(r);
    const Program program = schedule.program(rank);
    const Shapes shapes{
        .problem = &schedule.contract.attention, .buffers = program.buffers, .rank = rank};
    FlopCount flops;
    std::int64_t calls = 0;
    ProgramCursor cursor(program);
    while (const Op* op = cursor.next()) {
      if (const auto* transfer = std::get_if<Transfer>(&op->body)) {
        const auto kind = static_cast<std::size_t>(comm_kind_of(*transfer));
        sums.sent.at(kind) += sent_bytes(*transfer, shapes);
        sums.received.at(kind) += received_bytes(*transfer, shapes);
        sums.calls.at(kind) += r == 0 ? 1 : 0;
        if (const auto* exchange = std::get_if<Exchange>(transfer)) {
          if (exchange->to.valid()) {
            sums.messages_out[{rank, exchange->to}] += size_of_list(exchange->send, shapes);
          }
          if (exchange->from.valid()) {
            sums.messages_in[{exchange->from, rank}] += size_of_list(exchange->receive, shapes);
          }
        }
      } else {
        flops += attention_flops(std::get<Kernel>(op->body), shapes);
        calls += is_attention(kind_of(op->body)) ? 1 : 0;
      }
    }
    sums.flops += flops;
    sums.busiest_flops = std::max(sums.busiest_flops, flops);
    sums.attention_calls = std::max(sums.attention_calls, calls);
    sums.peak_buffers = std::max(sums.peak_buffers, plan_arena(program).peak_live);
    sums.kept = std::max(sums.kept, kept_by(program));
  }
  return sums;
}

void check_closed_form(const ClosedForm& form, const Sums& sums) {
  std::array<Bytes, comm_kinds> sent{};
  std::array<std::int64_t, comm_kinds> calls{};
  for (const CommTerm& term : form.comm()) {
    sent.at(static_cast<std::size_t>(term.kind)) += term.total;
    calls.at(static_cast<std::size_t>(term.kind)) += term.calls;
  }
  for (std::size_t kind = 0; kind < comm_kinds; ++kind) {
    INFO(to_string(static_cast<CommKind>(kind)));
    REQUIRE(sent.at(kind).value() == sums.sent.at(kind).value());
    REQUIRE(calls.at(kind) == sums.calls.at(kind));
  }
  REQUIRE(form.flops.value() == Catch::Approx(sums.flops.value()).epsilon(1e-12));
  REQUIRE(form.busiest_flops.value() == Catch::Approx(sums.busiest_flops.value()).epsilon(1e-12));
  REQUIRE(form.attention_calls == sums.attention_calls);
  REQUIRE(form.peak_buffers.value() == sums.peak_buffers.value());
  REQUIRE(form.kept.value() == sums.kept.value());
}

void check_closed_forms(std::span<const int> worlds, std::size_t most) {
  for (const int ranks : worlds) {
    for (const Case& c : test::cases(ranks, most)) {
      INFO(c.text());
      const Sums sums = sums_of(c.build());
      check_closed_form(c.closed_form(), sums);
      REQUIRE(sums.sent == sums.received);
      REQUIRE(sums.messages_out == sums.messages_in);
    }
  }
}

TEST_CASE("closed forms equal the sums over the ops, and what is sent is received") {
  check_closed_forms(test::small_worlds, 400);
  check_closed_forms(test::middle_worlds, 150);
  check_closed_forms(test::large_worlds, 30);
}

TEST_CASE("closed forms equal the sums over the ops for what is made for documents") {
  for (const std::span<const int> worlds :
       {std::span<const int>(test::small_worlds), std::span<const int>(test::middle_worlds)}) {
    for (const int ranks : worlds) {
      for (const Case& c : test::document_cases(ranks, 100)) {
        // How many blocks a window skips where each document is dealt out, lengths decide.
        if (c.problem.mask.kind != MaskKind::window || !deals_documents(c.plan.layout)) {
          INFO(c.text());
          check_closed_form(c.closed_form(), sums_of(c.build()));
        }
      }
    }
  }
}

TEST_CASE("closed forms equal the sums over the ops behind cached keys") {
  for (const int ranks : test::small_worlds) {
    for (const Case& c : test::cached_cases(ranks, 60)) {
      if (c.problem.mask.kind == MaskKind::window) {
        continue;  // how many blocks they need, the closed form does not say
      }
      INFO(c.text());
      const Sums sums = sums_of(c.build());
      check_closed_form(c.closed_form(), sums);
      REQUIRE(sums.sent == sums.received);
    }
  }
}

TEST_CASE("all closed forms of small worlds equal the sums over the ops", "[.][exhaustive]") {
  check_closed_forms(test::small_worlds, std::numeric_limits<std::size_t>::max());
  check_closed_forms(test::middle_worlds, 3000);
}

}  // namespace
}  // namespace spp
