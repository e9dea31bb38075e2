// Dependencies of ops from the buffers that they use, and the window that holds them.
#include "sim/rank_window.hpp"

#include "tests/support/catch.hpp"

using namespace spp;
using namespace spp::sim;

namespace {

constexpr StreamId compute{0};
constexpr StreamId other{1};

/// Ops over four buffers a, b, c, d.
struct Written {
  std::vector<Op> ops;

  Written& copy(StreamId stream, int from, int to) {
    ops.push_back(
        {stream, Copy{.kind = CopyKind::cast, .from = BufferId(from), .to = BufferId(to)}});
    return *this;
  }
  Written& add(StreamId stream, int part, int sum) {
    ops.push_back({stream, Accumulate{.sum = BufferId(sum), .part = BufferId(part)}});
    return *this;
  }
  [[nodiscard]] RankWindow window() const {
    Program program;
    program.buffers.resize(4);
    program.loops.push_back(
        {.trips = 1, .body = [list = ops](std::int64_t, OpList& out) { out = list; }});
    return RankWindow(std::move(program));
  }
};

/// As the simulator does.
void issue_all(RankWindow& window) {
  const auto is_one_fetched = [&] {
    const Op* op = nullptr;
    while (window.fetch(op) != nullptr) {
    }
    return window.issued() < window.fetched();
  };
  while (window.has_room() && (window.issued() < window.fetched() || is_one_fetched())) {
    window.issue(0);
  }
}

}  // namespace

TEST_CASE("an op waits for the last writer of what it reads") {
  RankWindow w = Written().copy(compute, 0, 1).copy(other, 1, 2).window();
  issue_all(w);
  CHECK(w.slot(0).waits_for == 0);
  CHECK(w.slot(1).waits_for != 0);
  w.finish(0, 3.5);
  CHECK(w.slot(1).waits_for == 0);
  CHECK(w.slot(1).ready == 3.5);
  CHECK(w.slot(1).ready_by == 0);
}

TEST_CASE("a stream is ready while its first op waits for nothing and has not started") {
  RankWindow w = Written().copy(compute, 0, 1).copy(other, 1, 2).copy(compute, 0, 3).window();
  issue_all(w);
  CHECK(w.next_ready(0) == 0);
  CHECK(w.next_ready(1) == w.streams());  // its op waits for the first one
  w.start(0);
  CHECK(w.next_ready(0) == w.streams());
  w.finish(0, 1);
  CHECK(w.next_ready(0) == 0);
  CHECK(w.next_ready(1) == 1);
  w.start(2);
  CHECK(w.next_ready(0) == 1);
}

TEST_CASE("ops wait for each other wherever they stand in a program, and in whose place") {
  Written program;
  for (int i = 0; i < 3; ++i) {
    program.copy(compute, 0, 1);
  }
  RankWindow w = program.copy(compute, 0, 2).copy(other, 2, 3).copy(compute, 3, 2).window();
  issue_all(w);
  CHECK(w.slot(4).waits_for != 0);  // for the copy that writes what it reads
  CHECK(w.slot(5).waits_for != 0);  // for the one that still reads what it writes
  for (SlotId i = 0; i < 4; ++i) {
    w.finish(i, i);
  }
  CHECK(w.slot(4).waits_for == 0);
  CHECK(w.slot(5).waits_for != 0);
  w.finish(4, 4);
  CHECK(w.slot(5).waits_for == 0);
}

TEST_CASE("an op does not wait for another that stands where one ended that it would wait for") {
  Written program;
  program.copy(compute, 0, 1);
  for (int i = 1; i < RankWindow::lookahead; ++i) {
    program.copy(compute, 0, 2);
  }
  RankWindow w = program.copy(compute, 0, 2).copy(other, 1, 3).window();
  issue_all(w);
  w.start(0);
  w.finish(0, 1);
  issue_all(w);  // one more, in the place of the first
  w.start(1);
  w.finish(1, 2);
  issue_all(w);
  REQUIRE(w.issued() == RankWindow::lookahead + 2);
  CHECK(w.slot(w.head(other.index())).waits_for == 0);
}

TEST_CASE("an op waits for the readers of what it writes, all of them") {
  RankWindow w = Written().copy(compute, 0, 1).copy(compute, 0, 2).copy(other, 3, 0).window();
  issue_all(w);
  w.finish(0, 1);
  CHECK(w.slot(2).waits_for != 0);
  w.finish(1, 2);
  CHECK(w.slot(2).waits_for == 0);
  CHECK(w.slot(2).ready_by == 1);
}

