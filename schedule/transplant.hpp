// The program of one schedule as part of another's: attention among some of the ranks, and some of
// the heads, of a layer.
#pragma once

#include "schedule/builder.hpp"

#include <functional>
#include <string>
#include <vector>

namespace spp {

/// Where a schedule's ranks, heads and buffers are in the larger one. Streams keep their numbers.
struct Transplant {
  int first = 0, stride = 1;  // rank r is first + r * stride
  HeadSplit split;            // of all heads of the larger schedule
  int first_part = 0;         // of it, that the schedule's part 0 is
  int q_heads = 0;            // before the schedule's first one
  int kv_heads = 0;
  int attention = 0;        // of the larger schedule's, that this one is
  int mask = 0;             // of the larger problem's, that this one's is
  std::int64_t tokens = 0;  // before the schedule's first one
  /// The larger program's buffer that an input or output is; invalid: none, it becomes one of its
  /// own.
  std::function<BufferId(const Buffer&)> known;
  bool inner = false;  // of its own: scratch, else inputs and outputs as they were
};

/// Appends the program, all buffers that are not known under their names with `prefix` before them.
/// Gives what each of the program's buffers has become.
std::vector<BufferId> transplant(ProgramBuilder& to, const Program& program,
                                 const Transplant& place, const std::string& prefix);

}  // namespace spp
