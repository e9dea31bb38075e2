#include "schedule/storage_rank.hpp"

#include "schedule/balanced.hpp"

#include <algorithm>
#include <numeric>

namespace spp {
RankStore::RankStore(const Schedule& schedule, Rank rank, std::span<const Buffer> buffers)
    : schedule_(&schedule), rank_(rank), buffers_(buffers), contents_(buffers.size()) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].role != BufferRole::scratch) {
      contents_[i] = {{.tokens = TokenList(buffers_[i].tile), .heads = buffers_[i].head_range}};
    }
  }
}

void RankStore::fail(std::string_view what) const {
  throw Misplaced(fmt::format("the storage of rank {}, {}: {}", rank_.value,
                              op_ == nullptr ? "its inputs" : name_of(op_->body), what));
}

void RankStore::expect(bool ok, std::string_view what) const {
  if (!ok) {
    fail(what);
  }
}

const StoredPiece& RankStore::piece(BufferId id) const {
  const StoredContent& content = contents_[id.index()];
  if (content.size() != 1) {
    fail(fmt::format("'{}' is in {} pieces, not one", buffer(id).name, content.size()));
  }
  return content.front();
}

RowSpan RankStore::all_rows(BufferId id) const {
  return {.buffer = id, .begin = 0, .count = piece(id).tokens.count()};
}

RowSpan RankStore::find(BufferId id, const TokenList& tokens, HeadRange heads) const {
  const StoredPiece& held = piece(id);
  const std::optional<std::int64_t> at = held.tokens.find(tokens);
  if (!at || held.heads != heads) {
    fail(
        fmt::format("tokens {} of heads {}:{} do not lie together in '{}', which holds {} of {}:{}",
                    to_string(tokens), heads.begin, heads.count(), buffer(id).name,
                    to_string(held.tokens), held.heads.begin, held.heads.count()));
  }
  return {.buffer = id, .begin = *at, .count = tokens.count()};
}

RowSpan RankStore::write(BufferId id, const TokenList& tokens, HeadRange heads) {
  StoredContent& content = contents_[id.index()];
  const bool alike = content.size() == 1 && content.front().heads == heads;
  if (alike) {
    StoredPiece& held = content.front();
    if (const auto at = held.tokens.find(tokens)) {
      return {.buffer = id, .begin = *at, .count = tokens.count()};
    }
    const std::int64_t end = held.tokens.count();
    if (end + tokens.count() <= buffer(id).tokens && !held.tokens.meets(tokens)) {
      held.tokens.append(tokens);
      return {.buffer = id, .begin = end, .count = tokens.count()};
    }
  }
  overwrite(id, {{.tokens = tokens, .heads = heads}});
  return {.buffer = id, .begin = 0, .count = tokens.count()};
}

void RankStore::overwrite(BufferId id, StoredContent content) {
  const Buffer& target = buffer(id);
  const std::int64_t needed =
      std::accumulate(content.begin(), content.end(), std::int64_t{0},
                      [&](std::int64_t sum, const StoredPiece& p) { return sum + cells(id, p); });
  if (needed > cells(id, target.tokens, target.heads)) {
    fail(fmt::format("'{}' is too small", target.name));
  }
  if (content.size() == 1 && content.front().heads.count() != target.heads) {
    fail(fmt::format("'{}' has {} heads a row, not the {} that it gets", target.name, target.heads,
                     content.front().heads.count()));
  }
  if (is_result(target.role)) {
    const StoredContent declared{{.tokens = TokenList(target.tile), .heads = target.head_range}};
    if (content != declared) {
      fail(fmt::format("the output '{}' would be in another order than declared: {}", target.name,
                       to_string(content.front().tokens)));
    }
  }
  contents_[id.index()] = std::move(content);
}

StoredContent RankStore::copied(const Copy& op) const {
  const StoredContent& from = contents_[op.from.index()];
  expect(!from.empty(), "copies a buffer that holds nothing");
  const Buffer& target = buffer(op.to);
  if (is_result(target.role)) {
    return {{.tokens = TokenList(target.tile), .heads = target.head_range}};
  }
  switch (op.kind) {
    case CopyKind::cast:
      return from;
    case CopyKind::pack: {
      const HeadSplit& split = schedule_->grain.heads;
      const StoredPiece& whole = piece(op.from);
      const bool kv = target.tensor == Tensor::k || target.tensor == Tensor::v;
      StoredContent parts;
      for (int part = 0; part < split.parts(); ++part) {
        const HeadRange heads = kv ? split.kv(part) : split.q(part);
        if (heads.begin < whole.heads.begin || heads.end > whole.heads.end) {
          continue;  // of another tensor-parallel rank
        }
        if (parts.empty() || parts.back().heads != heads) {  // replicas are read once
          parts.push_back({.tokens = whole.tokens, .heads = heads});
        }
      }
      return parts;
    }
    case CopyKind::unpack:
    case CopyKind::fold: {
      HeadRange all = from.front().heads;
      for (const StoredPiece& part : from) {
        all = {.begin = std::min(all.begin, part.heads.begin),
               .end = std::max(all.end, part.heads.end)};
      }
      return {{.tokens = from.front().tokens, .heads = all}};
    }
    case CopyKind::reorder:
      return {{.tokens = piece(op.from).tokens.sorted(), .heads = piece(op.from).heads}};
    case CopyKind::deal: {
      TokenList chunks;
      const std::int64_t first = piece(op.from).tokens.ranges().front().begin;
      const Problem& problem = schedule_->contract.attention;
      const std::int64_t unit = op.layout == Layout::balanced ? chunks_of_rank : 1;
      expect(problem.seq % (op.chunks * unit) == 0 &&
                 (op.layout != Layout::whole_documents || problem.mask.pieces == 1),
             "the sequence does not divide into such chunks");
      const std::vector<TokenSet> dealt = chunks_of(problem, op.layout, op.chunks);
      for (int i = 0; i < op.chunks; ++i) {
        chunks.append(TokenList(dealt[static_cast<std::size_t>(i)].shifted(first)));
      }
      return {{.tokens = chunks, .heads = piece(op.from).heads}};
    }
    case CopyKind::take:
    case CopyKind::add:
    case CopyKind::dispatch:
    case CopyKind::combine:
      break;  // copy_some(), copy_slots()
  }
  throw InternalError("unknown kind of copy");
}

