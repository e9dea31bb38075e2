#include "schedule/timeline.hpp"

#include "base/json.hpp"
#include "schedule/op.hpp"
#include "tests/support/catch.hpp"

using namespace spp;
using namespace spp::unit_literals;
using Catch::Approx;

namespace {

Timeline two_ops() {
  Timeline t;
  t.streams = {"compute", "ring \"kv\""};
  t.events.push_back({.rank = Rank(0),
                      .op = 0,
                      .stream = StreamId(1),
                      .kind = OpKind::exchange,
                      .begin = 0.0_us,
                      .end = 12.5_us,
                      .bytes = 4096,
                      .waited_for_rank = Rank(3)});
  t.events.push_back({.rank = Rank(0),
                      .op = 1,
                      .stream = StreamId(0),
                      .kind = OpKind::attention_fwd,
                      .begin = 12.5_us,
                      .end = 40.0_us,
                      .flops = 1e9,
                      .waited_for = 0});
  t.events.push_back({.rank = Rank(3),
                      .op = 0,
                      .stream = StreamId(1),
                      .kind = OpKind::exchange,
                      .begin = 2.0_us,
                      .end = 12.5_us,
                      .bytes = 4096});
  return t;
}

}  // namespace

TEST_CASE("a timeline ends with its last op, whenever the first one begins") {
  Timeline t = two_ops();
  CHECK(t.end().count() == Approx(40e-6));
  t.events.erase(t.events.begin());
  CHECK(t.end().count() == Approx(40e-6));
  CHECK(Timeline{}.end() == Seconds(0));
}

TEST_CASE("a timeline that is joined to another one begins where that ends") {
  Timeline first = two_ops();
  for (TimelineEvent& e : first.events) {  // the host launches
    e.begin += 4.0_us;
    e.end += 4.0_us;
  }
  const Timeline both = joined(first, two_ops());
  CHECK(both.events[first.events.size()].begin.count() == Approx(44e-6));
  CHECK(both.end().count() == Approx(84e-6));
}

TEST_CASE("a Chrome trace names ranks and streams and gives every op in microseconds") {
  const Json trace = parse_json(to_chrome_trace(two_ops(), "ring, \"2\" ranks"), "trace");
  CHECK(trace.at("otherData").at("title") == "ring, \"2\" ranks");
  Json processes = Json::array();
  Json threads = Json::array();
  Json ops = Json::array();
  for (const Json& e : trace.at("traceEvents")) {
    (e.at("ph") == "X" ? ops : e.at("name") == "process_name" ? processes : threads).push_back(e);
  }
  REQUIRE(processes.size() == 2);
  CHECK(processes[1].at("pid") == 3);
  CHECK(processes[1].at("args").at("name") == "rank 3");
  REQUIRE(threads.size() == 3);  // rank 0 has two streams, rank 3 one
  CHECK(threads[1].at("args").at("name") == "ring \"kv\"");
  REQUIRE(ops.size() == 3);
  const Json& attention = ops[1];
  CHECK(attention.at("name") == "attention_fwd");
  CHECK(attention.at("pid") == 0);
  CHECK(attention.at("tid") == 0);
  CHECK(attention.at("ts").get<double>() == Approx(12.5));
  CHECK(attention.at("dur").get<double>() == Approx(27.5));
  CHECK(attention.at("args").at("flops") == 1e9);
  CHECK(attention.at("args").at("waited_for") == 0);
  CHECK(ops[0].at("args").at("bytes") == 4096);
  CHECK(ops[0].at("args").at("waited_for") == -1);
  CHECK(ops[0].at("args").at("waited_for_rank") == 3);
  CHECK(ops[2].at("args").at("waited_for_rank") == -1);
}

TEST_CASE("an empty timeline is a valid trace") {
  const Json trace = parse_json(to_chrome_trace(Timeline{}, ""), "trace");
  CHECK(trace.at("traceEvents").empty());
}
