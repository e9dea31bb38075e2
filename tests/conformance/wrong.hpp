// Schedules made wrong on purpose, which a proof must refuse.
#pragma once

#include "schedule/coverage.hpp"
#include "tests/support/catch.hpp"

#include <string>
#include <vector>

namespace spp::test {

/// The first op of kind T for which `wanted` holds, changed.
template <class T, class Wanted, class Change>
Program changed(Program program, Wanted wanted, Change change) {
  OpList all = ops_of(program);
  bool done = false;
  for (Op& op : all) {
    T* found = op_if<T>(op.body);
    if (found != nullptr && !done && wanted(*found, program.buffers)) {
      change(*found);
      done = true;
    }
  }
  REQUIRE(done);
  program.loops = {{.trips = 1, .body = [all](std::int64_t, OpList& ops) {
                      ops.insert(ops.end(), all.begin(), all.end());
                    }}};
  return program;
}

/// On every rank.
template <class T, class Wanted, class Change>
Schedule changed(Schedule schedule, Wanted wanted, Change change) {
  schedule.program = [program = schedule.program, wanted, change](Rank rank) {
    return changed<T>(program(rank), wanted, change);
  };
  return schedule;
}

inline std::string refuted(const Schedule& schedule) {
  const Proof proof = prove(schedule);
  CHECK_FALSE(proof.proven);
  return proof.counter_example;
}

}  // namespace spp::test