void RankStore::apply(const Copy& op, StoredOp& stored) {
  if (op.of_some()) {
    copy_some(op, stored);
    return;
  }
  if (op.of_slots()) {
    copy_slots(op, stored);
    return;
  }
  const StoredContent to = copied(op);
  add_moves(contents_[op.from.index()], to, stored);
  overwrite(op.to, to);
}

void RankStore::copy_some(const Copy& op, StoredOp& stored) {
  const StoredPiece source = piece(op.from);
  if (op.kind == CopyKind::take) {
    write(op.to, TokenList(op.tokens), source.heads);
  }
  const StoredPiece& target = piece(op.to);
  expect(source.heads == target.heads, "copies rows to other heads");
  std::int64_t moved = 0;
  for (const TokenRange& wanted : op.tokens.ranges()) {
    std::int64_t from_row = 0;
    for (const TokenRange& a : source.tokens.ranges()) {
      const TokenRange here = common(wanted, a);
      std::int64_t to_row = 0;
      for (const TokenRange& b : target.tokens.ranges()) {
        const TokenRange both = here.count > 0 ? common(here, b) : TokenRange{};
        if (both.count > 0) {
          const int heads = source.heads.count();
          stored.moves.push_back(
              {.from = {.begin = cells(from_row + (both.begin - a.begin) / a.stride, heads),
                        .row_heads = heads,
                        .row_step = both.stride / a.stride},
               .to = {.begin = cells(to_row + (both.begin - b.begin) / b.stride, heads),
                      .row_heads = heads,
                      .row_step = both.stride / b.stride},
               .rows = both.count,
               .heads = heads,
               .add = op.kind == CopyKind::add});
          moved += both.count;
        }
        to_row += b.count;
      }
      from_row += a.count;
    }
  }
  expect(moved == op.tokens.count(), "copies rows that are not there");
}

void RankStore::add_moves(const StoredContent& from, const StoredContent& to,
                          StoredOp& stored) const {
  std::int64_t moved = 0;
  std::int64_t to_begin = 0;
  for (const StoredPiece& target : to) {
    std::int64_t from_begin = 0;
    int covered = target.heads.begin;  // heads before this one have been written by earlier pieces
    for (const StoredPiece& source : from) {
      const HeadRange heads{.begin = std::max(source.heads.begin, target.heads.begin),
                            .end = std::min(source.heads.end, target.heads.end)};
      std::int64_t from_row = 0;
      for (const TokenRange& a : source.tokens.ranges()) {
        std::int64_t to_row = 0;
        for (const TokenRange& b : target.tokens.ranges()) {
          const TokenRange both = heads.count() > 0 ? common(a, b) : TokenRange{};
          if (both.count > 0) {
            const std::int64_t first_from = from_row + (both.begin - a.begin) / a.stride;
            const std::int64_t first_to = to_row + (both.begin - b.begin) / b.stride;
            stored.moves.push_back(
                {.from = {.begin = from_begin + cells(first_from, source.heads.count()) +
                                   heads.begin - source.heads.begin,
                          .row_heads = source.heads.count(),
                          .row_step = both.stride / a.stride},
                 .to = {.begin = to_begin + cells(first_to, target.heads.count()) + heads.begin -
                                 target.heads.begin,
                        .row_heads = target.heads.count(),
                        .row_step = both.stride / b.stride},
                 .rows = both.count,
                 .heads = heads.count(),
                 .add = heads.begin < covered});
            moved += heads.begin < covered ? 0 : cells(both.count, heads.count());
          }
          to_row += b.count;
        }
        from_row += a.count;
      }
      covered = std::max(covered, heads.count() > 0 ? heads.end : covered);
      from_begin += cells(source);
    }
    to_begin += cells(target);
  }
  expect(moved == to_begin, "a copy leaves rows of its target unwritten");
}

