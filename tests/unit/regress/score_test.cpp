#include "regress/score.hpp"

#include "tests/support/catch.hpp"

#include <cmath>

using namespace spp;
using namespace spp::regress;

namespace {

using Values = std::vector<double>;

Point point(std::string choice, Metric metric, std::optional<double> value) {
  Point p;
  p.choice = std::move(choice);
  p.metric = metric;
  p.value = value;
  if (!value) {
    p.oom = true;
  }
  p.noise = 0.03;
  return p;
}

PointPrediction says(std::optional<double> value, bool oom = false) {
  PointPrediction p;
  p.predicted = value;
  p.oom = oom;
  return p;
}

/// Two choices of times and rates, memory, an out-of-memory point, and points that do not count.
CorpusFile example() {
  CorpusFile file;
  file.points = {point("a", Metric::time, 1.0),          point("a", Metric::time, 2.0),
                 point("a", Metric::time, 1.02),         point("b", Metric::tokens_per_s, 100.0),
                 point("b", Metric::tokens_per_s, 50.0), point("", Metric::memory, 100.0),
                 point("c", Metric::time, {}),           point("c", Metric::time, 4.0),
                 point("", Metric::time, 1.0),           point("a", Metric::time, 0.1),
                 point("r", Metric::time, 1.0),          point("r", Metric::time, 3.0)};
  file.points[8].suspect = "a slip";
  file.points[9].beyond = true;
  file.points[10].relative = file.points[11].relative = true;
  return file;
}

}  // namespace

TEST_CASE("Kendall's tau-b") {
  CHECK(*kendall_tau_b(Values{1, 2, 3}, Values{1, 2, 3}) == Approx(1));
  CHECK(*kendall_tau_b(Values{1, 1, 2}, Values{1, 2, 3}) == Approx(2 / std::sqrt(6)));
  CHECK(*kendall_tau_b(Values{1, 1}, Values{1, 2}) == 0);
  CHECK_FALSE(kendall_tau_b(Values{1, 2}, Values{1, 1}));
  CHECK_FALSE(kendall_tau_b(Values{1}, Values{1}));
}

TEST_CASE("errors, regret and order of one file") {
  const std::vector<PointPrediction> predictions{says(2.0),  says(1.0),   says(3.0), says(200.0),
                                                 says(40.0), says(110.0), says(1.0), says(2.0),
                                                 says(9.0),  says(0.1),   says(5.0), says(4.0)};
  const Score s = score(example(), predictions);
  const Values errors{1, -0.5, 3 / 1.02 - 1, -0.5, 0.25, -0.5, 0};
  double sum = 0;
  double magnitude = 0;
  for (const double e : errors) {
    sum += e;
    magnitude += std::abs(e);
  }
  CHECK(s.n == 7);
  CHECK(*s.median == Approx(0.5));
  CHECK(*s.mape == Approx(magnitude / 7));
  CHECK(*s.bias == Approx(sum / 7));
  // a picks 2.0 against 1.0, b is right, c picks the plan that ran out of memory, r picks 3 of 1
  CHECK(s.choices == 3);
  CHECK(*s.regret_mean == Approx(1.0));
  CHECK(*s.regret_max == Approx(2.0));
  CHECK(s.oom_picked == 1);
  CHECK(*s.memory_error == Approx(0.1));
  CHECK(*s.memory_bias == Approx(0.1));
  CHECK(s.suspect == 1);
  CHECK(*s.oom_accuracy == Approx(10.0 / 11));
}

TEST_CASE("noise, ties and plans that are told to run out of memory") {
  std::vector<PointPrediction> predictions(12);
  predictions[0] = says(1.0);
  predictions[1] = says(1.5);
  predictions[2] = says(0.9);  // within the noise of the best
  predictions[3] = says(10.0);
  predictions[4] = says(10.0);  // predicted equal: the mean of 0 and 1
  predictions[5] = says(100.0);
  predictions[6] = says({}, true);
  predictions[7] = says(4.0);
  const Score s = score(example(), predictions);
  CHECK(*s.regret_mean == Approx(0.5 / 3));
  CHECK(s.oom_picked == 0);
  CHECK(s.missing == 3);
  CHECK(s.oom_stated == 1);
  CHECK(s.oom_measured == 1);
  CHECK(s.oom_told == 1);
  CHECK(s.oom_false == 0);
  predictions[6].oom = false;
  predictions[7].oom = true;
  predictions[8].oom = true;  // doubtful
  const Score wrong = score(example(), predictions);
  CHECK(wrong.oom_told == 0);
  CHECK(wrong.oom_false == 1);
  CHECK(over(std::vector{s, wrong}).oom_measured == 2);
}

TEST_CASE("plans of a choice are compared metric by metric") {
  CorpusFile file;
  file.points = {point("a", Metric::time, 1.0), point("a", Metric::time, 2.0),
                 point("a", Metric::tokens_per_s, 10.0), point("a", Metric::tokens_per_s, 5.0)};
  const std::vector<PointPrediction> predictions{says(1.0), says(2.0), says(10.0), says(5.0)};
  const Score s = score(file, predictions);
  CHECK(s.choices == 2);
  CHECK(*s.regret_mean == 0);
  CHECK(*s.tau == 1);
}

TEST_CASE("the share of measured values inside their interval") {
  CorpusFile file;
  file.points = {point("", Metric::time, 1.0), point("", Metric::time, 2.0)};
  std::vector<PointPrediction> predictions{says(1.1), says(1.1)};
  for (PointPrediction& p : predictions) {
    p.low = 0.9;
    p.high = 1.3;
  }
  CHECK(*score(file, predictions).coverage == 0.5);
}

TEST_CASE("each file weighs alike") {
  Score a;
  a.n = 1000;
  a.median = 0.1;
  a.regret_max = 0.3;
  Score b;
  b.n = 10;
  b.median = 0.3;
  b.regret_max = 0.1;
  Score c;  // nothing of it could be predicted
  c.missing = 5;
  const Score all = over(std::vector{a, b, c});
  CHECK(all.n == 1010);
  CHECK(all.missing == 5);
  CHECK(*all.median == Approx(0.2));
  CHECK(*all.regret_max == 0.3);
  CHECK_FALSE(all.tau);
}
