#include "schedule/balanced.hpp"

#include "base/error.hpp"

#include <algorithm>
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

/// What stays together if it can, and its pairs.
struct Share {
  TokenSet tokens;
  std::int64_t pairs = 0;
};

/// A document's tokens in as many zigzag parts.
std::vector<TokenSet> zigzag_parts(const Interval& document, std::int64_t parts) {
  const auto piece = [&](std::int64_t i) {
    const auto border = [&](std::int64_t j) {
      return document.begin + j * document.count() / (2 * parts);
    };
    return TokenRange{.begin = border(i), .count = border(i + 1) - border(i)};
  };
  std::vector<TokenSet> result;
  for (std::int64_t i = 0; i < parts; ++i) {
    result.emplace_back(piece(i), piece(2 * parts - 1 - i));
  }
  return result;
}

/// Documents whole, or in as many parts as have room on a rank, and no more than its share of all
/// pairs.
std::vector<Share> shares_of(const Problem& problem, int ranks) {
  const std::int64_t room = problem.seq / ranks;
  const TokenRange all{.begin = 0, .count = problem.seq};
  const double pairs_of_rank = static_cast<double>(allowed_pairs(all, all, problem.mask)) / ranks;
  std::vector<Share> shares;
  const auto add = [&](const Interval& document) {
    const TokenSet tokens({.begin = document.begin, .count = document.count()});
    const std::int64_t pairs = allowed_pairs(tokens, tokens, problem.mask);
    const double parts =
        std::max(std::ceil(static_cast<double>(pairs) / pairs_of_rank),
                 std::ceil(static_cast<double>(document.count()) / static_cast<double>(room)));
    if (parts <= 1) {
      shares.push_back({.tokens = tokens, .pairs = pairs});
      return;
    }
    const auto most = static_cast<double>(ranks);  // but for rounding
    for (TokenSet& part : zigzag_parts(document, std::llround(std::min(parts, most)))) {
      const std::int64_t own = allowed_pairs(part, tokens, problem.mask);
      shares.push_back({.tokens = std::move(part), .pairs = own});
    }
  };
  std::int64_t begin = 0;
  const auto add_until = [&](std::int64_t end) {
    if (end > begin) {
      add({.begin = begin, .end = end});
      begin = end;
    }
  };
  for (const std::int64_t end : problem.mask.document_ends) {
    add_until(std::min(end, problem.seq));
  }
  add_until(problem.seq);
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
    for (const TokenRange& range : share.tokens.ranges()) {
      holder.ranges.push_back(range);
    }
    holder.room -= share.tokens.count();
    with_room.erase(to);
    if (holder.room > 0) {
      with_room.emplace(load + share.pairs, rank);
    }
  };
  for (Share& share : shares) {
    const auto has_room = [&](const auto& rank) {
      return held[rank.second].room >= share.tokens.count();
    };
    auto to = std::ranges::find_if(with_room, has_room);
    while (to == with_room.end()) {  // nobody has: as much as most room takes, so few pieces
      const auto most = std::ranges::max_element(
          with_room, {}, [&](const auto& rank) { return held[rank.second].room; });
      const std::int64_t room = held[most->second].room;
      const std::int64_t left = share.tokens.count() - room;
      const auto pairs = static_cast<std::int64_t>(  // about
          static_cast<double>(share.pairs) * static_cast<double>(room) /
          static_cast<double>(share.tokens.count()));
      give({.tokens = share.tokens.slice(0, room), .pairs = pairs}, most);
      share = {.tokens = share.tokens.slice(room, left), .pairs = share.pairs - pairs};
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

std::vector<TokenSet> dealt_by_work(const Problem& problem, Layout layout, int ranks) {
  return layout == Layout::balanced ? balanced_chunks(problem, ranks)
                                    : whole_documents(problem, ranks);
}

std::vector<TokenSet> chunks_of(const Problem& problem, Layout layout, int chunks) {
  if (by_work(layout)) {
    return dealt_by_work(problem, layout, chunks);
  }
  std::vector<TokenSet> result;
  for (int i = 0; i < chunks; ++i) {
    result.push_back(chunk_tokens(problem.seq, layout, i, chunks));
  }
  return result;
}

}  // namespace spp
