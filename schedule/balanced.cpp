#include "schedule/balanced.hpp"

#include "base/error.hpp"
#include "base/memo.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <queue>
#include <set>
#include <utility>

namespace spp {

std::vector<TokenSet> balanced_chunks(const Problem& problem, int ranks) {
  const std::int64_t count = chunks_of_rank * ranks;
  ensure(problem.seq % count == 0, "a sequence that does not divide into balanced chunks");
  const std::int64_t size = problem.seq / count;
  const TokenRange all{.begin = 0, .count = problem.seq};

  using Chunk = std::pair<std::int64_t, std::int64_t>;  // pairs, number
  std::vector<Chunk> chunks;
  for (std::int64_t c = 0; c < count; ++c) {
    const TokenRange tokens{.begin = c * size, .count = size};
    chunks.emplace_back(allowed_pairs(tokens, all, problem.mask), c);
  }
  std::ranges::stable_sort(chunks, std::greater(), &Chunk::first);

  using Load = std::pair<std::int64_t, int>;  // pairs, rank: of equal ones the first
  std::priority_queue<Load, std::vector<Load>, std::greater<>> with_room;
  for (int rank = 0; rank < ranks; ++rank) {
    with_room.emplace(0, rank);
  }
  std::vector<std::vector<std::int64_t>> held(static_cast<std::size_t>(ranks));
  for (const auto& [pairs, chunk] : chunks) {
    const auto [load, rank] = with_room.top();
    with_room.pop();
    std::vector<std::int64_t>& own = held[static_cast<std::size_t>(rank)];
    own.push_back(chunk);
    if (std::ssize(own) < chunks_of_rank) {
      with_room.emplace(load + pairs, rank);
    }
  }

  std::vector<TokenSet> result;
  for (std::vector<std::int64_t>& own : held) {
    std::ranges::sort(own);
    TokenSet& tokens = result.emplace_back();
    for (const std::int64_t chunk : own) {
      tokens.append({.begin = chunk * size, .count = size});
    }
  }
  return result;
}

namespace {

/// What stays together if it can: a document, or a part of one in two pieces; and its pairs.
struct Share {
  std::array<TokenRange, 2> pieces;
  std::int64_t pairs = 0;

  [[nodiscard]] std::int64_t count() const { return pieces[0].count + pieces[1].count; }
  /// The first so many tokens, with about their part of the pairs; the others stay.
  Share take(std::int64_t tokens) {
    const double part = static_cast<double>(tokens) / static_cast<double>(count());
    Share taken{.pieces = pieces,
                .pairs = static_cast<std::int64_t>(static_cast<double>(pairs) * part)};
    pairs -= taken.pairs;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::int64_t some = std::min(tokens, pieces[i].count);
      taken.pieces[i].count = some;
      pieces[i].begin += some;
      pieces[i].count -= some;
      tokens -= some;
    }
    return taken;
  }
};

/// Documents whole, or in as many zigzag parts as have room on a rank, and no more than its share
/// of all pairs.
std::vector<Share> shares_of(const Problem& problem, int ranks) {
  const Mask alone{.kind = problem.mask.kind, .window = problem.mask.window};
  std::vector<Share> documents;
  double all_pairs = 0;
  std::int64_t begin = 0;
  const auto add_until = [&](std::int64_t end) {
    if (end > begin) {
      const TokenRange positions{.begin = 0, .count = end - begin};
      documents.push_back({.pieces = {TokenRange{.begin = begin, .count = end - begin}},
                           .pairs = allowed_pairs(positions, positions, alone)});
      all_pairs += static_cast<double>(documents.back().pairs);
      begin = end;
    }
  };
  for (const std::int64_t end : problem.mask.document_ends) {
    add_until(std::min(end, problem.seq));
  }
  add_until(problem.seq);  // behind the last document: one of its own

  const double room = static_cast<double>(problem.seq) / ranks;
  std::vector<Share> shares;
  for (const Share& document : documents) {
    const std::int64_t first = document.pieces[0].begin;
    const std::int64_t count = document.count();
    const double least = std::max(static_cast<double>(document.pairs) * ranks / all_pairs,
                                  static_cast<double>(count) / room);
    constexpr double rounding = 1e-9;
    const auto parts = std::min<std::int64_t>(ranks, std::llround(std::ceil(least - rounding)));
    if (parts <= 1) {
      shares.push_back(document);
      continue;
    }
    const TokenRange keys{.begin = 0, .count = count};
    const auto piece = [&](std::int64_t i) {
      const std::int64_t from = i * count / (2 * parts);
      return TokenRange{.begin = from, .count = (i + 1) * count / (2 * parts) - from};
    };
    for (std::int64_t i = 0; i < parts; ++i) {
      Share share{.pieces = {piece(i), piece(2 * parts - 1 - i)}};
      for (TokenRange& range : share.pieces) {
        share.pairs += allowed_pairs(range, keys, alone);
        range.begin += first;
      }
      if (share.count() > 0) {  // a document may have fewer tokens than pieces
        shares.push_back(share);
      }
    }
  }
  return shares;
}

/// Rising, and those that continue each other joined.
TokenSet in_order(std::vector<TokenRange> ranges) {
  std::ranges::sort(ranges);
  TokenSet tokens;
  for (const TokenRange& range : ranges) {
    tokens.append(range);
  }
  return tokens;
}

}  // namespace

