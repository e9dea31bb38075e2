#include "schedule/arena.hpp"

#include "base/error.hpp"
#include "base/hash.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

namespace spp {
namespace {

/// By stream: position of the last op that is known to have ended; 0: none. Positions count from 1.
class Clock {
 public:
  [[nodiscard]] std::int64_t at(std::size_t stream) const {
    return stream < last_.size() ? last_[stream] : 0;
  }
  void set(std::size_t stream, std::int64_t position) {
    last_.resize(std::max(last_.size(), stream + 1));
    last_[stream] = position;
  }
  void merge(const Clock& other) {
    last_.resize(std::max(last_.size(), other.last_.size()));
    for (std::size_t s = 0; s < other.last_.size(); ++s) {
      last_[s] = std::max(last_[s], other.last_[s]);
    }
  }
  /// Knows no more than `other` does.
  void keep_common(const Clock& other) {
    last_.resize(std::min(last_.size(), other.last_.size()));
    for (std::size_t s = 0; s < last_.size(); ++s) {
      last_[s] = std::min(last_[s], other.last_[s]);
    }
  }
  void add_to(Hash& hash) const {
    hash.add(std::uint64_t{last_.size()});
    for (const std::int64_t position : last_) {
      hash.add(static_cast<std::uint64_t>(position));
    }
  }
  /// All that `other` knows, this one knows.
  [[nodiscard]] bool covers(const Clock& other) const {
    for (std::size_t s = 0; s < other.last_.size(); ++s) {
      if (at(s) < other.last_[s]) {
        return false;
      }
    }
    return true;
  }

 private:
  std::vector<std::int64_t> last_;
};

/// From the first to the last op that touches a buffer, in program order and in time.
struct Lifetime {
  std::int64_t first = 0;  // positions; 0: no op touches it
  std::int64_t last = 0;
  Clock before;   // what has ended when the first op begins
  Clock touched;  // what has ended when all ops on it have
  [[nodiscard]] bool empty() const { return first == 0; }
  [[nodiscard]] bool ends_before(const Lifetime& other) const {
    return last < other.first && other.before.covers(touched);
  }
  /// Grows to what ends before others only if `other` does, too, and begins behind them likewise.
  void enclose(const Lifetime& other) {
    if (empty()) {
      *this = other;
      return;
    }
    first = std::min(first, other.first);
    last = std::max(last, other.last);
    before.keep_common(other.before);
    touched.merge(other.touched);
  }
};

/// Follows the order of streams, and of what ops read and write.
std::vector<Lifetime> lifetimes_of(const Program& program) {
  std::vector<Lifetime> lifetimes(program.buffers.size());
  std::vector<Clock> written(program.buffers.size());  // when the last writer has ended
  std::vector<Clock> streams;
  ProgramCursor cursor(program);
  while (const Op* op = cursor.next()) {
    const Access access = access_of(op->body);
    const std::size_t stream = op->stream.index();
    streams.resize(std::max(streams.size(), stream + 1));
    Clock& clock = streams[stream];
    for (const auto ids : {access.reads(), access.writes()}) {
      for (const BufferId id : ids) {
        ensure(id.valid() && id.index() < lifetimes.size(),
               "an op names a buffer that its rank lacks");
      }
    }
    for (const BufferId id : access.reads()) {
      clock.merge(written[id.index()]);
    }
    for (const BufferId id : access.writes()) {
      clock.merge(lifetimes[id.index()].touched);
    }
    const Clock before = clock;
    clock.set(stream, cursor.position());
    for (const auto ids : {access.reads(), access.writes()}) {
      for (const BufferId id : ids) {
        Lifetime& lifetime = lifetimes[id.index()];
        if (lifetime.empty()) {
          lifetime.first = cursor.position();
          lifetime.before = before;
        }
        lifetime.last = cursor.position();
        lifetime.touched.merge(clock);
      }
    }
    for (const BufferId id : access.writes()) {
      written[id.index()] = clock;
    }
  }
  return lifetimes;
}

/// Most bytes alive at one position: a sweep over births and deaths.
Bytes peak_of(std::span<const BufferId> scratch, std::span<const Lifetime> lifetimes,
              std::span<const Bytes> sizes) {
  std::map<std::int64_t, Bytes> change;
  for (const BufferId id : scratch) {
    change[lifetimes[id.index()].first] += sizes[id.index()];
    change[lifetimes[id.index()].last + 1] -= sizes[id.index()];
  }
  Bytes alive{};
  Bytes peak{};
  for (const auto& [position, delta] : change) {
    alive += delta;
    peak = std::max(peak, alive);
  }
  return peak;
}

/// Buffers that have their bytes, in a tree by when they begin: each node encloses the lifetimes
/// below it, so that whole branches are passed over that end before another buffer, or begin behind
/// it.
class PlacedBuffers {
 public:
  PlacedBuffers(std::vector<BufferId> buffers, std::span<const Lifetime> lifetimes)
      : buffers_(std::move(buffers)),
        lifetimes_(lifetimes),
        leaves_(std::bit_ceil(buffers_.size())),
        place_(lifetimes.size()),
        nodes_(2 * leaves_) {
    std::ranges::sort(buffers_, {}, [&](BufferId id) { return lifetimes[id.index()].first; });
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      place_[buffers_[i].index()] = i;
    }
  }

