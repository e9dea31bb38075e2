#include "base/fit.hpp"

#include "base/error.hpp"
#include "base/median.hpp"

#include <Eigen/Dense>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace spp {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

/// argmin |A c - y|^2 over c >= 0, given A'A and A'y. Columns are taken in while they help, and let
/// go when they would become negative.
class ActiveSet {
 public:
  ActiveSet(const MatrixXd& gram, const VectorXd& right)
      : gram_(gram), right_(right), solution_(VectorXd::Zero(right.size())) {}

  VectorXd solve() {
    const Index n = right_.size();
    for (Index step = 0; step < 10 * n; ++step) {
      const VectorXd gradient = right_ - gram_ * solution_;
      Index best = -1;
      for (Index i = 0; i < n; ++i) {
        const bool in = std::ranges::find(in_, i) != in_.end();
        if (!in && gradient(i) > 1e-12 * std::abs(right_(i)) &&
            (best < 0 || gradient(i) > gradient(best))) {
          best = i;
        }
      }
      if (best < 0) {
        break;
      }
      in_.push_back(best);
      move_to_optimum();
    }
    return solution_;
  }

 private:
  /// Least squares over the columns that are in.
  [[nodiscard]] VectorXd free_optimum() const {
    const auto k = static_cast<Index>(in_.size());
    MatrixXd part(k, k);
    VectorXd y(k);
    for (Index i = 0; i < k; ++i) {
      y(i) = right_(in_[static_cast<std::size_t>(i)]);
      for (Index j = 0; j < k; ++j) {
        part(i, j) = gram_(in_[static_cast<std::size_t>(i)], in_[static_cast<std::size_t>(j)]);
      }
    }
    return part.completeOrthogonalDecomposition().solve(y);
  }

  /// Goes towards the optimum of the columns that are in until one of them becomes 0, lets that one
  /// go, and so on.
  void move_to_optimum() {
    while (!in_.empty()) {
      const VectorXd wanted = free_optimum();
      double share = 1;  // of the way that keeps all of them from falling below 0
      for (Index i = 0; i < wanted.size(); ++i) {
        const double now = solution_(in_[static_cast<std::size_t>(i)]);
        if (wanted(i) <= 0) {
          share = std::min(share, now > 0 ? now / (now - wanted(i)) : 0.0);
        }
      }
      for (Index i = 0; i < wanted.size(); ++i) {
        double& value = solution_(in_[static_cast<std::size_t>(i)]);
        value = wanted(i) <= 0 && value <= 0 ? 0 : value + share * (wanted(i) - value);
      }
      if (share == 1) {
        return;
      }
      std::erase_if(in_, [this](Index i) {
        const bool gone = solution_(i) <= 1e-14;
        solution_(i) = gone ? 0 : solution_(i);
        return gone;
      });
    }
  }

  const MatrixXd& gram_;
  const VectorXd& right_;
  VectorXd solution_;
  std::vector<Index> in_;
};

std::vector<double> magnitudes(const VectorXd& residuals) {
  std::vector<double> values(static_cast<std::size_t>(residuals.size()));
  for (Index i = 0; i < residuals.size(); ++i) {
    values[static_cast<std::size_t>(i)] = std::abs(residuals(i));
  }
  return values;
}

/// Coefficients of rows . c = 1, robustly; the rows are already divided by their times.
struct Relative {
  VectorXd coefficients;
  std::vector<double> residuals;  // |rows . c - 1|
};

