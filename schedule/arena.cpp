#include "schedule/arena.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <map>

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

}  // namespace

Arena plan_arena(const Program& program) {
  const std::vector<Lifetime> lifetimes = lifetimes_of(program);
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
  std::vector<BufferId> placed;
  std::vector<std::pair<Bytes, Bytes>> taken;
  for (const BufferId id : scratch) {
    taken.clear();
    for (const BufferId other : placed) {
      const Lifetime& a = lifetimes[id.index()];
      const Lifetime& b = lifetimes[other.index()];
      if (!a.ends_before(b) && !b.ends_before(a)) {
        const Bytes offset = arena.offsets[other.index()];
        taken.emplace_back(offset, offset + sizes[other.index()]);
      }
    }
    std::ranges::sort(taken);
    const Bytes offset = first_fit(sizes[id.index()], taken);
    arena.offsets[id.index()] = offset;
    arena.size = std::max(arena.size, offset + sizes[id.index()]);
    placed.push_back(id);
  }
  return arena;
}

}  // namespace spp