void RankStore::receive(BufferId buffer, StoredContent content) {
  overwrite(buffer, std::move(content));
}

void RankStore::apply(const Collective& op, std::span<const Contribution> members,
                      StoredOp& stored) {
  switch (op.kind) {
    case CollectiveKind::all_to_all:
      if (const auto* experts = std::get_if<ExpertDeal>(&op.deal)) {
        return experts->back ? from_experts(op, members, stored) : to_experts(op, members, stored);
      }
      return std::get<HeadDeal>(op.deal).direction == HeadDirection::scatter_heads
                 ? scatter_heads(op, members, stored)
                 : gather_heads(op, members, stored);
    case CollectiveKind::all_gather:
      return gather(op, members, stored);
    case CollectiveKind::reduce_scatter:
      return scatter_sum(op, members, stored);
    case CollectiveKind::all_reduce:
      return sum(op, members, stored);
  }
}

void RankStore::scatter_heads(const Collective& op, std::span<const Contribution> members,
                              StoredOp& stored) {
  const HeadDeal& deal = std::get<HeadDeal>(op.deal);
  const StoredContent& packed = contents_[op.from.index()];
  TokenList tokens;
  for (int i = 0; i < op.group.size; ++i) {
    std::int64_t begin = 0;
    const auto at = std::ranges::find_if(packed, [&](const StoredPiece& p) {
      begin += p.heads == deal.heads(i) ? 0 : cells(p);
      return p.heads == deal.heads(i);
    });
    expect(at != packed.end(), "its source is not packed by the peers' heads");
    stored.sends.push_back({.begin = begin, .count = cells(*at)});
    const TokenList& theirs = members[static_cast<std::size_t>(i)].from.front().tokens;
    expect(theirs.count() == deal.tokens, "a member brings another number of tokens");
    stored.receives.push_back({.begin = cells(tokens.count(), op.to_heads.count()),
                               .count = cells(theirs.count(), op.to_heads.count())});
    tokens.append(theirs);
  }
  expect(tokens == TokenList(op.to_tokens), "the tokens arrive in another order than it says");
  overwrite(op.to, {{.tokens = tokens, .heads = op.to_heads}});
}

void RankStore::gather_heads(const Collective& op, std::span<const Contribution> members,
                             StoredOp& stored) {
  const HeadDeal& deal = std::get<HeadDeal>(op.deal);
  const StoredPiece& mine = piece(op.from);
  StoredContent received;
  std::int64_t begin = 0;
  for (int i = 0; i < op.group.size; ++i) {
    const Contribution& member = members[static_cast<std::size_t>(i)];
    const auto at = mine.tokens.find(member.to_tokens);
    expect(at.has_value(), "a peer's tokens do not lie together");
    stored.sends.push_back({.begin = cells(*at, mine.heads.count()),
                            .count = cells(member.to_tokens.count(), mine.heads.count())});
    received.push_back({.tokens = TokenList(op.to_tokens), .heads = deal.heads(i)});
    stored.receives.push_back({.begin = begin, .count = cells(received.back())});
    begin += cells(received.back());
  }
  overwrite(op.to, std::move(received));
}

void RankStore::gather(const Collective& op, std::span<const Contribution> members,
                       StoredOp& stored) {
  StoredPiece all{.tokens = {}, .heads = op.to_heads};
  for (const Contribution& member : members) {
    expect(member.from.size() == 1 && member.from.front().heads == op.to_heads,
           "a member brings other heads");
    const TokenList& tokens = member.from.front().tokens;
    stored.receives.push_back({.begin = cells(op.from, all),
                               .count = cells(op.from, tokens.count(), op.to_heads.count())});
    all.tokens.append(tokens);
  }
  stored.sends = {{.begin = 0, .count = cells(op.from, piece(op.from))}};
  overwrite(op.to, {all});
}

void RankStore::scatter_sum(const Collective& op, std::span<const Contribution> members,
                            StoredOp& stored) {
  const StoredPiece& mine = piece(op.from);
  for (const Contribution& member : members) {
    expect(member.from == contents_[op.from.index()], "a member sums in another order");
    const auto at = mine.tokens.find(member.to_tokens);
    expect(at.has_value(), "a member's part does not lie together");
    stored.sends.push_back({.begin = cells(op.from, *at, mine.heads.count()),
                            .count = cells(op.from, member.to_tokens.count(), mine.heads.count())});
  }
  const StoredPiece result{.tokens = TokenList(op.to_tokens), .heads = op.to_heads};
  stored.receives = {{.begin = 0, .count = cells(op.from, result)}};
  overwrite(op.to, {result});
}

void RankStore::sum(const Collective& op, std::span<const Contribution> members, StoredOp& stored) {
  for (const Contribution& member : members) {
    expect(member.from == contents_[op.from.index()], "a member sums in another order");
  }
  const std::int64_t part = cells(op.from, piece(op.from)) / op.group.size;
  for (int i = 0; i < op.group.size; ++i) {
    stored.sends.push_back({.begin = i * part, .count = part});
  }
  stored.receives = stored.sends;
  overwrite(op.to, contents_[op.from.index()]);
}

}  // namespace spp
