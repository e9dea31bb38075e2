// Every check that a transport must pass, for threads and for processes: one list, one file.
#include "tests/support/comm_checks.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>

namespace spp::test {
namespace {

using runtime::Pending;
using runtime::Ticket;
using runtime::Transport;
using Memory = std::vector<std::byte>;

// Around the sizes at which transports cut messages (63 KiB pieces, 256 KiB slices).
constexpr std::size_t sizes[] = {0, 1, 4097, 64511, 64512, 64513, 129024, 262145, 3145733};

std::uint64_t seed_of(std::size_t a, std::size_t b, std::size_t c) {
  return (a * 1009 + b) * 1013 + c;
}

void expect(bool ok, const Transport& transport, const std::string& what) {
  if (!ok) {
    throw std::runtime_error(fmt::format("rank {}: {}", transport.rank().value, what));
  }
}

Rank neighbour(const Transport& t, int distance) {
  return Rank(((t.rank().value + distance) % t.size() + t.size()) % t.size());
}

/// Calls `body` for every way to cut the ranks into groups of equal size and stride.
template <class Body>
void for_all_groups(const Transport& t, Body&& body) {
  for (int stride = 1; stride <= t.size(); ++stride) {
    for (int size = 1; stride * size <= t.size(); ++size) {
      if (t.size() % (stride * size) == 0) {
        body(group_of(t.rank(), stride, size));
      }
    }
  }
}

// ---- point to point

void messages_of_all_sizes(Transport& t) {
  for (const std::size_t size : sizes) {
    const Rank to = neighbour(t, 1);
    const Rank from = neighbour(t, -1);
    const Memory out = pattern(seed_of(t.rank().index(), size, 0), size);
    Memory in(size);
    const Ticket receive = t.receive(from, 3, in);
    const Ticket send = t.send(to, 3, out);
    wait_for(t, receive);
    wait_for(t, send);
    expect_same(fmt::format("message of {} bytes", size), t, in,
                pattern(seed_of(from.index(), size, 0), size));
  }
}

void messages_of_one_tag_keep_their_order(Transport& t) {
  constexpr std::size_t count = 40;
  constexpr std::size_t size = 70'000;  // two pieces
  std::vector<Memory> out;
  std::vector<Memory> in(count, Memory(size));
  std::vector<Ticket> open;
  const Rank from = neighbour(t, -1);
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(pattern(seed_of(t.rank().index(), i, 1), size));
  }
  for (std::size_t i = 0; i < count; ++i) {  // half of them before they are expected
    if (i >= count / 2) {
      open.push_back(t.receive(from, 63, in[i - count / 2]));
    }
    open.push_back(t.send(neighbour(t, 1), 63, out[i]));
    t.progress();
  }
  for (std::size_t i = count / 2; i < count; ++i) {
    open.push_back(t.receive(from, 63, in[i]));
  }
  for (const Ticket ticket : open) {
    wait_for(t, ticket);
  }
  for (std::size_t i = 0; i < count; ++i) {
    expect_same(fmt::format("message {} of one tag", i), t, in[i],
                pattern(seed_of(from.index(), i, 1), size));
  }
}

void random_messages_with_many_tags(Transport& t) {
  struct Drawn {
    int from, to, tag;
    std::size_t size;
  };
  std::mt19937 random(7);  // the same messages on all ranks
  std::vector<Drawn> drawn(600);
  const auto ranks = static_cast<unsigned>(t.size());
  for (Drawn& d : drawn) {
    d = {.from = static_cast<int>(random() % ranks),
         .to = static_cast<int>(random() % ranks),
         .tag = static_cast<int>(random() % 64),
         .size = random() % 8 == 0 ? random() % 400'000 : random() % 2'000};
  }
  const int me = t.rank().value;
  std::vector<Memory> memory(2 * drawn.size());
  std::vector<Ticket> open;
  std::mt19937 pace(static_cast<unsigned>(me));
  const auto drop_done = [&] {
    t.progress();
    std::erase_if(open, [&](Ticket ticket) { return t.done(ticket); });
  };
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const Drawn& d = drawn[i];
    if (d.from == me) {
      memory[2 * i] = pattern(i, d.size);
      open.push_back(t.send(Rank(d.to), d.tag, memory[2 * i]));
    }
    if (d.to == me) {
      memory[2 * i + 1].resize(d.size);
      open.push_back(t.receive(Rank(d.from), d.tag, memory[2 * i + 1]));
    }
    if (pace() % 4 == 0) {
      drop_done();
    }
  }
  while (!open.empty()) {
    drop_done();
    t.idle();
  }
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    if (drawn[i].to == me) {
      expect_same(fmt::format("random message {}", i), t, memory[2 * i + 1],
                  pattern(i, drawn[i].size));
    }
  }
}