Relative fit_relative(MatrixXd rows) {
  const VectorXd scale = rows.cwiseAbs().colwise().maxCoeff().cwiseMax(1e-300);
  rows = rows * scale.cwiseInverse().asDiagonal();
  VectorXd weights = VectorXd::Ones(rows.rows());
  Relative fit;
  constexpr int most_rounds = 50;
  for (int round = 0; round < most_rounds; ++round) {
    const MatrixXd weighted = weights.asDiagonal() * rows;
    const MatrixXd gram = rows.transpose() * weighted;
    const VectorXd right = weighted.transpose() * VectorXd::Ones(rows.rows());
    const VectorXd before = fit.coefficients;
    fit.coefficients = ActiveSet(gram, right).solve();
    fit.residuals = magnitudes(rows * fit.coefficients - VectorXd::Ones(rows.rows()));
    if (round > 0 && (fit.coefficients - before).norm() <= 1e-10 * before.norm()) {
      break;
    }
    const double knee = std::max(1e-9, 1.345 * 1.4826 * median_of(fit.residuals));
    for (Index i = 0; i < weights.size(); ++i) {
      const double r = fit.residuals[static_cast<std::size_t>(i)];
      weights(i) = r <= knee ? 1 : knee / r;
    }
  }
  fit.coefficients = fit.coefficients.cwiseQuotient(scale);
  return fit;
}

Relative fit_lines(std::span<const Sample> samples) {
  MatrixXd rows(static_cast<Index>(samples.size()), 2);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    rows(static_cast<Index>(i), 0) = 1 / samples[i].seconds;
    rows(static_cast<Index>(i), 1) = samples[i].x / samples[i].seconds;
  }
  return fit_relative(std::move(rows));
}

LineFit line_of(std::span<const Sample> samples) {
  const Relative fit = fit_lines(samples);
  return {.latency = fit.coefficients(0),
          .per_unit = fit.coefficients(1),
          .spread = median_of(fit.residuals)};
}

void expect_samples(std::span<const Sample> samples) {
  ensure(!samples.empty(), "a fit without samples");
  for (const Sample& s : samples) {
    ensure(s.seconds > 0 && s.x >= 0 && std::isfinite(s.seconds) && std::isfinite(s.x),
           "a sample without a positive time, or of negative size");
  }
}

/// Cutting sorted samples into segments; a segment is a range of different sizes.
class Cutting {
 public:
  Cutting(std::vector<Sample> sorted, const SegmentOptions& options)
      : samples_(std::move(sorted)), options_(options) {
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      if (i == 0 || samples_[i].x != samples_[i - 1].x) {
        starts_.push_back(i);
      }
    }
    starts_.push_back(samples_.size());
    const std::size_t n = sizes();
    absolute_.assign(n * (n + 1), -1);
  }

  /// Numbers of sizes where segments end, for the least cost.
  std::vector<std::size_t> best() {
    const double log_samples = std::log(static_cast<double>(samples_.size()));
    const std::vector<std::size_t> finest = cut(1, 0);
    std::vector<double> residuals;
    for (std::size_t i = 0, from = 0; i < finest.size(); from = finest[i++]) {
      const Relative fit = fit_lines(range(from, finest[i]));
      residuals.insert(residuals.end(), fit.residuals.begin(), fit.residuals.end());
    }
    // The median of |r| is b ln 2. Clocks and caches leave half a percent at the least.
    const double b = std::max(0.005, median_of(residuals) / std::numbers::ln2);
    return cut(b, 1.5 * log_samples);
  }

  [[nodiscard]] std::span<const Sample> range(std::size_t from, std::size_t to) const {
    return std::span(samples_).subspan(starts_[from], starts_[to] - starts_[from]);
  }
  [[nodiscard]] std::size_t sizes() const { return starts_.size() - 1; }

 private:
  /// Sum of |r| of a line through the sizes [from, to).
  double absolute(std::size_t from, std::size_t to) {
    double& known = absolute_[from * (sizes() + 1) + to];
    if (known < 0) {
      known = 0;
      for (const double r : fit_lines(range(from, to)).residuals) {
        known += r;
      }
    }
    return known;
  }

  std::vector<std::size_t> cut(double b, double penalty) {
    const std::size_t n = sizes();
    const auto most = static_cast<std::size_t>(std::max(1, options_.most));
    const auto least = std::min(n, static_cast<std::size_t>(std::max(1, options_.least_sizes)));
    constexpr double never = std::numeric_limits<double>::infinity();
    // cost[k][end]: of the first `end` sizes in k segments; from[k][end]: where the last begins
    std::vector cost(most + 1, std::vector<double>(n + 1, never));
    std::vector from(most + 1, std::vector<std::size_t>(n + 1, 0));
    cost[0][0] = 0;
    for (std::size_t k = 1; k <= most; ++k) {
      for (std::size_t end = least; end <= n; ++end) {
        for (std::size_t begin = 0; begin + least <= end; ++begin) {
          if (cost[k - 1][begin] == never) {
            continue;
          }
          const double c = cost[k - 1][begin] + absolute(begin, end) / b + penalty;
          if (c < cost[k][end]) {
            cost[k][end] = c;
            from[k][end] = begin;
          }
        }
      }
    }
    std::size_t k = 1;
    for (std::size_t i = 2; i <= most; ++i) {
      k = cost[i][n] < cost[k][n] ? i : k;
    }
    std::vector<std::size_t> ends;
    for (std::size_t end = n; k > 0; end = from[k--][end]) {
      ends.push_back(end);
    }
    std::ranges::reverse(ends);
    return ends;
  }

  std::vector<Sample> samples_;
  SegmentOptions options_;
  std::vector<std::size_t> starts_;  // of each size in samples_, and their end
  std::vector<double> absolute_;     // by from and to; -1: not known yet
};

