#include "schedule/schedule.hpp"

#include <array>

namespace spp {

std::string_view to_string(AxisMoves moves) {
  constexpr std::array<std::string_view, 3> words{"rotations", "permutations", "alike"};
  return words.at(static_cast<std::size_t>(moves));
}

std::int64_t width_of(Tensor tensor, const Problem& problem) {
  if (tensor == Tensor::lse || tensor == Tensor::delta) {
    return 1;
  }
  const std::int64_t dim = problem.head_dim;
  return is_of_pairs(tensor) ? problem.seq : is_state(tensor) ? dim * dim : dim;
}

Bytes bytes_of(const Buffer& buffer, const Problem& problem) {
  return Bytes(problem.batch * buffer.tokens * buffer.heads * width_of(buffer.tensor, problem) *
               size_of(buffer.dtype));
}

const Op* ProgramCursor::next() {
  while (op_ == ops_.size()) {
    while (loop_ < program_.loops.size() && trip_ == program_.loops[loop_].trips) {
      ++loop_;
      trip_ = 0;
    }
    if (loop_ == program_.loops.size()) {
      return nullptr;
    }
    ops_.clear();
    op_ = 0;
    program_.loops[loop_].body(trip_++, ops_);
  }
  ++position_;
  return &ops_[op_++];
}

OpList ops_of(const Program& program) {
  OpList ops;
  for (const Loop& loop : program.loops) {
    for (std::int64_t i = 0; i < loop.trips; ++i) {
      loop.body(i, ops);
    }
  }
  return ops;
}

}  // namespace spp
