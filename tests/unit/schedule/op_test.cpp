#include "schedule/op.hpp"

#include "schedule/schedule.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/schedule/ring_of_two.hpp"

#include <vector>

using namespace spp;

namespace {

BufferId id(int i) { return BufferId(i); }

std::vector<int> numbers(std::span<const BufferId> ids) {
  std::vector<int> result;
  for (const BufferId i : ids) {
    result.push_back(i.value);
  }
  return result;
}

}  // namespace

TEST_CASE("a buffer list holds eight buffers and no ninth") {
  BufferList list{id(0), id(1), id(2), id(3), id(4), id(5), id(6), id(7)};
  CHECK(list.ids().size() == 8);
  CHECK_THROWS_AS(list.push_back(id(8)), InternalError);
  CHECK(BufferList{}.empty());
}

TEST_CASE("an attention kernel reads its operands and writes out and lse") {
  const Access a = access_of(AttentionForward{.q = id(0),
                                              .k = id(1),
                                              .v = id(2),
                                              .out = id(3),
                                              .lse = id(4),
                                              .q_tokens = {},
                                              .k_tokens = {},
                                              .heads = {},
                                              .kv_heads = {}});
  CHECK(numbers(a.reads()) == std::vector{0, 1, 2});
  CHECK(numbers(a.writes()) == std::vector{3, 4});
}

TEST_CASE("the backward reads six buffers and writes three") {
  const Access a = access_of(AttentionBackward{.q = id(0),
                                               .k = id(1),
                                               .v = id(2),
                                               .d_out = id(3),
                                               .lse = id(4),
                                               .delta = id(5),
                                               .d_q = id(6),
                                               .d_k = id(7),
                                               .d_v = id(8),
                                               .q_tokens = {},
                                               .k_tokens = {},
                                               .heads = {},
                                               .kv_heads = {}});
  CHECK(numbers(a.reads()) == std::vector{0, 1, 2, 3, 4, 5});
  CHECK(numbers(a.writes()) == std::vector{6, 7, 8});
}

TEST_CASE("an accumulator is read unless it is empty") {
  Merge merge{.out = id(0), .lse = id(1), .part_out = id(2), .part_lse = id(3), .tokens = {}};
  CHECK(numbers(access_of(merge).reads()) == std::vector{2, 3, 0, 1});
  CHECK(numbers(access_of(merge).writes()) == std::vector{0, 1});
  merge.initial = true;
  CHECK(numbers(access_of(merge).reads()) == std::vector{2, 3});

  Accumulate sum{.sum = id(0), .part = id(1), .tokens = {}};
  CHECK(numbers(access_of(sum).reads()) == std::vector{1, 0});
  sum.initial = true;
  CHECK(numbers(access_of(sum).reads()) == std::vector{1});
  CHECK(numbers(access_of(sum).writes()) == std::vector{0});
}

TEST_CASE("an exchange reads what it sends and writes what it receives") {
  const Access a = access_of(Exchange{
      .to = Rank(1), .from = Rank(2), .send = {id(0), id(1)}, .receive = {id(2), id(3), id(4)}});
  CHECK(numbers(a.reads()) == std::vector{0, 1});
  CHECK(numbers(a.writes()) == std::vector{2, 3, 4});
}

TEST_CASE("only ops that meet other ranks are communication") {
  CHECK(is_transfer(Exchange{}));
  CHECK(is_transfer(Collective{.kind = CollectiveKind::all_to_all, .deal = HeadDeal{}}));
  CHECK(is_transfer(Collective{.kind = CollectiveKind::all_gather}));
  CHECK(is_transfer(Collective{.kind = CollectiveKind::reduce_scatter}));
  CHECK(is_transfer(Collective{.kind = CollectiveKind::all_reduce}));
  CHECK_FALSE(is_transfer(AttentionForward{}));
  CHECK_FALSE(is_transfer(Merge{}));
  CHECK_FALSE(is_transfer(Copy{}));
  CHECK_FALSE(is_transfer(Fill{}));
}

TEST_CASE("a cursor hands out the ops of a program in order and counts them") {
  const Program program = test::ring_of_two().program(Rank(0));
  const OpList all = ops_of(program);
  CHECK(all.size() == 5);
  ProgramCursor cursor(program);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Op* op = cursor.next();
    REQUIRE(op != nullptr);
    CHECK(*op == all[i]);
    CHECK(cursor.position() == static_cast<std::int64_t>(i) + 1);
  }
  CHECK(cursor.next() == nullptr);
  CHECK(cursor.next() == nullptr);
}

TEST_CASE("a cursor passes over loops that emit nothing") {
  Program program;
  program.loops.push_back({.trips = 3, .body = [](std::int64_t i, OpList& ops) {
                             if (i == 2) {
                               ops.push_back({StreamId(0), Copy{}});
                             }
                           }});
  program.loops.push_back({.trips = 0, .body = [](std::int64_t, OpList&) { FAIL("never"); }});
  ProgramCursor cursor(program);
  CHECK(cursor.next() != nullptr);
  CHECK(cursor.next() == nullptr);
}

TEST_CASE("the builder gives fp32 to lse and delta, the problem's type to all else") {
  const Schedule s = test::ring_of_two();
  ProgramBuilder b(s.contract.attention, Rank(0));
  CHECK(b.natural_dtype(Tensor::lse) == DType::fp32);
  CHECK(b.natural_dtype(Tensor::delta) == DType::fp32);
  CHECK(b.natural_dtype(Tensor::d_k) == DType::bf16);
  b.loop(0, [](std::int64_t, OpList&) {});
  CHECK(b.finish().loops.empty());
}