std::vector<TokenSet> whole_documents(const Problem& problem, int ranks) {
  ensure(problem.seq % ranks == 0 && problem.mask.pieces == 1,
         "documents that are not dealt out as they lie");
  std::vector<Share> shares = shares_of(problem, ranks);
  std::ranges::stable_sort(shares, std::greater(), &Share::pairs);

  struct Held {
    std::vector<TokenRange> ranges;
    std::int64_t room = 0;
  };
  std::vector<Held> held(static_cast<std::size_t>(ranks), {.room = problem.seq / ranks});
  std::set<std::pair<std::int64_t, std::size_t>> with_room;  // pairs, rank: of equal ones the first
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    with_room.emplace(0, rank);
  }
  const auto give = [&](const Share& share, decltype(with_room)::iterator to) {
    const auto [load, rank] = *to;
    Held& holder = held[rank];
    holder.ranges.insert(holder.ranges.end(), share.pieces.begin(), share.pieces.end());
    holder.room -= share.count();
    with_room.erase(to);
    if (holder.room > 0) {
      with_room.emplace(load + share.pairs, rank);
    }
  };
  const auto room_of = [&](const auto& rank) { return held[rank.second].room; };
  for (Share& share : shares) {
    const auto has_room = [&](const auto& rank) { return room_of(rank) >= share.count(); };
    auto to = std::ranges::find_if(with_room, has_room);
    while (to == with_room.end()) {  // nobody has: as much as most room takes, so few pieces
      const auto most = std::ranges::max_element(with_room, {}, room_of);
      give(share.take(room_of(*most)), most);
      to = std::ranges::find_if(with_room, has_room);
    }
    give(share, to);
  }

  std::vector<TokenSet> result;
  for (Held& rank : held) {
    result.push_back(in_order(std::move(rank.ranges)));
  }
  return result;
}

std::shared_ptr<const std::vector<TokenSet>> dealt_by_work(const Problem& problem, Layout layout,
                                                           int ranks) {
  constexpr std::size_t most = 32;  // rings of a search, under two layouts
  thread_local Memo<Dealing, std::vector<TokenSet>> dealings(most);
  return dealings.of({.seq = problem.seq, .mask = problem.mask, .layout = layout, .ranks = ranks},
                     [&](const auto&) {
                       return layout == Layout::balanced ? balanced_chunks(problem, ranks)
                                                         : whole_documents(problem, ranks);
                     });
}

std::vector<TokenSet> chunks_of(const Problem& problem, Layout layout, int chunks) {
  if (by_work(layout)) {
    return *dealt_by_work(problem, layout, chunks);
  }
  std::vector<TokenSet> result;
  for (int i = 0; i < chunks; ++i) {
    result.push_back(chunk_tokens(problem.seq, layout, i, chunks));
  }
  return result;
}

}  // namespace spp
