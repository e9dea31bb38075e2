// The rows of tokens' slots, on their way to experts, there, and back.
#include "schedule/storage_rank.hpp"

#include <algorithm>
#include <span>

namespace spp {
namespace {

/// Tokens' slots in one group of experts.
StoredContent in_group(const Routing& routing, const TokenSet& tokens, int group) {
  StoredContent content;
  const TokenList routed(routing.routed(tokens, group));
  const HeadRange slots = routing.slots_of(group);
  for (int slot = slots.begin; slot < slots.end; ++slot) {
    content.push_back({.tokens = routed, .heads = {.begin = slot, .end = slot + 1}});
  }
  return content;
}

/// A token's slots in the order of their experts: by group, in each by slot.
StoredContent by_expert(const Routing& routing, const TokenSet& tokens) {
  StoredContent content;
  for (int group = 0; group < routing.groups; ++group) {
    const StoredContent slots = in_group(routing, tokens, group);
    content.insert(content.end(), slots.begin(), slots.end());
  }
  return content;
}

/// Tokens of a range that lie at even steps in one range of what is held.
struct HeldRun {
  std::int64_t row = 0;  // of the first
  std::int64_t count = 0;
  std::int64_t row_step = 1;
};

/// The longest such run from a range's i-th token on: what is routed is cut from what is held, in
/// order, but ends of two ranges that are held may continue each other.
HeldRun run_from(std::int64_t i, const TokenRange& range, const TokenList& held) {
  const std::int64_t token = range.at(i);
  std::int64_t row = 0;
  for (const TokenRange& in : held.ranges()) {
    if (in.contains(token)) {
      row += (token - in.begin) / in.stride;
      const std::int64_t further =
          range.stride % in.stride == 0 ? (in.last() - token) / range.stride : 0;
      const std::int64_t count = std::min(range.count - i, further + 1);
      return {.row = row, .count = count, .row_step = count == 1 ? 1 : range.stride / in.stride};
    }
    row += in.count;
  }
  throw InternalError("a slot of a token that is not held");
}

/// Rows that each expert of a group gets of such content.
std::vector<ExpertRun> runs_of(const Routing& routing, const StoredContent& content) {
  std::vector<ExpertRun> runs;
  std::int64_t row = 0;
  for (const StoredPiece& piece : content) {
    for (const TokenRange& range : piece.tokens.ranges()) {
      for (std::int64_t i = 0; i < range.count; ++i, ++row) {
        const int expert = routing.expert_of(range.at(i), piece.heads.begin) % routing.of_group();
        if (!runs.empty() && runs.back().expert == expert) {
          ++runs.back().count;
        } else {
          runs.push_back({.expert = expert, .begin = row, .count = 1});
        }
      }
    }
  }
  return runs;
}

}  // namespace

RowSpan RankStore::all_cells(BufferId id) const {
  RowSpan span{.buffer = id};
  for (const StoredPiece& piece : contents_[id.index()]) {
    expect(piece.heads.count() == 1, "slots do not lie one by one");
    span.count += piece.tokens.count();
  }
  return span;
}

void RankStore::copy_slots(const Copy& op, StoredOp& stored) {
  const Routing& routing = schedule_->contract.graph.routing;
  const StoredContent slots =
      op.of_group ? in_group(routing, op.tokens, op.expert_group) : by_expert(routing, op.tokens);
  const bool spreads = op.kind == CopyKind::dispatch;
  const bool is_same = buffer(op.from).ref() == buffer(op.to).ref();
  const bool adds = op.of_group && !spreads;
  const StoredPiece row{.tokens = TokenList(op.tokens),
                        .heads = {.begin = 0, .end = is_same ? routing.chosen : 1}};
  const StoredContent rows{row};
  expect(contents_[op.from.index()] == (spreads ? rows : slots) &&
             (!adds || contents_[op.to.index()] == rows),
         "slots or tokens lie in another order");
  std::int64_t first = 0;  // cell of a piece
  for (const StoredPiece& piece : slots) {
    const int slot = piece.heads.begin;
    std::int64_t of_piece = 0;
    for (const TokenRange& range : piece.tokens.ranges()) {
      for (std::int64_t i = 0; i < range.count;) {
        const HeldRun run = run_from(i, range, row.tokens);
        const CellBox of_slots{.begin = first + cells(of_piece + i, 1), .row_heads = 1};
        const CellBox of_tokens{.begin = cells(run.row, row.heads.count()) + (is_same ? slot : 0),
                                .row_heads = row.heads.count(),
                                .row_step = run.row_step};
        stored.moves.push_back({.from = spreads ? of_tokens : of_slots,
                                .to = spreads ? of_slots : of_tokens,
                                .rows = run.count,
                                .heads = 1,
                                .add = adds || (!spreads && !is_same && slot > 0)});
        i += run.count;
      }
      of_piece += range.count;
    }
    first += cells(piece);
  }
  overwrite(op.to, spreads ? slots : rows);
}

void RankStore::to_experts(const Collective& op, std::span<const Contribution> members,
                           StoredOp& stored) {
  const Routing& routing = schedule_->contract.graph.routing;
  const std::int64_t part = std::get<ExpertDeal>(op.deal).cells * buffer(op.from).batch;
  const int own = op.group.index_of(rank_);
  StoredContent received;
  for (int i = 0; i < op.group.size; ++i) {
    stored.sends.push_back({.begin = i * part, .count = part});
    stored.receives.push_back({.begin = i * part, .count = part});
    std::size_t at = 0;  // of the member's pieces: those of this rank's group
    for (int group = 0; group < own; ++group) {
      at += static_cast<std::size_t>(routing.slots_of(group).count());
    }
    std::int64_t brought = 0;
    for (int slot = 0; slot < routing.slots_of(own).count(); ++slot, ++at) {
      const StoredContent& from = members[static_cast<std::size_t>(i)].from;
      expect(at < from.size(), "a member's slots do not lie one by one");
      received.push_back(from[at]);
      brought += cells(from[at]);
    }
    expect(brought == part, "a member brings another number of slots");
  }
  overwrite(op.to, std::move(received));
}

void RankStore::from_experts(const Collective& op, std::span<const Contribution> members,
                             StoredOp& stored) {
  const Routing& routing = schedule_->contract.graph.routing;
  const std::int64_t part = std::get<ExpertDeal>(op.deal).cells * buffer(op.from).batch;
  const auto own = static_cast<std::size_t>(op.group.index_of(rank_));
  StoredContent received;
  for (int i = 0; i < op.group.size; ++i) {
    stored.sends.push_back({.begin = i * part, .count = part});
    stored.receives.push_back({.begin = i * part, .count = part});
    const auto slots = static_cast<std::size_t>(routing.slots_of(i).count());
    const StoredContent& from = members[static_cast<std::size_t>(i)].from;
    expect((own + 1) * slots <= from.size(), "a member's slots do not lie one by one");
    for (std::size_t slot = 0; slot < slots; ++slot) {
      received.push_back(from[own * slots + slot]);
    }
  }
  expect(received == by_expert(routing, op.to_tokens), "slots come back in another order");
  overwrite(op.to, std::move(received));
}

/// Weights of the slots that an op multiplies, in their order.
void RankStore::weigh_bias(const Gemm& op, const StoredContent& slots, StoredOp& stored) {
  for (const BufferId id : op.bias_weights) {
    if (op.kind == GemmKind::input_gradient) {
      overwrite(id, slots);
    }
    expect(contents_[id.index()] == slots, "slots lie in different orders");
    stored.rows.push_back(all_cells(id));
  }
}

void RankStore::multiply_experts(const Gemm& op, StoredOp& stored) {
  const Routing& routing = schedule_->contract.graph.routing;
  const StoredContent content = contents_[op.a.index()];
  stored.runs = runs_of(routing, content);
  if (op.kind == GemmKind::weight_gradient) {
    expect(contents_[op.b.index()] == content, "slots lie in different orders");
    const int group = routing.group_of(content.front().tokens.ranges().front().begin,
                                       content.front().heads.begin);
    const auto rows_of_group = [&](std::int64_t of_expert) {
      const std::int64_t rows = of_expert * routing.of_group();
      return TokenSet({.begin = group * rows, .count = rows});
    };
    std::vector<bool> met(static_cast<std::size_t>(routing.of_group()));
    for (const ExpertRun& run : stored.runs) {
      met[static_cast<std::size_t>(run.expert)] = true;
    }
    expect(std::ranges::find(met, false) == met.end(), "an expert gets no tokens");
    stored.rows = {
        all_cells(op.a), all_cells(op.b),
        target(op.c, rows_of_group(buffer(op.a).width), {.begin = 0, .end = 1}, op.initial)};
    for (const BufferId bias : op.bias) {
      stored.rows.push_back(
          write(bias, TokenList(rows_of_group(buffer(op.b).width)), {.begin = 0, .end = 1}));
    }
    return weigh_bias(op, content, stored);
  }
  if (op.initial) {
    overwrite(op.c, content);
  }
  expect(contents_[op.c.index()] == content, "slots lie in different orders");
  stored.rows = {all_cells(op.a), all_rows(op.b), all_cells(op.c)};
  for (const BufferId bias : op.bias) {
    stored.rows.push_back(all_rows(bias));
  }
  weigh_bias(op, content, stored);
}

}  // namespace spp
