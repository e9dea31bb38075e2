#include "regress/gate.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace spp;
using namespace spp::regress;
using Catch::Matchers::ContainsSubstring;

namespace {

PointPrediction says(std::optional<double> value) {
  PointPrediction p;
  p.predicted = value;
  return p;
}

/// A folder with a baseline of one file and its history.
struct Gates {
  test::TempDir folder;
  std::filesystem::path gate = folder.path() / "gate.json";

  Gates() {
    const auto baseline = folder.path() / "predictions.jsonl";
    write_file(baseline, prediction_line("example", 0, says(1.0)) + "\n" +
                             prediction_line("example", 1, says({})) + "\n");
    write("history.json", {{"entries", {{{"reason", "first"}, {"digest", digest(baseline)}}}}});
    write(
        "gate.json",
        {{"format", "sp-plan/gate"},
         {"format_version", "1.0"},
         {"accuracy",
          {{"attention",
            {{"median_error", 0.08}, {"kendall_tau", 0.7}, {"coverage", {0.7, 0.9}}}}}},
         {"drift",
          {{"baseline", "predictions.jsonl"}, {"tolerance", 1e-4}, {"history", "history.json"}}}});
  }
  void write(const std::string& name, const Json& document) const {
    write_file(folder.path() / name, document.dump());
  }
};

}  // namespace

TEST_CASE("limits name the family, the figure and the limit") {
  const Gates gates;
  const Gate gate = read_gate(gates.gate);
  Score good;
  good.median = 0.05;
  good.tau = 0.9;
  good.coverage = 0.8;
  CHECK(failures(gate, {{"attention", good}}).empty());
  Score bad = good;
  bad.median = 0.09;
  bad.tau = 0.5;
  bad.coverage = 0.95;
  const auto failed = failures(gate, {{"attention", bad}});
  REQUIRE(failed.size() == 3);
  CHECK(failed[0] == "attention: median_error is 9.00 %, at most 8.00 % is allowed");
  CHECK(failed[1] == "attention: kendall_tau is 0.50, at least 0.70 is demanded");
  CHECK(failed[2] == "attention: coverage is 95.00 %, at most 90.00 % is allowed");
  CHECK(failures(gate, {{"kernel", good}}).size() == 1);
}

TEST_CASE("a prediction that moves is drift") {
  const Gates gates;
  const Gate gate = read_gate(gates.gate);
  CHECK(drift(gate, {{"example", {says(1.00005), says({})}}}).empty());
  CHECK(drift(gate, {{"example", {says(1.0002), says({})}}}) ==
        std::vector<std::string>{"example: 1 of 2 predictions moved, points[0] by 0.02 %"});
  CHECK(drift(gate, {{"example", {says(1.0), says(2.0)}}}) ==
        std::vector<std::string>{
            "example: 1 of 2 predictions moved, points[1] by appearing or going"});
  CHECK(drift(gate, {{"example", {says(1.0), says({})}}, {"new", {says(1.0)}}}) ==
        std::vector<std::string>{"new: 1 of 1 predictions moved, points[0] by appearing or going"});
}

TEST_CASE("an end of an interval that moves is drift, and so is running out of memory or not") {
  const Gates gates;
  PointPrediction was = says(1.0);
  was.low = 0.9;
  was.high = 1.1;
  const auto baseline = gates.folder.path() / "predictions.jsonl";
  write_file(baseline, prediction_line("example", 0, was) + "\n");
  gates.write("history.json", {{"entries", {{{"reason", "wider"}, {"digest", digest(baseline)}}}}});
  const Gate gate = read_gate(gates.gate);
  const auto moved = [&](const PointPrediction& now) { return drift(gate, {{"example", {now}}}); };
  const auto by = [](const std::string& what) {
    return std::vector<std::string>{"example: 1 of 1 predictions moved, points[0] by " + what};
  };
  CHECK(moved(was).empty());
  PointPrediction now = was;
  now.high = 1.21;
  CHECK(moved(now) == by("10.00 %"));
  now.low = now.high = std::nullopt;
  CHECK(moved(now) == by("appearing or going"));
  now = was;
  now.predicted = std::numeric_limits<double>::quiet_NaN();
  CHECK(moved(now) == by("appearing or going"));
  now = was;
  now.oom = true;
  CHECK(moved(now) == by("being out of memory or not, and 0.00 %"));
}

TEST_CASE("predictions that go are drift, of a file and with it") {
  const Gates gates;
  const Gate gate = read_gate(gates.gate);
  const std::map<std::string, std::vector<PointPrediction>> cut{{"example", {says(1.0)}}};
  const std::vector<std::string> points{
      "example: 1 of 2 predictions moved, points[1] by appearing or going"};
  CHECK(drift(gate, cut) == points);
  CHECK(drift(gate, cut, {.one_file = true}) == points);
  CHECK(drift(gate, {}) == std::vector<std::string>{"example: all 2 predictions went"});
  CHECK(drift(gate, {}, {.family = "kernel"}).empty());
  CHECK(drift(gate, {}, {.one_file = true}).empty());
}

