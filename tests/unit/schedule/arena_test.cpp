#include "schedule/arena.hpp"

#include "schedule/builder.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/schedule/ring_of_two.hpp"

#include <random>

using namespace spp;

namespace {

constexpr StreamId kernels{0};

/// Scratch buffers of whole tokens: one token is 256 bytes (1 head of 64 dimensions, fp32).
struct Bench {
  Problem problem{.seq = 1 << 20, .head_dim = 64, .dtype = DType::fp32};
  ProgramBuilder builder{problem, Rank(0)};
  int names = 0;

  BufferId scratch(std::int64_t tokens) {
    return builder.scratch(fmt::format("b{}", names++), Tensor::q, tokens, 1);
  }
  void copy(BufferId from, BufferId to) { builder.op(kernels, Copy{.from = from, .to = to}); }
  Arena plan() { return plan_arena(builder.finish()); }
};

std::int64_t tokens(Bytes bytes) { return bytes.value() / 256; }

}  // namespace

TEST_CASE("a chain of copies needs two buffers at once") {
  // a -> b -> c -> d, 10 tokens each: at every op two are alive, d reuses b, c reuses a.
  Bench bench;
  const BufferId a = bench.scratch(10);
  const BufferId b = bench.scratch(10);
  const BufferId c = bench.scratch(10);
  const BufferId d = bench.scratch(10);
  bench.copy(a, b);
  bench.copy(b, c);
  bench.copy(c, d);
  const Arena arena = bench.plan();
  CHECK(tokens(arena.scratch_peak) == 20);
  CHECK(tokens(arena.size) == 20);
  CHECK(arena.offsets[a.index()] == arena.offsets[c.index()]);
  CHECK(arena.offsets[b.index()] == arena.offsets[d.index()]);
}

TEST_CASE("a buffer that is written while another is still read has bytes of its own") {
  Bench bench;
  const BufferId a = bench.scratch(1);
  const BufferId b = bench.scratch(1);
  bench.copy(a, b);
  const Arena arena = bench.plan();
  CHECK(arena.offsets[a.index()] != arena.offsets[b.index()]);
}

TEST_CASE("the largest buffer is placed first, small ones fill what is free") {
  // a(2) -> b(8), b -> c(4), b -> d(4): b at 0, c and d behind it; a, gone by then, where c is.
  Bench bench;
  const BufferId a = bench.scratch(2);
  const BufferId b = bench.scratch(8);
  const BufferId c = bench.scratch(4);
  const BufferId d = bench.scratch(4);
  bench.copy(a, b);
  bench.copy(b, c);
  bench.copy(b, d);
  bench.copy(c, d);
  const Arena arena = bench.plan();
  CHECK(tokens(arena.offsets[b.index()]) == 0);
  CHECK(tokens(arena.offsets[c.index()]) == 8);
  CHECK(tokens(arena.offsets[d.index()]) == 12);
  CHECK(tokens(arena.offsets[a.index()]) == 8);
  CHECK(tokens(arena.size) == 16);
}

TEST_CASE("buffers of streams that overlap share no bytes until something orders them") {
  // kernels: a -> b. messages: c -> d, which no op of kernels waits for. kernels: b -> e may run
  // while c -> d does, so e takes the place of a, but not that of c. After f has read d, g may.
  Bench bench;
  constexpr StreamId messages{1};
  const BufferId a = bench.scratch(4);
  const BufferId b = bench.scratch(4);
  const BufferId c = bench.scratch(8);
  const BufferId d = bench.scratch(1);
  const BufferId e = bench.scratch(4);
  const BufferId f = bench.scratch(1);
  const BufferId g = bench.scratch(8);
  bench.copy(a, b);
  bench.builder.op(messages, Copy{.from = c, .to = d});
  bench.copy(b, e);
  bench.copy(d, f);
  bench.copy(f, g);
  const Arena arena = bench.plan();
  CHECK(tokens(arena.offsets[c.index()]) == 0);
  CHECK(arena.offsets[e.index()] == arena.offsets[a.index()]);
  CHECK(tokens(arena.offsets[e.index()]) >= 8);
  CHECK(arena.offsets[g.index()] == arena.offsets[c.index()]);
}

