#include "regress/score.hpp"

#include "base/error.hpp"
#include "base/median.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace spp::regress {
namespace {

std::optional<double> mean(const std::vector<double>& x) {
  return x.empty() ? std::nullopt
                   : std::optional(std::accumulate(x.begin(), x.end(), 0.0) /
                                   static_cast<double>(x.size()));
}

std::optional<double> mean_magnitude(std::vector<double> x) {
  std::ranges::transform(x, x.begin(), [](double v) { return std::abs(v); });
  return mean(x);
}

std::optional<double> median_magnitude(std::vector<double> x) {
  if (x.empty()) {
    return std::nullopt;
  }
  std::ranges::transform(x, x.begin(), [](double v) { return std::abs(v); });
  return median_of(std::move(x));
}

/// A measured plan of a choice beside its prediction.
struct Entry {
  const Point* point = nullptr;
  std::optional<double> predicted;  // cost
  bool oom = false;                 // predicted
  [[nodiscard]] std::optional<double> measured() const {
    return point->value ? std::optional(cost(point->metric, *point->value)) : std::nullopt;
  }
};

struct ChoiceScore {
  bool picked_oom = false;
  std::optional<double> regret, tau;
};

ChoiceScore score_choice(const std::vector<Entry>& entries) {
  ChoiceScore result;
  std::vector<const Entry*> candidates;
  double best = INFINITY;
  for (const Entry& e : entries) {
    if (e.predicted && !e.oom) {
      candidates.push_back(&e);
    }
    best = std::min(best, e.measured().value_or(INFINITY));
  }
  if (candidates.empty() || std::isinf(best) || entries.size() < 2) {
    return result;
  }
  double low = INFINITY;
  for (const Entry* e : candidates) {
    low = std::min(low, *e->predicted);
  }
  std::vector<double> regrets;
  for (const Entry* e : candidates) {
    if (*e->predicted > low * (1 + 1e-9)) {
      continue;
    }
    if (const auto measured = e->measured()) {
      const double regret = *measured / best - 1;
      regrets.push_back(regret <= e->point->noise + 1e-12 ? 0 : regret);
    } else {
      result.picked_oom = true;
    }
  }
  result.regret = mean(regrets);
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const Entry& e : entries) {
    if (e.predicted && e.measured()) {
      predicted.push_back(*e.predicted);
      measured.push_back(*e.measured());
    }
  }
  result.tau = kendall_tau_b(predicted, measured);
  return result;
}

}  // namespace

std::optional<double> kendall_tau_b(std::span<const double> a, std::span<const double> b) {
  const auto sign = [](double x, double y) {
    if (std::abs(x - y) <= 1e-9 * std::max(std::abs(x), std::abs(y))) {
      return 0;
    }
    return x > y ? 1 : -1;
  };
  const std::size_t n = a.size();
  std::int64_t agree = 0;
  std::int64_t tied_a = 0;
  std::int64_t tied_b = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const int in_a = sign(a[i], a[j]);
      const int in_b = sign(b[i], b[j]);
      agree += in_a * in_b;
      tied_a += in_a == 0 ? 1 : 0;
      tied_b += in_b == 0 ? 1 : 0;
    }
  }
  const auto pairs = static_cast<std::int64_t>(n * (n - (n > 0 ? 1 : 0)) / 2);
  if (n < 2 || pairs == tied_b) {
    return std::nullopt;
  }
  if (pairs == tied_a) {
    return 0.0;
  }
  return static_cast<double>(agree) /
         std::sqrt(static_cast<double>(pairs - tied_a) * static_cast<double>(pairs - tied_b));
}

