// Where everything lies: every legal plan can be stored, all rows, moves and parts stay inside
// their buffers, and what members of a collective send is what their peers expect.
#include "schedule/storage.hpp"

#include "tests/conformance/cases.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <string>

namespace spp {
namespace {

using test::Case;

std::int64_t cells_of(const Buffer& buffer, const Problem& problem) {
  return buffer.tokens * problem.batch * buffer.heads;
}

bool inside_buffers(const StoredProgram& program, const StoredOp& stored, const Problem& problem) {
  const auto rows_fit = [&](const RowSpan& rows) {
    return rows.begin >= 0 &&
           rows.begin + rows.count <= program.buffers[rows.buffer.index()].tokens;
  };
  const auto end = [&](const CellBox& box, const CellMove& m) {
    return box.begin +
           ((m.rows - 1) * box.row_step * problem.batch + problem.batch - 1) * box.row_heads +
           m.heads;
  };
  const auto* copy = op_if<Copy>(stored.op.body);
  const auto move_fits = [&](const CellMove& m) {
    return end(m.from, m) <= cells_of(program.buffers[copy->from.index()], problem) &&
           end(m.to, m) <= cells_of(program.buffers[copy->to.index()], problem);
  };
  const auto moves_rows = [](const CellMove& m) { return m.rows * m.heads > 0; };
  return std::ranges::all_of(stored.rows, rows_fit) &&
         (copy == nullptr || (std::ranges::all_of(stored.moves, move_fits) &&
                              std::ranges::any_of(stored.moves, moves_rows)));
}

/// The first op whose rows leave their buffers, or that waits for none in front of it.
std::string misplaced_op(const StoredProgram& program, const Problem& problem) {
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const StoredOp& op = program.ops[i];
    const bool waits_for_earlier = std::ranges::all_of(
        op.waits, [&](std::int32_t wait) { return wait < static_cast<std::int32_t>(i); });
    if (!inside_buffers(program, op, problem) || !waits_for_earlier) {
      return std::string(name_of(op.op.body));
    }
  }
  return {};
}

TEST_CASE("legal plans can be stored") {
  for (const std::span<const int> worlds :
       {std::span<const int>(test::small_worlds), std::span<const int>(test::middle_worlds)}) {
    for (const int ranks : worlds) {
      for (const Case& c : test::all_cases(ranks, 60)) {
        INFO(c.text());
        const Schedule schedule = c.build();
        for (const StoredProgram& program : store(schedule)) {
          REQUIRE(misplaced_op(program, schedule.contract.attention) == "");
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