TEST_CASE("a buffer that was only read on another stream is free when its reader has ended") {
  // messages reads a for b; kernels writes b, so it waits for that; only then may c take a's place.
  Bench bench;
  constexpr StreamId messages{1};
  const BufferId a = bench.scratch(8);
  const BufferId b = bench.scratch(1);
  const BufferId early = bench.scratch(8);
  const BufferId late = bench.scratch(8);
  const BufferId other = bench.scratch(1);
  bench.copy(other, a);
  bench.builder.op(messages, Copy{.from = a, .to = b});
  bench.copy(other, early);
  bench.copy(early, b);
  bench.copy(b, late);
  const Arena arena = bench.plan();
  CHECK(arena.offsets[early.index()] != arena.offsets[a.index()]);
  CHECK(arena.offsets[late.index()] == arena.offsets[a.index()]);
}

TEST_CASE("inputs and outputs are the caller's: alive throughout, outside the arena") {
  const Schedule s = test::ring_of_two();
  const Arena arena = plan_arena(s.program(Rank(0)));
  // q 8*4*8*2 B = 512, k and v 256 each; out 512, lse 8*4*4 = 128; scratch k1, v1, part, part_lse.
  CHECK(arena.inputs == Bytes(1024));
  CHECK(arena.outputs == Bytes(640));
  CHECK(arena.scratch_peak == Bytes(256 + 256 + 512 + 128));
  CHECK(arena.peak_live == Bytes(1024 + 640 + 1152));
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(arena.offsets[i] == Arena::outside);
  }
}

TEST_CASE("scratch that nobody touches takes no room") {
  Bench bench;
  const BufferId a = bench.scratch(1);
  const BufferId b = bench.scratch(1);
  const BufferId unused = bench.scratch(100);
  bench.copy(a, b);
  const Arena arena = bench.plan();
  CHECK(arena.offsets[unused.index()] == Arena::outside);
  CHECK(tokens(arena.size) == 2);
}

TEST_CASE("offsets are multiples of 256 bytes whatever the sizes are") {
  Bench bench;
  std::vector<BufferId> small;
  for (int i = 0; i < 4; ++i) {
    small.push_back(bench.builder.scratch(fmt::format("s{}", i), Tensor::lse, i + 1, 1));
  }
  bench.copy(small[0], small[1]);
  bench.copy(small[2], small[3]);
  bench.copy(small[0], small[3]);
  const Arena arena = bench.plan();
  for (const BufferId id : small) {
    CHECK(arena.offsets[id.index()].value() % 256 == 0);
  }
}

TEST_CASE("a long loop is walked, not stored") {
  Bench bench;
  const BufferId a = bench.scratch(1);
  const BufferId b = bench.scratch(1);
  bench.builder.loop(1'000'000, [=](std::int64_t i, OpList& ops) {
    ops.push_back({kernels, Copy{.from = i % 2 == 0 ? a : b, .to = i % 2 == 0 ? b : a}});
  });
  CHECK(tokens(bench.plan().size) == 2);
}

TEST_CASE("in random programs, buffers alive together never share a byte") {
  std::mt19937 random(11);
  const auto below = [&](int n) { return std::uniform_int_distribution(0, n - 1)(random); };
  for (int round = 0; round < 200; ++round) {
    Bench bench;
    constexpr std::size_t count = 12;
    std::array<std::int64_t, count> size{};
    std::array<int, count> first{};
    std::array<int, count> last{};
    first.fill(-1);
    for (std::int64_t& s : size) {
      s = below(9) + 1;
      bench.scratch(s);
    }
    for (int op = 0; op < 20; ++op) {  // neighbours, so that lifetimes are short
      const int from = std::clamp(op / 2 + below(3) - 1, 0, 11);
      const int to = std::clamp(op / 2 + below(3), 0, 11);
      bench.copy(BufferId(from), BufferId(to));
      for (const auto i : {static_cast<std::size_t>(from), static_cast<std::size_t>(to)}) {
        first[i] = first[i] < 0 ? op : first[i];
        last[i] = op;
      }
    }
    const Arena arena = bench.plan();
    std::int64_t peak = 0;
    for (int op = 0; op < 20; ++op) {
      std::int64_t alive = 0;
      for (std::size_t i = 0; i < count; ++i) {
        alive += first[i] >= 0 && first[i] <= op && op <= last[i] ? size[i] : 0;
      }
      peak = std::max(peak, alive);
    }
    REQUIRE(tokens(arena.scratch_peak) == peak);
    REQUIRE(arena.size >= arena.scratch_peak);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < count; ++j) {
        if (i == j || first[i] < 0 || first[j] < 0) {
          continue;
        }
        const std::int64_t a = tokens(arena.offsets[i]);
        const std::int64_t b = tokens(arena.offsets[j]);
        const bool shared = a < b + size[j] && b < a + size[i];
        const bool together = first[i] <= last[j] && first[j] <= last[i];
        REQUIRE_FALSE((shared && together));
      }
    }
  }
}

