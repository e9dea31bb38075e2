#include "base/error.hpp"
#include "runtime/comm/collectives.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/comm_checks.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

// That data arrive, for all groups, types and uneven sizes, is tested for every transport by
// tests/support/comm_checks.cpp (comm_transport_test.cpp). Here: what a reader would work out by
// hand.

namespace {

using namespace spp;
using runtime::Transport;

void run(int ranks, const runtime::RankBody& body) {
  runtime::transports::by_name("inproc", "test").run(ranks, body);
}

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}
std::span<std::byte> memory_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

/// What each of `ranks` ranks has in the end.
template <class Value, class Body>
std::vector<Value> on_all_ranks(int ranks, Body&& body) {
  std::vector<Value> results(static_cast<std::size_t>(ranks));
  run(ranks, [&](Transport& t) { results[t.rank().index()] = body(t); });
  return results;
}

}  // namespace

TEST_CASE("reduce_scatter gives every member the sum of its own part") {
  const RankGroup group{.first = 1, .stride = 2, .size = 3};  // ranks 1, 3, 5 of 6
  const auto sums = on_all_ranks<float>(6, [&](Transport& t) {
    if (t.rank().value % 2 == 0) {
      return -1.0F;
    }
    const auto own = static_cast<float>(t.rank().value);
    const std::vector<float> for_1{own};
    const std::vector<float> for_3{10 * own};
    const std::vector<float> for_5{100 * own};
    std::vector<float> sum(1);
    test::wait_for(t, *runtime::reduce_scatter(t, 0, group,
                                               {bytes_of(for_1), bytes_of(for_3), bytes_of(for_5)},
                                               DType::fp32, memory_of(sum), DType::fp32));
    return sum[0];
  });
  CHECK(sums == std::vector<float>{-1, 9, -1, 90, -1, 900});
}

TEST_CASE("reduce_scatter adds in fp32 and rounds a partial sum once a hop") {
  // bf16 has 8 bits of precision: 256 + 1 = 257 needs 9. The part of rank 0 goes 1 -> 2 -> 0.
  // Addends 1 (rank 1), 256 (rank 2), 1 (rank 0): 1 + 256 is rounded to 256 on the way; the last
  // addition is made in fp32 and stays 257 in an fp32 result.
  constexpr std::uint16_t one = 0x3f80;
  constexpr std::uint16_t many = 0x4380;  // 256
  const RankGroup group{.first = 0, .stride = 1, .size = 3};
  const auto sums = on_all_ranks<float>(3, [&](Transport& t) {
    const std::vector<std::uint16_t> part{t.rank().value == 2 ? many : one};
    const auto bytes = std::as_bytes(std::span(part));
    std::vector<float> sum(1);
    test::wait_for(t, *runtime::reduce_scatter(t, 0, group, {bytes, bytes, bytes}, DType::bf16,
                                               memory_of(sum), DType::fp32));
    return sum[0];
  });
  CHECK(sums[0] == 257.0F);
}

TEST_CASE("A group of one copies and sends nothing") {
  run(2, [](Transport& t) {
    const RankGroup alone{.first = t.rank().value, .stride = 1, .size = 1};
    const std::vector<float> own{1, 2, 3};
    std::vector<float> there(3);
    const auto finish = [&](std::unique_ptr<runtime::Pending> op) {
      const bool done = op->advance();
      if (!done || op->sent() != 0 || !op->waits_for().empty() || there != own) {
        throw std::runtime_error("not a copy");
      }
      there.assign(3, 0);
    };
    finish(runtime::all_gather(t, 0, alone, bytes_of(own), {memory_of(there)}));
    finish(
        runtime::all_to_all(t, 0, alone, {.send = {bytes_of(own)}, .receive = {memory_of(there)}}));
    finish(runtime::reduce_scatter(t, 0, alone, {bytes_of(own)}, DType::fp32, memory_of(there),
                                   DType::fp32));
    finish(runtime::exchange(t, 0,
                             {.to = t.rank(),
                              .from = t.rank(),
                              .send = {bytes_of(own)},
                              .receive = {memory_of(there)}}));
  });
  SUCCEED();
}

TEST_CASE("An exchange without peers is done at once") {
  run(1, [](Transport& t) {
    if (!runtime::exchange(t, 0, {})->advance()) {
      throw std::runtime_error("not done");
    }
  });
  SUCCEED();
}

TEST_CASE("An op tells whom it waits for") {
  // Rank 1 comes late; ranks 0 and 2 of the ring wait for it: 2 for its data, 0 for its taking.
  const RankGroup group{.first = 0, .stride = 1, .size = 3};
  const auto waits = on_all_ranks<std::vector<Rank>>(3, [&](Transport& t) {
    std::vector<float> own{1};
    std::vector<std::vector<float>> parts(3, std::vector<float>(1));
    std::vector<Rank> waited;
    if (t.rank().value == 1) {
      t.barrier();
    }
    const auto op =
        runtime::all_gather(t, 0, group, bytes_of(own),
                            {memory_of(parts[0]), memory_of(parts[1]), memory_of(parts[2])});
    if (t.rank().value != 1) {
      for (int i = 0; i < 100; ++i) {
        t.progress();
        if (op->advance()) {
          throw std::runtime_error("done without rank 1");
        }
      }
      waited = op->waits_for();
      t.barrier();
    }
    test::wait_for(t, *op);
    return waited;
  });
  CHECK(waits[2] == std::vector<Rank>{Rank(1)});
  CHECK(waits[0].size() == 1);  // rank 2 for the part of rank 1
}

TEST_CASE("An all_to_all waits for those who have not sent") {
  const RankGroup group{.first = 0, .stride = 1, .size = 4};
  const auto waits = on_all_ranks<std::vector<Rank>>(4, [&](Transport& t) {
    const std::vector<float> own{1};
    std::vector<std::vector<float>> in(4, std::vector<float>(1));
    const auto out = bytes_of(own);
    std::vector<Rank> waited;
    if (t.rank().value >= 2) {
      t.barrier();
    }
    const auto op = runtime::all_to_all(
        t, 0, group,
        {.send = {out, out, out, out},
         .receive = {memory_of(in[0]), memory_of(in[1]), memory_of(in[2]), memory_of(in[3])}});
    if (t.rank().value < 2) {
      while (op->waits_for().size() > 2) {
        t.progress();
        (void)op->advance();
        t.idle();
      }
      waited = op->waits_for();
      t.barrier();
    }
    test::wait_for(t, *op);
    return waited;
  });
  CHECK(waits[0] == std::vector<Rank>{Rank(2), Rank(3)});
  CHECK(waits[1] == std::vector<Rank>{Rank(2), Rank(3)});
}

TEST_CASE("Parts that do not fit are our bugs") {
  const RankGroup pair{.first = 0, .stride = 1, .size = 2};
  const auto fails = [](const runtime::RankBody& body) {
    CHECK_THROWS_AS(run(2, body), InternalError);
  };
  std::vector<float> two(2);
  fails([&](Transport& t) { (void)runtime::all_gather(t, 0, pair, {}, {}); });
  fails([&](Transport& t) { (void)runtime::all_to_all(t, 0, pair, {}); });
  fails([&](Transport& t) {
    (void)runtime::reduce_scatter(t, 0, pair, {bytes_of(two), bytes_of(two).first(4)}, DType::fp32,
                                  memory_of(two), DType::fp32);
  });
  fails([&](Transport& t) {
    (void)runtime::reduce_scatter(t, 0, pair, {bytes_of(two), bytes_of(two)}, DType::bf16,
                                  memory_of(two), DType::fp32);
  });
}