void texts_and_barriers(Transport& t) {
  for (int round = 0; round < 20; ++round) {
    t.barrier();
    const auto text_of = [round](int rank) {
      return std::string(static_cast<std::size_t>(rank * 7 % 5 * 100), 'x') +
             fmt::format("{}/{}", rank, round);
    };
    const auto texts = t.all_gather_text(text_of(t.rank().value));
    expect(static_cast<int>(texts.size()) == t.size(), t, "a text from every rank");
    for (int r = 0; r < t.size(); ++r) {
      expect(texts[static_cast<std::size_t>(r)] == text_of(r), t, fmt::format("text of {}", r));
    }
  }
  // More than goes in one call, and some ranks have ended before others.
  const auto long_text = [](int rank) {
    std::string text(static_cast<std::size_t>(rank % 2 == 0 ? 9 << 20 : 3), 'x');
    text.back() = static_cast<char>('a' + rank);
    text[text.size() / 2] = 'y';
    return text;
  };
  const auto texts = t.all_gather_text(long_text(t.rank().value));
  for (int r = 0; r < t.size(); ++r) {
    expect(texts[static_cast<std::size_t>(r)] == long_text(r), t,
           fmt::format("long text of {}", r));
  }
}

// ---- communication ops

void exchange_shifts(Transport& t) {
  const std::size_t bytes[] = {5000, 0, 200'000};
  const Rank to = neighbour(t, 1);
  const Rank from = neighbour(t, -1);
  std::vector<Memory> out;
  std::vector<Memory> in;
  for (std::size_t i = 0; i < 3; ++i) {
    out.push_back(pattern(seed_of(t.rank().index(), i, 2), bytes[i]));
    in.emplace_back(bytes[i]);
  }
  const auto op = runtime::exchange(t, 1,
                                    {.to = to,
                                     .from = from,
                                     .send = {out.begin(), out.end()},
                                     .receive = {in.begin(), in.end()}});
  wait_for(t, *op);
  expect(op->sent() == (t.size() == 1 ? 0 : 205'000), t, fmt::format("sent {}", op->sent()));
  for (std::size_t i = 0; i < 3; ++i) {
    expect_same("exchange", t, in[i], pattern(seed_of(from.index(), i, 2), bytes[i]));
  }
}

void exchange_in_one_direction(Transport& t) {
  const Memory out = pattern(99, 100'000);
  Memory in(out.size());
  const bool first = t.rank().value == 0;
  const bool last = t.rank().value + 1 == t.size();
  runtime::ExchangeParts parts;  // from rank to rank, along the line
  if (!last) {
    parts.to = neighbour(t, 1);
    parts.send = {out};
  }
  if (!first) {
    parts.from = neighbour(t, -1);
    parts.receive = {in};
  }
  const auto op = runtime::exchange(t, 0, parts);
  wait_for(t, *op);
  expect(op->sent() == (last ? 0 : 100'000), t, "sent of an exchange in one direction");
  if (!first) {
    expect_same("exchange in one direction", t, in, out);
  }
}

std::size_t uneven(int from, int to) {
  return static_cast<std::size_t>((from * 5 + to * 3) % 4) * 15'000;
}

void all_to_all_of_uneven_parts(Transport& t) {
  for_all_groups(t, [&](const RankGroup& group) {
    const int me = group.index_of(t.rank());
    std::vector<Memory> out;
    std::vector<Memory> in;
    std::int64_t sent = 0;
    for (int i = 0; i < group.size; ++i) {
      out.push_back(pattern(seed_of(t.rank().index(), group.rank(i).index(), 3), uneven(me, i)));
      in.emplace_back(uneven(i, me));
      sent += i == me ? 0 : static_cast<std::int64_t>(uneven(me, i));
    }
    const auto op = runtime::all_to_all(
        t, 5, group, {.send = {out.begin(), out.end()}, .receive = {in.begin(), in.end()}});
    wait_for(t, *op);
    expect(op->sent() == sent, t, fmt::format("all_to_all sent {}, not {}", op->sent(), sent));
    for (int i = 0; i < group.size; ++i) {
      expect_same("all_to_all", t, in[static_cast<std::size_t>(i)],
                  pattern(seed_of(group.rank(i).index(), t.rank().index(), 3), uneven(i, me)));
    }
  });
}

void all_gather_of_uneven_parts(Transport& t) {
  for_all_groups(t, [&](const RankGroup& group) {
    const auto size_of_part = [](int i) { return static_cast<std::size_t>(i) * 30'000; };
    const int me = group.index_of(t.rank());
    const Memory own = pattern(seed_of(t.rank().index(), 0, 4), size_of_part(me));
    std::vector<Memory> in;
    std::int64_t sent = 0;
    for (int i = 0; i < group.size; ++i) {
      in.emplace_back(size_of_part(i));
      // a ring passes on every part but the one that its next member began with
      sent += i == (me + 1) % group.size ? 0 : static_cast<std::int64_t>(size_of_part(i));
    }
    const auto op = runtime::all_gather(t, 6, group, own, {in.begin(), in.end()});
    wait_for(t, *op);
    expect(op->sent() == sent, t, fmt::format("all_gather sent {}, not {}", op->sent(), sent));
    for (int i = 0; i < group.size; ++i) {
      expect_same("all_gather", t, in[static_cast<std::size_t>(i)],
                  pattern(seed_of(group.rank(i).index(), 0, 4), size_of_part(i)));
    }
  });
}

/// Small whole numbers, which all types hold: an fp32, bf16 (its upper half) or fp16 by its bits.
Memory numbers(DType type, std::size_t count, auto&& value) {
  Memory memory(count * static_cast<std::size_t>(size_of(type)));
  for (std::size_t i = 0; i < count; ++i) {
    const int x = value(i);
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
    // fp16: rebias the exponent from 127 to 15 and keep 10 of 23 fraction bits
    const std::uint32_t half = x == 0 ? 0 : (bits - ((127U - 15U) << 23U)) >> 13U;
    const std::uint32_t stored = type == DType::fp32   ? bits
                                 : type == DType::bf16 ? bits >> 16U
                                                       : half;
    const auto bytes = static_cast<std::size_t>(size_of(type));
    std::memcpy(memory.data() + i * bytes, &stored, bytes);  // little-endian
  }
  return memory;
}

void reduce_scatter_adds(Transport& t, std::size_t count, DType from_type, DType to_type) {
  for_all_groups(t, [&](const RankGroup& group) {
    const auto addend = [](std::size_t rank, int part, std::size_t i) {
      return static_cast<int>((rank * 3 + static_cast<std::size_t>(part) * 5 + i) % 14);
    };  // 9 ranks: sums up to 117 have 7 bits
    std::vector<Memory> parts;
    parts.reserve(static_cast<std::size_t>(group.size));
    for (int part = 0; part < group.size; ++part) {
      parts.push_back(numbers(from_type, count,
                              [&](std::size_t i) { return addend(t.rank().index(), part, i); }));
    }
    Memory result(count * static_cast<std::size_t>(size_of(to_type)));
    const auto op = runtime::reduce_scatter(t, 7, group, {parts.begin(), parts.end()}, from_type,
                                            result, to_type);
    wait_for(t, *op);
    const auto sent = static_cast<std::int64_t>(parts[0].size()) * (group.size - 1);
    expect(op->sent() == sent, t, fmt::format("reduce_scatter sent {}, not {}", op->sent(), sent));
    const Memory sum = numbers(to_type, count, [&](std::size_t i) {
      int all = 0;
      for (int m = 0; m < group.size; ++m) {
        all += addend(group.rank(m).index(), group.index_of(t.rank()), i);
      }
      return all;
    });
    expect_same("reduce_scatter", t, result, sum);
  });
}

void reduce_scatter_of_all_types(Transport& t) {
  const std::pair<DType, DType> types[] = {{DType::fp32, DType::fp32},
                                           {DType::bf16, DType::bf16},
                                           {DType::fp16, DType::fp16},
                                           {DType::fp32, DType::bf16},
                                           {DType::bf16, DType::fp32}};
  for (const auto& [from, to] : types) {
    for (const std::size_t count : {0, 1, 17'000}) {
      reduce_scatter_adds(t, count, from, to);
    }
  }
}

/// Several after each other with one tag: members are in different halves of different ones.
void all_reduce_adds(Transport& t) {
  for (const std::size_t count : {0, 1, 17'000}) {
    for_all_groups(t, [&](const RankGroup& group) {
      for (int round = 0; round < 3; ++round) {
        const auto addend = [&](std::size_t rank, int part, std::size_t i) {
          return static_cast<int>((rank * 3 + static_cast<std::size_t>(part * 5 + round) + i) % 14);
        };
        std::vector<Memory> parts;
        std::vector<Memory> results(static_cast<std::size_t>(group.size),
                                    Memory(count * sizeof(float)));
        for (int part = 0; part < group.size; ++part) {
          parts.push_back(numbers(DType::fp32, count, [&](std::size_t i) {
            return addend(t.rank().index(), part, i);
          }));
        }
        const auto op = runtime::all_reduce(t, 8, group, {parts.begin(), parts.end()},
                                            {results.begin(), results.end()}, DType::fp32);
        wait_for(t, *op);
        const auto sent = static_cast<std::int64_t>(parts[0].size()) * 2 * (group.size - 1);
        expect(op->sent() == sent, t, fmt::format("all_reduce sent {}, not {}", op->sent(), sent));
        for (int part = 0; part < group.size; ++part) {
          expect_same("all_reduce", t, results[static_cast<std::size_t>(part)],
                      numbers(DType::fp32, count, [&](std::size_t i) {
                        int all = 0;
                        for (int m = 0; m < group.size; ++m) {
                          all += addend(group.rank(m).index(), part, i);
                        }
                        return all;
                      }));
        }
      }
    });
  }
}

/// On streams of their own, and two after each other with one tag.
void ops_at_the_same_time(Transport& t) {
  const RankGroup all{.first = 0, .stride = 1, .size = t.size()};
  constexpr std::size_t ops = 6;
  constexpr std::size_t size = 90'000;
  const auto count = static_cast<std::size_t>(t.size());
  std::vector<Memory> own;
  std::vector<std::vector<Memory>> parts(ops, std::vector<Memory>(count, Memory(size)));
  std::vector<std::unique_ptr<Pending>> open;
  own.reserve(ops);
  for (std::size_t i = 0; i < ops; ++i) {
    own.push_back(pattern(seed_of(t.rank().index(), i, 6), size));
  }
  std::vector<std::size_t> started(2, 0);
  std::vector<std::size_t> running(2, ops);  // op of each stream; `ops`: none
  std::vector<std::unique_ptr<Pending>> streams(2);
  for (bool busy = true; busy;) {
    busy = false;
    t.progress();
    for (std::size_t s = 0; s < 2; ++s) {
      if (streams[s] && streams[s]->advance()) {
        streams[s].reset();
      }
      if (!streams[s] && started[s] < ops / 2) {
        const std::size_t i = 2 * started[s]++ + s;
        streams[s] = runtime::all_gather(t, static_cast<int>(s), all, own[i],
                                         {parts[i].begin(), parts[i].end()});
      }
      busy = busy || streams[s];
    }
    t.idle();
  }
  for (std::size_t i = 0; i < ops; ++i) {
    for (std::size_t r = 0; r < count; ++r) {
      expect_same(fmt::format("op {}", i), t, parts[i][r], pattern(seed_of(r, i, 6), size));
    }
  }
}

}  // namespace

const std::vector<CommCheck>& comm_checks() {
  static const std::vector<CommCheck> checks{
      {"messages of all sizes", messages_of_all_sizes},
      {"messages of one tag keep their order", messages_of_one_tag_keep_their_order},
      {"random messages with many tags", random_messages_with_many_tags},
      {"texts and barriers", texts_and_barriers},
      {"exchange shifts", exchange_shifts},
      {"exchange in one direction", exchange_in_one_direction},
      {"all_to_all of uneven parts", all_to_all_of_uneven_parts},
      {"all_gather of uneven parts", all_gather_of_uneven_parts},
      {"reduce_scatter of all types", reduce_scatter_of_all_types},
      {"all_reduce adds", all_reduce_adds},
      {"ops at the same time", ops_at_the_same_time},
  };
  return checks;
}

std::vector<std::byte> pattern(std::uint64_t seed, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = (seed + i) * 0x9e3779b97f4a7c15ULL;  // Knuth's multiplicative hash
    std::memcpy(bytes.data() + i, &word, std::min(sizeof word, size - i));
  }
  return bytes;
}

void expect_same(std::string_view what, const Transport& transport, std::span<const std::byte> got,
                 std::span<const std::byte> want) {
  expect(got.size() == want.size(), transport,
         fmt::format("{}: {} bytes instead of {}", what, got.size(), want.size()));
  if (got.empty() || std::memcmp(got.data(), want.data(), got.size()) == 0) {
    return;
  }
  const auto [at, wanted] = std::ranges::mismatch(got, want);
  expect(at == got.end(), transport,
         fmt::format("{}: first difference at byte {} of {}", what, at - got.begin(), got.size()));
}

void wait_for(Transport& transport, Ticket ticket) {
  while (!transport.done(ticket)) {
    transport.progress();
    transport.idle();
  }
}

void wait_for(Transport& transport, Pending& pending) {
  while (!pending.advance()) {
    transport.progress();
    transport.idle();
  }
}

RankGroup group_of(Rank self, int stride, int size) {
  const int block = stride * size;
  return {
      .first = self.value / block * block + self.value % stride, .stride = stride, .size = size};
}

}  // namespace spp::test