TEST_CASE("over several streams bytes are shared only where one buffer's end is known") {
  std::mt19937 random(12);
  const auto below = [&](int n) { return std::uniform_int_distribution(0, n - 1)(random); };
  constexpr int count = 40;
  constexpr int ops = 100;
  for (int round = 0; round < 100; ++round) {
    Bench bench;
    std::vector<std::int64_t> size;
    for (int i = 0; i < count; ++i) {
      size.push_back(below(9) + 1);
      bench.scratch(size.back());
    }
    struct Done {
      int stream, from, to;
    };
    std::vector<Done> program;
    std::vector<std::vector<char>> after;  // [op][other]: which have ended when it begins
    for (int op = 0; op < ops; ++op) {
      const int around = op * count / ops;
      program.push_back({.stream = below(3),
                         .from = std::clamp(around + below(5) - 2, 0, count - 1),
                         .to = std::clamp(around + below(5) - 2, 0, count - 1)});
      const Done& now = program.back();
      bench.builder.op(StreamId(now.stream),
                       Copy{.from = BufferId(now.from), .to = BufferId(now.to)});
      std::vector<char>& known = after.emplace_back(ops);
      for (int before = 0; before < op; ++before) {
        const Done& then = program[static_cast<std::size_t>(before)];
        if (then.stream == now.stream || then.to == now.from || then.to == now.to ||
            then.from == now.to) {
          known[static_cast<std::size_t>(before)] = 1;
          for (int earlier = 0; earlier < before; ++earlier) {
            const auto e = static_cast<std::size_t>(earlier);
            known[e] |= after[static_cast<std::size_t>(before)][e];
          }
        }
      }
    }
    std::vector<std::vector<std::size_t>> touching(count);
    for (std::size_t op = 0; op < program.size(); ++op) {
      touching[static_cast<std::size_t>(program[op].from)].push_back(op);
      touching[static_cast<std::size_t>(program[op].to)].push_back(op);
    }
    const auto ends_before = [&](const auto& first, const auto& second) {
      return std::ranges::all_of(first,
                                 [&](std::size_t op) { return after[second.front()][op] != 0; });
    };
    const Arena arena = bench.plan();
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (touching[i].empty() || touching[j].empty()) {
          continue;
        }
        const std::int64_t a = tokens(arena.offsets[i]);
        const std::int64_t b = tokens(arena.offsets[j]);
        const bool shared = a < b + size[j] && b < a + size[i];
        REQUIRE((!shared || ends_before(touching[i], touching[j]) ||
                 ends_before(touching[j], touching[i])));
      }
    }
  }
}

TEST_CASE("ranks whose buffers live alike are planned once, and the fullest one tells") {
  Schedule s = test::ring_of_two();
  const auto programs = s.program;
  const Bytes alike = plan_arena(programs(Rank(0))).total();
  int told = 0;
  CHECK(most_memory(s, [&](double, double of) {
          ++told;
          CHECK(of == 2);
          return true;
        }) == alike);
  CHECK(told == 2);
  s.program = [programs](Rank rank) {
    Program program = programs(rank);
    program.buffers[5].batch = rank == Rank(1) ? 1000 : 1;  // scratch
    return program;
  };
  CHECK(most_memory(s) == plan_arena(s.program(Rank(1))).total());
  CHECK(most_memory(s) > alike);
}