/// Where a segment ends whose last size is `last`, before the next one's `first`.
double border(const LineFit& left, const LineFit& right, double last, double first) {
  const double slopes = left.per_unit - right.per_unit;
  const double meet = slopes != 0 ? (right.latency - left.latency) / slopes : -1;
  if (meet >= last && meet <= first) {
    return meet;
  }
  return last > 0 ? std::sqrt(last * first) : first / 2;
}

}  // namespace

LinearFit fit_nonnegative(std::span<const Observation> observations) {
  ensure(!observations.empty() && !observations.front().x.empty(), "a fit without observations");
  const std::size_t columns = observations.front().x.size();
  MatrixXd rows(static_cast<Index>(observations.size()), static_cast<Index>(columns));
  for (std::size_t i = 0; i < observations.size(); ++i) {
    const Observation& o = observations[i];
    ensure(o.x.size() == columns, "observations of different length");
    ensure(o.seconds > 0 && std::isfinite(o.seconds), "an observation without a positive time");
    for (std::size_t j = 0; j < columns; ++j) {
      ensure(o.x[j] >= 0 && std::isfinite(o.x[j]), "an observation of something negative");
      rows(static_cast<Index>(i), static_cast<Index>(j)) = o.x[j] / o.seconds;
    }
  }
  const Relative fit = fit_relative(std::move(rows));
  return {.coefficients = {fit.coefficients.begin(), fit.coefficients.end()},
          .spread = median_of(fit.residuals)};
}

LineFit fit_line(std::span<const Sample> samples) {
  expect_samples(samples);
  return line_of(samples);
}

std::vector<LineSegment> fit_segments(std::span<const Sample> samples,
                                      const SegmentOptions& options) {
  expect_samples(samples);
  std::vector<Sample> sorted(samples.begin(), samples.end());
  std::ranges::stable_sort(sorted, {}, &Sample::x);
  Cutting cutting(std::move(sorted), options);
  std::vector<LineSegment> segments;
  std::size_t from = 0;
  for (const std::size_t end : cutting.best()) {
    const auto part = cutting.range(from, end);
    const LineFit line = line_of(part);
    if (!segments.empty()) {
      const double last = cutting.range(from - 1, from).front().x;
      segments.back().up_to = border(segments.back().line, line, last, part.front().x);
    }
    segments.push_back({.up_to = std::numeric_limits<double>::infinity(), .line = line});
    from = end;
  }
  return segments;
}

double seconds_at(std::span<const LineSegment> segments, double x) {
  double floor = 0;
  for (const LineSegment& s : segments) {
    if (x <= s.up_to) {
      return std::max(floor, s.line.at(x));
    }
    floor = std::max(floor, s.line.at(s.up_to));
  }
  return floor;
}

}  // namespace spp
