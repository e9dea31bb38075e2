// Small schedules written down by hand, with their ops in lists, so that a test can spoil one op
// and see what the proof says. Not the strategies: those have conformance tests of their own.
#pragma once

#include "schedule/builder.hpp"
#include "schedule/coverage.hpp"

#include <initializer_list>
#include <string>
#include <vector>

namespace spp::test {

inline constexpr StreamId compute{0};
inline constexpr StreamId ring{1};
inline constexpr StreamId gradient{2};
inline constexpr StreamId team{3};

/// 16 tokens on every rank, 4 query heads, 2 KV heads.
inline constexpr std::int64_t tokens_per_rank = 16;
inline constexpr HeadRange all_heads{0, 4};
inline constexpr HeadRange all_kv_heads{0, 2};

struct HandWritten {
  Schedule schedule;                         // all but its program
  std::vector<std::vector<Buffer>> buffers;  // by rank
  std::vector<OpList> ops;                   // by rank

  Layout layout;

  HandWritten(int ranks, Layout tokens, Phase phase, Mask mask) : layout(tokens) {
    schedule.contract.attention = {
        .seq = tokens_per_rank * ranks, .q_heads = 4, .kv_heads = 2, .head_dim = 8, .mask = mask};
    schedule.contract.requested = schedule.contract.attention;
    schedule.contract.phase = phase;
    schedule.mesh = Mesh({{.name = "ranks", .size = ranks}});
    schedule.grain = {.tokens = layout == Layout::zigzag ? tokens_per_rank / 2 : 0,
                      .heads = HeadSplit(schedule.contract.attention, 1, HeadPolicy::divide)};
    schedule.streams = {"compute", "ring", "gradient", "team"};
  }

  [[nodiscard]] TokenSet home(int rank) const {
    return chunk_tokens(schedule.contract.attention.seq, layout, rank, schedule.mesh.size());
  }
  [[nodiscard]] ProgramBuilder builder(int rank) const {
    return {schedule.contract.attention, Rank(rank)};
  }
  void add(ProgramBuilder& b) {
    const Program program = b.finish();
    buffers.push_back(program.buffers);
    ops.push_back(ops_of(program));
  }

  [[nodiscard]] Proof prove() const {
    Schedule s = schedule;
    s.program = [this](Rank rank) {
      Program program{.buffers = buffers[rank.index()], .loops = {}};
      program.loops.push_back(
          {.trips = 1,
           .body = [list = ops[rank.index()]](std::int64_t, OpList& out) { out = list; }});
      return program;
    };
    return spp::prove(s);
  }

  /// Index of the n-th op of a kind in a rank's program, counted from 0.
  template <class Kind>
  [[nodiscard]] std::size_t index(std::size_t rank, int n) const {
    for (std::size_t i = 0; i < ops.at(rank).size(); ++i) {
      if (op_if<Kind>(ops[rank][i].body) != nullptr && n-- == 0) {
        return i;
      }
    }
    throw InternalError("no such op");
  }
  [[nodiscard]] std::size_t index(std::size_t rank, OpKind kind, int n) const {
    for (std::size_t i = 0; i < ops.at(rank).size(); ++i) {
      if (kind_of(ops[rank][i].body) == kind && n-- == 0) {
        return i;
      }
    }
    throw InternalError("no such op");
  }
  template <class Kind>
  Kind& op(std::size_t rank, int n) {
    return *op_if<Kind>(ops.at(rank)[index<Kind>(rank, n)].body);
  }
  Collective& collective(std::size_t rank, OpKind kind, int n) {
    return *op_if<Collective>(ops.at(rank)[index(rank, kind, n)].body);
  }
  void erase(std::size_t rank, std::size_t i) {
    ops.at(rank).erase(ops.at(rank).begin() + static_cast<std::ptrdiff_t>(i));
  }
  void insert(std::size_t rank, std::size_t i, const Op& op) {
    ops.at(rank).insert(ops.at(rank).begin() + static_cast<std::ptrdiff_t>(i), op);
  }
  [[nodiscard]] BufferId buffer(std::size_t rank, std::string_view name) const {
    for (std::size_t i = 0; i < buffers.at(rank).size(); ++i) {
      if (buffers[rank][i].name == name) {
        return BufferId(i);
      }
    }
    throw InternalError("no such buffer");
  }
};

/// Ring Attention forward: at step i rank r meets block r - i, which then moves on to rank r+1.
HandWritten ring_forward(int ranks, Layout layout, Mask mask);
/// Its backward: d_k and d_v travel with their block and reach home after `ranks` hops.
HandWritten ring_backward(int ranks, Layout layout, Mask mask);
/// StarTrail forward, P = 8, C = 2 (4 teams of 2, S = 2), full mask; arXiv:2407.00611v2, Algorithms
/// 1-3 and Figure 5. Without its initial exchange: the sketch that starts from the team's own keys.
HandWritten startrail_forward(bool initial_exchange);
/// DeepSpeed-Ulysses forward on 2 ranks, causal: heads 0:2 on rank 0, 2:2 on rank 1.
HandWritten ulysses_forward();

/// Checks that a schedule is proven, or refused with a counter-example that contains `words`.
void expect_proven(const HandWritten& schedule);
void expect_refused(const HandWritten& schedule, std::initializer_list<std::string> words);

inline constexpr Mask full{.kind = MaskKind::full};
inline constexpr Mask causal{.kind = MaskKind::causal};

}  // namespace spp::test
