#include "runtime/trial/redistribute.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cstring>

namespace spp::runtime {
namespace {

/// Heads of one token, from a rank's rows to another's.
struct Segment {
  int source = 0;
  std::int64_t source_row = 0, target_row = 0;
  HeadRange heads;
};

/// Where rank `target` gets each of its cells.
std::vector<Segment> segments_of(int target, std::span<const Tile> held, const Tile& wanted) {
  std::vector<int> sources{target};
  for (int r = 0; r < static_cast<int>(held.size()); ++r) {
    if (r != target) {
      sources.push_back(r);
    }
  }
  std::vector<Segment> result;
  std::int64_t target_row = 0;
  for (const TokenRange& range : wanted.tokens.ranges()) {
    for (std::int64_t i = 0; i < range.count; ++i, ++target_row) {
      int head = wanted.heads.begin;
      while (head < wanted.heads.end) {
        const int before = head;
        for (const int source : sources) {
          const Tile& tile = held[static_cast<std::size_t>(source)];
          const std::int64_t row = tile.tokens.position_of(range.at(i));
          if (row >= 0 && tile.heads.begin <= head && head < tile.heads.end) {
            const int end = std::min(tile.heads.end, wanted.heads.end);
            result.push_back({.source = source,
                              .source_row = row,
                              .target_row = target_row,
                              .heads = {.begin = head, .end = end}});
            head = end;
            break;
          }
        }
        ensure(head > before, "nobody holds a token that is to be moved");
      }
    }
  }
  return result;
}

/// The bytes of `heads` of one (row, batch).
std::span<std::byte> cell_bytes(const Rows& rows, const Tile& tile, std::int64_t row,
                                std::int64_t batch, HeadRange heads) {
  const std::int64_t cell = rows.width * size_of(rows.dtype);
  const std::int64_t at = (row * rows.batch + batch) * rows.heads + heads.begin - tile.heads.begin;
  return {rows.data + at * cell, static_cast<std::size_t>(heads.count() * cell)};
}

}  // namespace

void redistribute(Transport& transport, std::span<const Tile> held, std::span<const Tile> wanted,
                  const Rows& from, const Rows& to) {
  const auto self = transport.rank().index();
  const int size = transport.size();
  constexpr int tag = 0;
  std::vector<std::vector<std::byte>> outgoing(static_cast<std::size_t>(size));
  std::vector<std::vector<std::byte>> incoming(static_cast<std::size_t>(size));
  for (int target = 0; target < size; ++target) {
    const auto t = static_cast<std::size_t>(target);
    for (const Segment& s : segments_of(target, held, wanted[t])) {
      if (s.source == static_cast<int>(self)) {
        for (std::int64_t b = 0; b < from.batch; ++b) {
          const auto bytes = cell_bytes(from, held[self], s.source_row, b, s.heads);
          outgoing[t].insert(outgoing[t].end(), bytes.begin(), bytes.end());
        }
      }
    }
  }
  const std::vector<Segment> mine = segments_of(static_cast<int>(self), held, wanted[self]);
  for (const Segment& s : mine) {
    const auto bytes = cell_bytes(to, wanted[self], s.target_row, 0, s.heads).size();
    auto& buffer = incoming[static_cast<std::size_t>(s.source)];
    buffer.resize(buffer.size() + bytes * static_cast<std::size_t>(to.batch));
  }
  struct Open {
    Ticket ticket;
    Rank peer;
  };
  std::vector<Open> open;
  abort_on_throw(transport, [&] {
    for (int peer = 0; peer < size; ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      if (!incoming[p].empty()) {
        open.push_back({transport.receive(Rank(peer), tag, incoming[p]), Rank(peer)});
      }
      if (!outgoing[p].empty()) {
        open.push_back({transport.send(Rank(peer), tag, outgoing[p]), Rank(peer)});
      }
    }
    for (const Open& message : open) {
      wait_until(
          transport, "redistribute", [&] { return transport.done(message.ticket); },
          [&] { return std::vector{message.peer}; });
    }
  });
  std::vector<std::size_t> read(static_cast<std::size_t>(size), 0);
  for (const Segment& s : mine) {
    for (std::int64_t b = 0; b < to.batch; ++b) {
      const auto bytes = cell_bytes(to, wanted[self], s.target_row, b, s.heads);
      const auto source = static_cast<std::size_t>(s.source);
      std::memcpy(bytes.data(), incoming[source].data() + read[source], bytes.size());
      read[source] += bytes.size();
    }
  }
}

}  // namespace spp::runtime
