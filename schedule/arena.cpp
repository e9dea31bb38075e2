#include "schedule/arena.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <map>

namespace spp {
namespace {

/// Positions of the first and last op that touch a buffer; first < 0: none does.
struct Lifetime {
  std::int64_t first = -1;
  std::int64_t last = -1;
  [[nodiscard]] bool empty() const { return first < 0; }
  [[nodiscard]] bool meets(const Lifetime& other) const {
    return first <= other.last && other.first <= last;
  }
};

std::vector<Lifetime> lifetimes_of(const Program& program) {
  std::vector<Lifetime> lifetimes(program.buffers.size());
  ProgramCursor cursor(program);
  while (const Op* op = cursor.next()) {
    const auto touch = [&](BufferId id) {
      ensure(id.valid() && id.index() < lifetimes.size(),
             "an op names a buffer that its rank lacks");
      Lifetime& lifetime = lifetimes[id.index()];
      lifetime.first = lifetime.empty() ? cursor.position() : lifetime.first;
      lifetime.last = cursor.position();
    };
    const Access access = access_of(op->body);
    std::ranges::for_each(access.reads(), touch);
    std::ranges::for_each(access.writes(), touch);
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

Bytes aligned(Bytes size) {
  const std::int64_t unit = arena_alignment.value();
  return Bytes((size.value() + unit - 1) / unit * unit);
}

/// Lowest offset at which `size` bytes fit between `taken` ranges (begin, end), sorted by begin.
Bytes first_fit(Bytes size, std::span<const std::pair<Bytes, Bytes>> taken) {
  Bytes offset{};
  for (const auto& [begin, end] : taken) {
    if (offset + size <= begin) {
      break;
    }
    offset = std::max(offset, aligned(end));
  }
  return offset;
}

}  // namespace

Arena plan_arena(const Program& program, const Problem& problem) {
  const std::vector<Lifetime> lifetimes = lifetimes_of(program);
  Arena arena;
  arena.offsets.assign(program.buffers.size(), Arena::outside);
  arena.predecessors.resize(program.buffers.size());

  std::vector<Bytes> sizes;
  std::vector<BufferId> scratch;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    sizes.push_back(bytes_of(buffer, problem));
    switch (buffer.role) {
      case BufferRole::input:
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
      if (lifetimes[id.index()].meets(lifetimes[other.index()])) {
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

  std::ranges::sort(scratch);
  for (const BufferId later : scratch) {
    const Bytes begin = arena.offsets[later.index()];
    for (const BufferId earlier : scratch) {
      const Bytes other = arena.offsets[earlier.index()];
      const bool before = lifetimes[earlier.index()].last < lifetimes[later.index()].first;
      const bool same_bytes =
          other < begin + sizes[later.index()] && begin < other + sizes[earlier.index()];
      if (before && same_bytes) {
        arena.predecessors[later.index()].push_back(earlier);
      }
    }
  }
  return arena;
}

}  // namespace spp
