// Where everything lies: every legal plan can be stored, all rows, moves and parts stay inside
// their buffers, and what members of a collective send is what their peers expect.
#include "schedule/storage.hpp"

#include "tests/conformance/cases.hpp"
#include "tests/support/catch.hpp"

#include <map>
#include <span>

namespace spp {
namespace {

using test::Case;

std::int64_t cells_of(const Buffer& buffer, const Problem& problem) {
  return buffer.tokens * problem.batch * buffer.heads;
}

void check_bounds(const StoredProgram& program, const StoredOp& stored, const Problem& problem) {
  for (const RowSpan& rows : stored.rows) {
    REQUIRE(rows.begin >= 0);
    REQUIRE(rows.begin + rows.count <= program.buffers[rows.buffer.index()].tokens);
  }
  const auto end = [&](const CellBox& box, const CellMove& m) {
    return box.begin +
           ((m.rows - 1) * box.row_step * problem.batch + problem.batch - 1) * box.row_heads +
           m.heads;
  };
  if (const auto* copy = op_if<Copy>(stored.op.body)) {
    std::int64_t moved = 0;
    for (const CellMove& m : stored.moves) {
      REQUIRE(end(m.from, m) <= cells_of(program.buffers[copy->from.index()], problem));
      REQUIRE(end(m.to, m) <= cells_of(program.buffers[copy->to.index()], problem));
      moved += m.rows * m.heads * problem.batch;
    }
    REQUIRE(moved > 0);
  }
}

TEST_CASE("legal plans can be stored") {
  for (const std::span<const int> worlds :
       {std::span<const int>(test::small_worlds), std::span<const int>(test::middle_worlds)}) {
    for (const int ranks : worlds) {
      for (const Case& c : test::cases(ranks, 60)) {
        INFO(c.text());
        const Schedule schedule = c.build();
        for (const StoredProgram& program : store(schedule)) {
          for (std::size_t i = 0; i < program.ops.size(); ++i) {
            check_bounds(program, program.ops[i], schedule.problem);
            for (const std::int32_t wait : program.ops[i].waits) {
              REQUIRE(wait < static_cast<std::int32_t>(i));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("members of an all-to-all send what their peers expect") {
  for (const Case& c : test::cases(6, 200)) {
    if (c.plan.ulysses == 1) {
      continue;
    }
    INFO(c.text());
    const auto programs = store(c.build());
    std::map<std::pair<int, int>, std::vector<std::int64_t>> sent;  // (from, to): counts in order
    std::map<std::pair<int, int>, std::vector<std::int64_t>> received;
    for (const StoredProgram& program : programs) {
      for (const StoredOp& stored : program.ops) {
        const auto* op = op_if<Collective>(stored.op.body);
        if (op == nullptr || op->kind != CollectiveKind::all_to_all) {
          continue;
        }
        for (int i = 0; i < op->group.size; ++i) {
          const int peer = op->group.rank(i).value;
          sent[{program.rank.value, peer}].push_back(
              stored.sends[static_cast<std::size_t>(i)].count);
          received[{peer, program.rank.value}].push_back(
              stored.receives[static_cast<std::size_t>(i)].count);
        }
      }
    }
    REQUIRE(sent == received);
  }
}

}  // namespace
}  // namespace spp