TEST_CASE("limits hold for the families that were asked for, as a whole") {
  const Gates gates;
  const Gate gate = read_gate(gates.gate);
  CHECK(failures(gate, {}).size() == 1);
  CHECK(failures(gate, {}, {.family = "attention"}).size() == 1);
  CHECK(failures(gate, {}, {.family = "kernel"}).empty());
  CHECK(failures(gate, {}, {.one_file = true}).empty());
}

TEST_CASE("a gate judges what has a limit or a baseline") {
  const Gates gates;
  Gate gate = read_gate(gates.gate);
  CHECK(judges(gate, {.one_file = true}));
  gate.baseline.clear();
  CHECK(judges(gate, {}));
  CHECK(judges(gate, {.family = "attention"}));
  CHECK_FALSE(judges(gate, {.family = "kernel"}));
  CHECK_FALSE(judges(gate, {.one_file = true}));
}

TEST_CASE("a gate that could not fail is refused") {
  const Gates gates;
  const auto refused = [&](const Json& accuracy) {
    gates.write("gate.json",
                {{"format", "sp-plan/gate"}, {"format_version", "1.0"}, {"accuracy", accuracy}});
    return test::message_of<InputError>([&] { (void)read_gate(gates.gate); });
  };
  const auto of_attention = [&](const Json& limits) { return refused({{"attention", limits}}); };
  CHECK_THAT(refused(nullptr), ContainsSubstring("has neither 'accuracy' nor 'drift'"));
  CHECK_THAT(refused(Json::object()), ContainsSubstring("accuracy: has limits of no family"));
  CHECK_THAT(of_attention(Json::object()), ContainsSubstring("attention: has no limit"));
  CHECK_THAT(of_attention({{"mape", nullptr}}), ContainsSubstring("attention: has no limit"));
  CHECK_THAT(of_attention({{"mape", 12}}),
             ContainsSubstring("mape: 12 is not from 0 to 1; limits"));
  CHECK_THAT(of_attention({{"kendall_tau", 2}}), ContainsSubstring("kendall_tau: 2 is not from"));
  for (const Json& range : {Json{0, 1}, Json{0.9, 0.7}, Json{0.7}, Json{0.1, 0.2, 0.3}}) {
    CHECK_THAT(of_attention({{"coverage", range}}), ContainsSubstring("coverage: is no range"));
  }
  CHECK_THAT(of_attention({{"coverage", {-5, 500}}}), ContainsSubstring("coverage[0]"));
  for (const double tolerance : {-1.0, 1e9}) {
    gates.write("gate.json", {{"format", "sp-plan/gate"},
                              {"format_version", "1.0"},
                              {"drift",
                               {{"baseline", "predictions.jsonl"},
                                {"tolerance", tolerance},
                                {"history", "history.json"}}}});
    CHECK_THROWS_WITH(read_gate(gates.gate), ContainsSubstring("drift.tolerance"));
  }
}

TEST_CASE("a baseline without its reason is refused") {
  const Gates gates;
  gates.write("history.json", {{"entries", {{{"reason", "first"}, {"digest", "0"}}}}});
  CHECK_THROWS_WITH(read_gate(gates.gate), ContainsSubstring("scripts/accept-predictions"));
  gates.write("history.json", {{"entries", Json::array()}});
  CHECK_THROWS_WITH(read_gate(gates.gate), ContainsSubstring("no baseline was accepted"));
}

TEST_CASE("a limit that is looser than it was is refused") {
  const Gates gates;
  const auto accepted_with = [&](const Json& limits) {
    Json entry = {{"reason", "first"},
                  {"digest", digest(gates.folder.path() / "predictions.jsonl")},
                  {"limits", {{"attention", limits}}}};
    gates.write("history.json", {{"entries", Json::array({entry})}});
  };
  accepted_with({{"median_error", 0.08}, {"kendall_tau", 0.6}, {"coverage", {0.6, 0.95}}});
  CHECK_NOTHROW(read_gate(gates.gate));
  accepted_with({{"median_error", 0.07}});
  CHECK_THROWS_WITH(read_gate(gates.gate),
                    ContainsSubstring("median_error was 0.07 and is 0.08 now: limits may only"));
  accepted_with({{"kendall_tau", 0.8}});
  CHECK_THROWS_WITH(read_gate(gates.gate), ContainsSubstring("kendall_tau was 0.8"));
  accepted_with({{"mape", 0.2}});
  CHECK_THROWS_WITH(read_gate(gates.gate), ContainsSubstring("mape was 0.2 and is none now"));
}

TEST_CASE("wrong gates are refused by key") {
  const Gates gates;
  gates.write("gate.json", {{"format", "sp-plan/gate"},
                            {"format_version", "1.0"},
                            {"accuracy", {{"atention", {{"mape", 0.1}}}}}});
  CHECK_THROWS_WITH(read_gate(gates.gate), ContainsSubstring("did you mean 'attention'?"));
  gates.write("gate.json", {{"format", "sp-plan/gate"},
                            {"format_version", "1.0"},
                            {"accuracy", {{"attention", {{"mape", -0.1}}}}}});
  CHECK_THROWS_WITH(read_gate(gates.gate), ContainsSubstring("mape"));
}
