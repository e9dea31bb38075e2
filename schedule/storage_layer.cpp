// The rows of kernels that compute what a graph defines.
#include "schedule/storage_rank.hpp"

#include <algorithm>

namespace spp {
namespace {

/// Heads or parts of `width` elements that consecutive columns are.
HeadRange heads_of_columns(std::int64_t begin, std::int64_t count, std::int64_t width) {
  return {.begin = static_cast<int>(begin / width),
          .end = static_cast<int>((begin + count) / width)};
}

}  // namespace

void RankStore::apply(const Gemm& op, StoredOp& stored) {
  if (op.experts > 0) {
    return multiply_experts(op, stored);
  }
  const bool transposed = schedule_->contract.graph.definition(op.definition).transposed;
  const auto columns = [&](BufferId id) { return piece(id).heads.count() * buffer(id).width; };
  const auto tokens_of = [&](BufferId id) { return find(id, op.tokens, piece(id).heads); };
  if (op.kind == GemmKind::weight_gradient) {
    const BufferId by_row = transposed ? op.b : op.a;
    const BufferId by_column = transposed ? op.a : op.b;
    const HeadRange in = piece(by_row).heads;
    const TokenSet rows({.begin = in.begin * buffer(by_row).width, .count = columns(by_row)});
    stored.rows = {tokens_of(op.a), tokens_of(op.b),
                   target(op.c, rows, piece(by_column).heads, op.initial)};
    for (const BufferId bias : op.bias) {
      const std::int64_t columns_of_part = buffer(op.b).width;
      const TokenSet own(
          {.begin = piece(op.b).heads.begin * columns_of_part, .count = columns(op.b)});
      stored.rows.push_back(write(bias, TokenList(own), {0, 1}));
    }
    return;
  }
  const StoredPiece weight = piece(op.b);
  const TokenRange rows = weight.tokens.ranges().front();
  expect(weight.tokens.ranges().size() == 1, "rows of a parameter do not lie together");
  const bool forward = (op.kind == GemmKind::forward) != transposed;  // a row is added up
  expect(columns(op.a) == (forward ? rows.count : columns(op.b)),
         "an operand's row is not what the parameter takes");
  const HeadRange heads =
      forward ? weight.heads : heads_of_columns(rows.begin, rows.count, buffer(op.c).width);
  stored.rows = {tokens_of(op.a), all_rows(op.b), target(op.c, op.tokens, heads, op.initial)};
  for (const BufferId bias : op.bias) {
    stored.rows.push_back(all_rows(bias));
  }
}

void RankStore::apply(const RowKernel& op, StoredOp& stored) {
  const Definition& d = schedule_->contract.graph.definition(op.definition);
  if (d.function == LayerFunction::adam) {
    return update(op, stored);
  }
  if (op.slots) {
    const StoredContent content = contents_[op.reads.ids()[0].index()];
    for (const BufferId id : op.reads) {
      expect(contents_[id.index()] == content, "slots lie in different orders");
      stored.rows.push_back(all_cells(id));
    }
    for (const BufferId id : op.writes) {
      overwrite(id, content);
      stored.rows.push_back(all_cells(id));
    }
    return;
  }
  const auto has_rows = [&](BufferId id) {
    return std::ranges::find(stored.rows, id, &RowSpan::buffer) != stored.rows.end();
  };
  TokenList of_param;  // rows of the parameter that it reads
  for (const BufferId id : op.reads) {
    const bool is_table = is_param(buffer(id).tensor);
    stored.rows.push_back(is_table ? all_rows(id) : find(id, op.tokens, piece(id).heads));
    of_param = is_table ? piece(id).tokens : of_param;
  }
  // Columns of a row, in parts, that what it reads first are.
  const BufferId first = op.reads.ids()[0];
  const int parts = schedule_->contract.graph.value(d.reads.front().label).parts;
  const auto of_row = [&](BufferId id) {
    return is_value(buffer(id).tensor) ? schedule_->contract.graph.value(buffer(id).label).parts
           : is_kv(buffer(id).tensor)  ? schedule_->contract.attention.kv_heads
                                       : schedule_->contract.attention.q_heads;
  };
  const int all = is_value(buffer(first).tensor) ? parts : of_row(first);
  const HeadRange held = piece(first).heads;
  for (const BufferId id : op.writes) {
    if (has_rows(id)) {
      continue;  // adds to what is there
    }
    if (is_param(buffer(id).tensor)) {
      stored.rows.push_back(write(id, of_param, {0, 1}));
      continue;
    }
    const int wanted = of_row(id);
    const HeadRange heads =
        wanted == 1 ? HeadRange{.begin = 0, .end = 1}
                    : HeadRange{.begin = held.begin * wanted / all, .end = held.end * wanted / all};
    stored.rows.push_back(write(id, TokenList(op.tokens), heads));
  }
}

/// Rows of a parameter, all columns that the rank has.
void RankStore::update(const RowKernel& op, StoredOp& stored) {
  const HeadRange columns = piece(op.reads.ids()[0]).heads;
  for (const BufferId id : op.reads) {
    stored.rows.push_back(find(id, op.tokens, columns));
  }
  const BufferId param = op.writes.ids().back();
  stored.rows.push_back(write(param, TokenList(op.tokens), columns));
}

}  // namespace spp