TEST_CASE("an op waits for the last writer of what it writes") {
  RankWindow w = Written().copy(compute, 0, 1).copy(other, 2, 1).window();
  issue_all(w);
  CHECK(w.slot(1).waits_for != 0);
}

TEST_CASE("two readers of a buffer do not wait for each other") {
  RankWindow w = Written().copy(compute, 0, 1).copy(other, 0, 2).window();
  issue_all(w);
  CHECK(w.slot(1).waits_for == 0);
}

TEST_CASE("what an op reads and writes does not make it wait for itself") {
  RankWindow w = Written().add(compute, 0, 1).window();
  issue_all(w);
  CHECK(w.slot(0).waits_for == 0);
}

TEST_CASE("ops of one stream are in order by the stream, not by dependencies") {
  RankWindow w = Written().copy(compute, 0, 1).copy(compute, 1, 2).copy(other, 3, 3).window();
  issue_all(w);
  CHECK(w.slot(1).waits_for == 0);
  CHECK(w.head(0) == 0);
  CHECK(w.head(1) == 2);
  w.finish(0, 1);
  CHECK(w.head(0) == 1);
  w.finish(1, 2);
  CHECK(w.head(0) == -1);
  CHECK_FALSE(w.done());
  w.finish(2, 2);
  CHECK(w.done());
}

TEST_CASE("a full window takes ops again as soon as one of its ops has started") {
  Written program;
  for (int i = 0; i < RankWindow::lookahead + 2; ++i) {
    program.copy(compute, 0, 1);
  }
  RankWindow w = program.window();
  issue_all(w);
  CHECK(w.issued() == RankWindow::lookahead);
  w.start(0);
  issue_all(w);
  CHECK(w.issued() == RankWindow::lookahead + 1);
}

TEST_CASE("ops that are fetched ahead of the host are not ready, and nobody kept them waiting") {
  Written program;
  program.copy(compute, 0, 1);
  for (int i = 1; i < RankWindow::lookahead; ++i) {
    program.copy(compute, 0, 2);
  }
  program.copy(other, 0, 3).copy(StreamId(2), 1, 0);
  RankWindow w = program.window();
  issue_all(w);
  w.start(0);
  issue_all(w);
  REQUIRE(w.fetched() == RankWindow::lookahead + 2);
  CHECK(w.issued() == RankWindow::lookahead + 1);
  CHECK(w.next_ready(1) == 1);
  for (SlotId op = w.head(0); op >= 0; op = w.head(0)) {
    w.finish(op, 1);
  }
  const SlotId reader = w.head(1);
  w.start(reader);
  w.finish(reader, 2);
  CHECK(w.next_ready(0) == w.streams());  // the last op waits for nothing, but is not issued
  const Slot& last = w.issue(3);
  CHECK(w.next_ready(2) == 2);
  CHECK(last.ready_by == -1);
}

TEST_CASE("an op that runs for long does not stop the host") {
  Written program;
  program.copy(other, 2, 3);
  constexpr int ops = 5 * RankWindow::lookahead;
  for (int i = 0; i < ops; ++i) {
    program.copy(compute, 0, 1);
  }
  RankWindow w = program.window();
  issue_all(w);
  w.start(w.head(1));  // and does not end
  for (int i = 0; i < ops; ++i) {
    const SlotId next = w.head(0);
    REQUIRE(next >= 0);
    w.start(next);
    w.finish(next, i);
    issue_all(w);
  }
  CHECK(w.issued() == ops + 1);
  CHECK(w.head(0) == -1);
  CHECK_FALSE(w.done());
}

// Op 0 writes b and ends; its slot is taken by an op that has nothing to do with b. Whoever reads b
// then depends on nobody: the new op must not inherit.
TEST_CASE("an op that takes the slot of an ended one does not inherit what waits for it") {
  Written program;
  program.copy(compute, 0, 1);
  for (int i = 1; i < RankWindow::lookahead; ++i) {
    program.copy(compute, 2, 3);
  }
  program.copy(compute, 2, 3);  // in the slot of op 0
  program.copy(other, 1, 0);    // reads b
  RankWindow w = program.window();
  issue_all(w);
  for (int i = 0; i < 2; ++i) {
    const SlotId done = w.head(0);
    w.start(done);
    w.finish(done, 1);
  }
  issue_all(w);
  REQUIRE(w.issued() == RankWindow::lookahead + 2);
  REQUIRE(w.head(1) >= 0);
  CHECK(w.slot(w.head(1)).position == RankWindow::lookahead + 1);
  CHECK(w.slot(w.head(1)).waits_for == 0);
}
