#include "schedule/balanced.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <queue>
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

std::vector<TokenSet> chunks_of(const Problem& problem, Layout layout, int chunks) {
  if (layout == Layout::balanced) {
    return balanced_chunks(problem, chunks);
  }
  std::vector<TokenSet> result;
  for (int i = 0; i < chunks; ++i) {
    result.push_back(chunk_tokens(problem.seq, layout, i, chunks));
  }
  return result;
}

}  // namespace spp
