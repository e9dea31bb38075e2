// Demands against schedules that are walked op by op, for all strategies.
#include "schedule/demand.hpp"

#include "schedule/coverage.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/support/catch.hpp"

#include <map>

using namespace spp;
using Catch::Approx;
using test::Case;

namespace {

/// As the proof counts them.
Demand counted(const Schedule& schedule) {
  Demand all{.ranks = schedule.mesh.size()};
  for (int r = 0; r < all.ranks; ++r) {
    const Rank rank(r);
    const Program program = schedule.program(rank);
    all.buffers += static_cast<double>(program.buffers.size());
    ProgramCursor cursor(program);
    while (const Op* op = cursor.next()) {
      all.ops += 1;
      if (const auto* exchange = op_if<Exchange>(op->body)) {
        all.messages += exchange->to.valid() && exchange->to != rank ? 1 : 0;
      }
      if (const auto* collective = op_if<Collective>(op->body)) {
        all.messages += collective->group.size - 1;
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("the demand of a small schedule is exactly what it holds") {
  for (const int ranks : test::small_worlds) {
    for (const Case& c : test::cases(ranks, 40)) {
      INFO(c.text());
      const Schedule schedule = c.build();
      const Demand told = demand_of(schedule);
      const Demand truth = counted(schedule);
      REQUIRE(told.ops == Approx(truth.ops));
      REQUIRE(told.messages == Approx(truth.messages));
      REQUIRE(told.buffers == Approx(truth.buffers));
    }
  }
}

TEST_CASE("the demand of any schedule is within a third of what it holds") {
  for (const int ranks : {25, 36, 64, 144}) {
    for (const Case& c : test::cases(ranks, ranks > 100 ? 4 : 12)) {
      INFO(c.text());
      const Schedule schedule = c.build();
      const Demand told = demand_of(schedule);
      const Demand truth = counted(schedule);
      REQUIRE(told.ops == Approx(truth.ops).epsilon(0.33));
      REQUIRE(told.messages == Approx(truth.messages).epsilon(0.33));
      REQUIRE(told.buffers == Approx(truth.buffers).epsilon(0.33));
    }
  }
}

TEST_CASE("the demand of a million ranks is told without walking them") {
  const SequencePlan plan{
      .strategy = "zigzag-ring", .ulysses = 1, .ring = 1 << 20, .layout = Layout::zigzag};
  Problem problem{.seq = std::int64_t{1} << 30, .q_heads = 8, .kv_heads = 8};
  const Schedule schedule =
      strategies::by_name(plan.strategy, "test").build(problem, plan, Phase::forward, {});
  const double ring = 1 << 20;
  // Each step: an exchange but in the last, a kernel, a merge; then a cast.
  CHECK(demand_of(schedule).ops == Approx(ring * 3 * ring).epsilon(0.05));
  // 2^21 token atoms, a pair of them 4 bytes: above 17 TB.
  CHECK(proof_memory(schedule).as_double() > 1.7e13);
}

TEST_CASE("a grain that is longer than the sequence cuts nothing") {
  const Problem problem{.seq = 64, .q_heads = 4, .kv_heads = 4, .head_dim = 8};
  Schedule schedule = strategies::by_name("ring", "test")
                          .build(problem, {.strategy = "ring", .ring = 4}, Phase::forward, {});
  schedule.grain.tokens = 4095;
  CHECK(token_atoms_of(schedule) >= 4);
}

TEST_CASE("a proof tells how many ops it has seen of how many, and ends when nobody waits") {
  const SequencePlan plan{
      .strategy = "zigzag-ring", .ulysses = 1, .ring = 64, .layout = Layout::zigzag};
  const Problem problem{.seq = 4096, .q_heads = 2, .kv_heads = 2, .head_dim = 8};
  const Schedule schedule =
      strategies::by_name(plan.strategy, "test").build(problem, plan, Phase::backward, {});
  std::vector<double> told;
  const Proof proof = prove(schedule, [&](double done, double of) {
    CHECK(of == Approx(counted(schedule).ops).epsilon(0.33));
    told.push_back(done);
    return true;
  });
  CHECK(proof.proven);
  CHECK(told.size() > 2);
  CHECK(std::ranges::is_sorted(told));
  const Proof half = prove(schedule, [](double, double) { return false; });
  CHECK_FALSE(half.complete);
  CHECK_FALSE(half.proven);
}
