// The program of one schedule as part of another's: attention among some of the ranks, and some of
// the heads, of a layer.
#pragma once

#include "schedule/builder.hpp"

#include <map>
#include <string>

namespace spp {

/// Where a schedule's ranks, heads and buffers are in the larger one. Streams keep their numbers.
struct Transplant {
  int first = 0, stride = 1;  // rank r is first + r * stride
  HeadSplit split;            // of all heads of the larger schedule
  int first_part = 0;         // of it, that the schedule's part 0 is
  int q_heads = 0;            // before the schedule's first one
  int kv_heads = 0;
  std::map<TensorRef, BufferId> inputs, outputs;  // that are there already
};

/// Appends the program. Its other inputs and outputs become the larger program's own, all buffers
/// under their names with `prefix` before them.
void transplant(ProgramBuilder& to, const Program& program, const Transplant& place,
                const std::string& prefix);

}  // namespace spp
