// The decision map: each cell is plan()'s answer, and boundaries are where two answers differ.
#include "planner/sweep.hpp"

#include "machine/machine.hpp"
#include "planner/packing.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"

#include <atomic>
#include <string>

using namespace spp;

namespace {

sim::Cluster two_nodes() {
  const MachineSpec spec = test::catalog().machine("dgx-h100", "test");
  return {spec, 2, 16};
}

Request attention_on(const sim::Cluster& cluster, int gpus) {
  Request r;
  r.problem = {.seq = 1, .q_heads = 32, .kv_heads = 8, .head_dim = 128};
  r.cluster = &cluster;
  r.gpus = gpus;
  r.memory = Bytes(72'000'000'000);
  return r;
}

/// All that a reader is told of a result.
std::string told(const SweepResult& result) {
  std::string text;
  const auto add = [&](const SweepCell& cell) {
    text += fmt::format("{} {}", cell.seq, to_string(cell.verdict));
    for (const Candidate& c : cell.result.candidates) {
      text += fmt::format(" {} {}", short_name(c.plan), c.predicted.step.count());
    }
    text += "\n";
  };
  for (const auto& line : result.cells) {
    for (const SweepCell& cell : line) {
      add(cell);
    }
  }
  for (const Boundary& b : result.boundaries) {
    text += fmt::format("boundary of line {}:\n", b.line);
    add(b.from);
    add(b.to);
  }
  return text + fmt::format("{} questions\n", result.questions);
}

}  // namespace

TEST_CASE("a cell of a sweep is what plan answers") {
  const sim::Cluster cluster = two_nodes();
  const Request line = attention_on(cluster, 16);
  const SweepResult result =
      sweep({.lines = {line}, .lengths = {8192, 65536}, .boundaries = false});
  REQUIRE(result.cells.size() == 1);
  REQUIRE(result.cells[0].size() == 2);
  CHECK(result.questions == 2);
  for (const SweepCell& cell : result.cells[0]) {
    Request alone = line;
    alone.problem.seq = cell.seq;
    const PlanResult answer = plan(alone);
    REQUIRE(cell.verdict == Verdict::plan);
    CHECK(short_name(cell.result.candidates[0].plan) == short_name(answer.candidates[0].plan));
    CHECK(cell.result.candidates[0].predicted.step == answer.candidates[0].predicted.step);
    CHECK(cell.result.ties == answer.ties);
  }
}

TEST_CASE("documents that are drawn are drawn for each length") {
  const sim::Cluster cluster = two_nodes();
  Request line = attention_on(cluster, 8);
  line.drawn_documents = "lognormal:median=4K,sigma=1";
  const auto drawn = [&](std::int64_t seq) {
    return typical_sequence(LengthDistribution::parse(line.drawn_documents, seq, "test"), seq,
                            "test")
        .ends;
  };
  line.problem.mask = {.kind = MaskKind::causal, .document_ends = drawn(32768)};
  const SweepResult result =
      sweep({.lines = {line}, .lengths = {32768, 65536}, .boundaries = false});
  Request alone = line;
  alone.problem.seq = 65536;
  alone.problem.mask.document_ends = drawn(65536);
  CHECK(result.cells[0][1].result.candidates.at(0).predicted.step ==
        plan(alone).candidates.at(0).predicted.step);
}

TEST_CASE("a sweep tells the same with one thread and with five") {
  const sim::Cluster cluster = two_nodes();
  SweepQuestion question{.lines = {attention_on(cluster, 4), attention_on(cluster, 8)},
                         .lengths = {2048, 16384, 65536}};
  const std::string alone = told(sweep(question));
  question.threads = 5;
  CHECK(told(sweep(question)) == alone);
}

TEST_CASE("on both sides of a boundary stand the plans that plan answers there, a grain apart") {
  const sim::Cluster cluster = two_nodes();
  const Request line = attention_on(cluster, 16);
  const SweepResult result =
      sweep({.lines = {line}, .lengths = {1024, 262144}, .grain = 4096, .threads = 2});
  REQUIRE_FALSE(result.boundaries.empty());
  std::int64_t at = 0;
  for (const Boundary& b : result.boundaries) {
    CHECK(b.from.seq >= at);
    CHECK(b.to.seq - b.from.seq < 2 * 4096);
    CHECK_FALSE(same_recommendation(b.from, b.to));
    at = b.to.seq;
    for (const SweepCell* side : {&b.from, &b.to}) {
      Request alone = line;
      alone.problem.seq = side->seq;
      CHECK(differences(plan(alone).candidates[0].plan, side->result.candidates[0].plan).empty());
    }
  }
}

TEST_CASE("a length at which nothing fits is a cell with that verdict, behind a boundary") {
  const sim::Cluster cluster = two_nodes();
  Request line = attention_on(cluster, 16);
  line.memory = Bytes(100'000'000);
  const SweepResult result =
      sweep({.lines = {line}, .lengths = {4096, 1'048'576}, .boundaries = true});
  CHECK(result.any_plan());
  CHECK(result.cells[0][0].verdict == Verdict::plan);
  CHECK(result.cells[0][1].verdict == Verdict::nothing_fits);
  REQUIRE_FALSE(result.boundaries.empty());
  const Boundary& last = result.boundaries.back();
  CHECK(last.from.verdict == Verdict::plan);
  CHECK(last.to.verdict == Verdict::nothing_fits);
}

TEST_CASE("without any legal plan a cell says so, and there is no plan at all") {
  const sim::Cluster cluster = two_nodes();
  Request line = attention_on(cluster, 7);
  line.fixed.ulysses = 7;
  line.fixed.heads = HeadPolicy::divide;
  const SweepResult result = sweep({.lines = {line}, .lengths = {4096, 8192}});
  CHECK_FALSE(result.any_plan());
  CHECK(result.cells[0][0].verdict == Verdict::no_legal_plan);
  CHECK(result.cells[0][0].result.rejected.size() == 1);
  CHECK(result.boundaries.empty());
}

TEST_CASE("a sweep that is given up has what was answered before") {
  const sim::Cluster cluster = two_nodes();
  std::atomic<int> told_of{0};
  const SweepResult result =
      sweep({.lines = {attention_on(cluster, 16)}, .lengths = {2048, 4096, 8192}},
            [&](double done, double) {
              ++told_of;
              return done < 1;
            });
  CHECK(told_of > 0);
  CHECK(result.cells[0][0].verdict == Verdict::unsearched);
  CHECK(result.boundaries.empty());
}

TEST_CASE("what a question throws ends the sweep") {
  const sim::Cluster cluster = two_nodes();
  SweepQuestion question{.lines = {attention_on(cluster, 16)}, .lengths = {2048, 4096}};
  CHECK_THROWS_AS(sweep(question, [](double, double) -> bool { throw InputError("x", "y"); }),
                  InputError);
}

TEST_CASE("boundaries are located to 1/64 of the interval, and to 1K tokens at best") {
  CHECK(grain_between(32768, 65536) == 1024);
  CHECK(grain_between(131072, 262144) == 2048);
  CHECK(grain_between(131072, 1'048'576) == 8192);
  CHECK(grain_between(1024, 2048) == 1024);
}

TEST_CASE("plans differ by the names of the options that set them") {
  StepPlan a;
  a.attention.strategy = "usp";
  a.attention.ulysses = 8;
  a.attention.ring = 2;
  StepPlan b = a;
  CHECK(differences(a, b).empty());
  b.attention.ulysses = 4;
  b.attention.ring = 4;
  b.zero = 3;
  const std::vector<Difference> found = differences(a, b);
  REQUIRE(found.size() == 3);
  CHECK(found[0].what == "ulysses");
  CHECK(found[0].before == "8");
  CHECK(found[0].after == "4");
  CHECK(found[2].what == "zero");
}

TEST_CASE("cells that are worked on at once share the memory of a search") {
  const sim::Cluster cluster = two_nodes();
  Request line = attention_on(cluster, 16);
  const auto left = [&](std::int64_t bytes) {
    Request alone = line;
    alone.problem.seq = 65536;
    alone.most = {.ops = 1e9, .memory = Bytes(bytes)};
    return plan(alone).unsettled;
  };
  std::int64_t bytes = 1'000'000'000;
  while (left(bytes / 2) == 0) {
    bytes /= 2;
  }
  line.most = {.ops = 1e9, .memory = Bytes(bytes)};
  SweepQuestion question{
      .lines = {line, line}, .lengths = {65536}, .boundaries = false, .threads = 1};
  CHECK(sweep(question).cells[1][0].result.unsettled == 0);
  question.threads = 2;
  CHECK(sweep(question).cells[1][0].result.unsettled > 0);
  question.lines.pop_back();  // alone it has all
  CHECK(sweep(question).cells[0][0].result.unsettled == 0);
}