Score score(const CorpusFile& file, std::span<const PointPrediction> predictions) {
  ensure(file.points.size() == predictions.size(), "a prediction for every point");
  Score s;
  s.points = static_cast<std::int64_t>(file.points.size());
  std::vector<double> errors;
  std::vector<double> memory;
  std::vector<double> told;
  std::vector<double> inside;
  // Numbers of one metric are compared with each other.
  std::map<std::pair<std::string_view, Metric>, std::vector<Entry>> choices;
  for (std::size_t i = 0; i < file.points.size(); ++i) {
    const Point& p = file.points[i];
    const PointPrediction& said = predictions[i];
    if (!p.suspect.empty()) {
      ++s.suspect;
      continue;
    }
    const bool ran_out = p.oom.value_or(false);
    told.push_back(said.oom == ran_out ? 1 : 0);
    s.oom_stated += p.oom ? 1 : 0;
    s.oom_measured += ran_out ? 1 : 0;
    s.oom_told += said.oom && ran_out ? 1 : 0;
    s.oom_false += said.oom && !ran_out ? 1 : 0;
    const bool usable = said.predicted && *said.predicted > 0;
    if (!p.choice.empty() && !p.beyond && (p.value || p.oom.value_or(false))) {
      choices[{p.choice, p.metric}].push_back(
          {.point = &p,
           .predicted = usable ? std::optional(cost(p.metric, *said.predicted)) : std::nullopt,
           .oom = said.oom});
    }
    if (!p.value) {
      continue;
    }
    if (!usable) {
      ++s.missing;
      continue;
    }
    if (p.relative) {
      continue;
    }
    const double error = cost(p.metric, *said.predicted) / cost(p.metric, *p.value) - 1;
    (p.metric == Metric::memory ? memory : errors).push_back(error);
    if (p.metric != Metric::memory && said.low && said.high) {
      inside.push_back(*said.low <= *p.value && *p.value <= *said.high ? 1 : 0);
    }
  }
  std::vector<double> regrets;
  std::vector<double> taus;
  for (const auto& [of, entries] : choices) {
    const ChoiceScore choice = score_choice(entries);
    s.oom_picked += choice.picked_oom ? 1 : 0;
    if (choice.regret) {
      regrets.push_back(*choice.regret);
    }
    if (choice.tau) {
      taus.push_back(*choice.tau);
    }
  }
  s.n = static_cast<std::int64_t>(errors.size());
  s.median = median_magnitude(errors);
  s.mape = mean_magnitude(errors);
  s.bias = mean(errors);
  s.choices = static_cast<std::int64_t>(regrets.size());
  s.regret_mean = mean(regrets);
  if (!regrets.empty()) {
    s.regret_max = std::ranges::max(regrets);
  }
  s.tau = mean(taus);
  s.oom_accuracy = mean(told);
  s.memory_error = mean_magnitude(memory);
  s.memory_bias = mean(memory);
  s.coverage = mean(inside);
  return s;
}

Score over(std::span<const Score> files) {
  Score all;
  const auto average = [&](std::optional<double> Score::* figure) {
    std::vector<double> values;
    for (const Score& s : files) {
      if (s.*figure) {
        values.push_back(*(s.*figure));
      }
    }
    return mean(values);
  };
  for (const Score& s : files) {
    all.points += s.points;
    all.n += s.n;
    all.missing += s.missing;
    all.suspect += s.suspect;
    all.choices += s.choices;
    all.oom_picked += s.oom_picked;
    all.oom_stated += s.oom_stated;
    all.oom_measured += s.oom_measured;
    all.oom_told += s.oom_told;
    all.oom_false += s.oom_false;
    if (s.regret_max) {
      all.regret_max = std::max(all.regret_max.value_or(0), *s.regret_max);
    }
  }
  all.median = average(&Score::median);
  all.mape = average(&Score::mape);
  all.bias = average(&Score::bias);
  all.regret_mean = average(&Score::regret_mean);
  all.tau = average(&Score::tau);
  all.oom_accuracy = average(&Score::oom_accuracy);
  all.memory_error = average(&Score::memory_error);
  all.memory_bias = average(&Score::memory_bias);
  all.coverage = average(&Score::coverage);
  return all;
}

}  // namespace spp::regress