  void add(BufferId id) {
    for (std::size_t node = leaves_ + place_[id.index()]; node > 0; node /= 2) {
      nodes_[node].enclose(lifetimes_[id.index()]);
    }
  }
  /// Calls f(id) of each that may share no bytes with one that lives so.
  template <class F>
  void for_each_beside(const Lifetime& lifetime, F f) const {
    look(1, lifetime, f);
  }

 private:
  template <class F>
  void look(std::size_t node, const Lifetime& lifetime, F& f) const {
    const Lifetime& all = nodes_[node];
    if (all.empty() || all.ends_before(lifetime) || lifetime.ends_before(all)) {
      return;
    }
    if (node >= leaves_) {
      f(buffers_[node - leaves_]);
      return;
    }
    look(2 * node, lifetime, f);
    look(2 * node + 1, lifetime, f);
  }

  std::vector<BufferId> buffers_;  // by their first op
  std::span<const Lifetime> lifetimes_;
  std::size_t leaves_;
  std::vector<std::size_t> place_;  // by BufferId: its leaf
  std::vector<Lifetime> nodes_;     // 1: the root; 2n, 2n + 1: below n
};

/// Lowest offset at which `size` bytes fit between `taken` ranges (begin, end), sorted by begin.
Bytes first_fit(Bytes size, std::span<const std::pair<Bytes, Bytes>> taken) {
  Bytes offset{};
  for (const auto& [begin, end] : taken) {
    if (offset + size <= begin) {
      break;
    }
    offset = std::max(offset, arena_aligned(end));
  }
  return offset;
}

/// Tells programs apart whose buffers lie or live in different ways.
std::uint64_t key_of(const Program& program, std::span<const Lifetime> lifetimes) {
  Hash hash;
  const auto add = [&](std::int64_t number) { hash.add(static_cast<std::uint64_t>(number)); };
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    add(static_cast<std::int64_t>(program.buffers[i].role));
    add(bytes_of(program.buffers[i]).value());
    add(lifetimes[i].first);
    add(lifetimes[i].last);
    lifetimes[i].before.add_to(hash);
    lifetimes[i].touched.add_to(hash);
  }
  return hash.value();
}

}  // namespace

namespace {

Arena arena_of(const Program& program, std::span<const Lifetime> lifetimes) {
  Arena arena;
  arena.offsets.assign(program.buffers.size(), Arena::outside);

  std::vector<Bytes> sizes;
  std::vector<BufferId> scratch;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    sizes.push_back(bytes_of(buffer));
    switch (buffer.role) {
      case BufferRole::input:
      case BufferRole::state:
        arena.inputs += sizes[i];
        break;
      case BufferRole::output:
        arena.outputs += sizes[i];
        break;
      case BufferRole::scratch:
        if (!lifetimes[i].empty()) {
          scratch.emplace_back(i);
        }
        break;
    }
  }
  arena.scratch_peak = peak_of(scratch, lifetimes, sizes);
  arena.peak_live = arena.inputs + arena.outputs + arena.scratch_peak;

  std::ranges::stable_sort(scratch, std::ranges::greater(),
                           [&](BufferId id) { return sizes[id.index()]; });
  PlacedBuffers placed(scratch, lifetimes);
  std::vector<std::pair<Bytes, Bytes>> taken;
  for (const BufferId id : scratch) {
    taken.clear();
    placed.for_each_beside(lifetimes[id.index()], [&](BufferId other) {
      const Bytes offset = arena.offsets[other.index()];
      taken.emplace_back(offset, offset + sizes[other.index()]);
    });
    std::ranges::sort(taken);
    const Bytes offset = first_fit(sizes[id.index()], taken);
    arena.offsets[id.index()] = offset;
    arena.size = std::max(arena.size, offset + sizes[id.index()]);
    placed.add(id);
  }
  return arena;
}

}  // namespace

Arena plan_arena(const Program& program) { return arena_of(program, lifetimes_of(program)); }

Bytes most_memory(const Schedule& schedule, const Watch& watch) {
  Bytes most{};
  std::set<std::uint64_t> known;
  const int ranks = schedule.mesh.size();
  for (int r = 0; r < ranks; ++r) {
    if (watch) {
      watch(r, ranks);
    }
    const Program program = schedule.program(Rank(r));
    const std::vector<Lifetime> lifetimes = lifetimes_of(program);
    if (known.insert(key_of(program, lifetimes)).second) {
      most = std::max(most, arena_of(program, lifetimes).total());
    }
  }
  return most;
}

}  // namespace spp
