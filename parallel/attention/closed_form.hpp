// What a strategy costs, in closed form: the papers' formulas, a second and independent description
// of each schedule. Conformance tests hold it equal to the sums over the schedule's ops; the search
// uses it to bound candidates without building anything (over a million a second).
#pragma once

#include "base/units.hpp"
#include "parallel/attention/plan.hpp"
#include "schedule/measure.hpp"
#include "schedule/problem.hpp"

#include <array>
#include <cstdint>
#include <span>

namespace spp {

/// `calls` communication ops of one kind along one axis on every rank; where ranks differ, on rank
/// 0.
struct CommTerm {
  CommKind kind = CommKind::send_recv;
  Axis axis = Axis::ring;  // whose groups (or neighbours) communicate
  int group_size = 1;
  int stride = 1;          // places along the axis from one member to the next
  std::int64_t calls = 0;  // per rank
  Bytes total;             // sent to other ranks by all ranks in all calls together
  bool neighbours = true;  // of send_recv: always the next one; else each call has another peer
};

struct ClosedForm {
  std::array<CommTerm, 10> terms{};
  int term_count = 0;
  FlopCount flops;                   // of all ranks, exact under the mask
  FlopCount busiest_flops;           // of the rank with most
  std::int64_t attention_calls = 0;  // kernels on the rank with most
  bool calls_of_busiest = true;      // the rank with most FLOPs has as many
  Bytes peak_buffers;                // Arena::peak_live of the rank with most (schedule/arena)
  Bytes kept;  // of these, a softmax's weights that the forward leaves for the backward
  bool exchange_first = false;  // an exchange comes before all kernels of attention
  bool exchange_last = false;   // one comes behind them

  void add(const CommTerm& term) {
    if ((term.calls > 0 || term.total > Bytes(0)) && term.group_size > 1) {
      terms.at(static_cast<std::size_t>(term_count++)) = term;
    }
  }
  [[nodiscard]] std::span<const CommTerm> comm() const {
    return {terms.data(), static_cast<std::size_t>(term_count)};
  }
};

/// Choices of a stack that change what a schedule moves.
struct BuildOptions {
  DType gradient = DType::fp32;  // in which dK, dV (StarTrail: dQ) travel and accumulate
  /// Kernels get the parts of a zigzag block that the mask needs; else whole blocks, masked.
  bool sections = true;
};

}  // namespace spp
