#include "schedule/schedule.hpp"

#include "base/error.hpp"

#include <array>

namespace spp {

std::string_view to_string(AxisMoves moves) {
  constexpr std::array<std::string_view, 4> words{"rotations", "permutations", "alike", "equal"};
  return words.at(static_cast<std::size_t>(moves));
}

BufferShape shape_of(Tensor tensor, const Problem& problem) {
  const std::int64_t dim = has_values_width(tensor) ? problem.v_dim() : problem.head_dim;
  const bool of_rows = tensor == Tensor::lse || tensor == Tensor::delta;
  const std::int64_t width = of_rows               ? 1
                             : is_of_pairs(tensor) ? problem.end()
                             : is_state(tensor)    ? dim * dim
                                                   : dim;
  return {.width = width, .batch = problem.batch};
}

BufferShape shape_of(TensorRef ref, const Problem& problem, const Graph& graph) {
  if (is_value(ref.tensor)) {
    return {.width = graph.value(ref.label).part_width(), .batch = problem.batch};
  }
  return is_param(ref.tensor) ? BufferShape{.width = graph.param(ref.label).part_columns()}
                              : shape_of(ref.tensor, problem);
}

bool takes_fp32(TensorRef ref, const Graph& graph) {
  switch (ref.tensor) {
    case Tensor::lse:
    case Tensor::delta:
    case Tensor::scores:
    case Tensor::d_weights:
    case Tensor::state:
    case Tensor::d_state:
    case Tensor::d_param:  // main gradients
    case Tensor::master:
    case Tensor::first_moment:
    case Tensor::second_moment:
      return true;
    case Tensor::q:
    case Tensor::k:
    case Tensor::v:
    case Tensor::out:
    case Tensor::d_out:
    case Tensor::d_q:
    case Tensor::d_k:
    case Tensor::d_v:
    case Tensor::weights:
    case Tensor::d_scores:
    case Tensor::param:
      return false;
    case Tensor::value:
    case Tensor::d_value:
      return graph.value(ref.label).fp32;
  }
  throw InternalError("unknown tensor");
}

AttentionRows rows_of(const Problem& problem, int head_parts) {
  return {.head_parts = head_parts,
          .q_width = std::int64_t{problem.q_heads} * problem.head_dim,
          .kv_width = std::int64_t{problem.kv_heads} * problem.head_dim,
          .out_width = std::int64_t{problem.q_heads} * problem.v_dim(),
          .head_dim = problem.head_dim,
          .value_dim = problem.v_dim(),
          .masks = problem.masks(),
          .sinks = problem.sinks};
}

const Op* ProgramCursor::next() {
  while (op_ == ops_.size()) {
    while (loop_ < program_.loops.size() && trip_ == program_.loops[loop_].trips) {
      ++loop_;
      trip_ = 0;
      in_loop_ = -1;
    }
    if (loop_ == program_.loops.size()) {
      return nullptr;
    }
    ops_.clear();
    op_ = 0;
    program_.loops[loop_].body(trip_++, ops_);
  }
  ++position_;
  ++in_loop_;
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

std::vector<Lifespan> lifespans_of(const Program& program) {
  std::vector<Lifespan> lifespans(program.buffers.size());
  OpList ops;
  std::int64_t position = 0;
  for (const Loop& loop : program.loops) {
    for (std::int64_t trip = 0; trip < loop.trips; ++trip) {
      ops.clear();
      loop.body(trip, ops);
      for (const Op& op : ops) {
        ++position;
        const Access access = access_of(op.body);
        for (const auto ids : {access.reads(), access.writes()}) {
          for (const BufferId id : ids) {
            const bool known = id.valid() && id.index() < lifespans.size();
            if (known && program.buffers[id.index()].role == BufferRole::scratch) {
              Lifespan& lifespan = lifespans[id.index()];
              lifespan.first = lifespan.first == 0 ? position : lifespan.first;
              lifespan.last = position;
            }
          }
        }
      }
    }
  }
  return lifespans;
}

}  // namespace spp
