// Scores of predictions against published measurements (reports/corpus/README.md).
//
//   error       cost(predicted) / cost(measured) - 1, cost = time, or 1 / rate
//   regret      of a choice: measured cost of the plan predicted cheapest / best measured - 1; 0 if
//               that plan lies within noise of the best; plans predicted equal count with their
//               mean; plans predicted out of memory are not picked
//   order       mean of Kendall's tau-b over the choices
//   coverage    share of the measured values that lie inside their prediction's interval
//   oom         share of all points, refused ones included, that were told right to run out of
//   memory
//               or not: it says little where no source speaks of memory, so counts stand beside it
//
// The mean over files weighs each file alike.
#pragma once

#include "regress/corpus.hpp"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spp::regress {

/// What the model says of one point, in the point's metric.
struct PointPrediction {
  std::optional<double> predicted;
  std::optional<double> low, high;  // 80 % interval
  bool oom = false;
  std::string reason;  // why there is no prediction
};

/// Figures of one file, or means over files; what does not apply is missing.
struct Score {
  std::int64_t points = 0, n = 0, missing = 0, suspect = 0, choices = 0, oom_picked = 0;
  /// Out of memory: points of which a source says whether they ran out, which did, which of those
  /// were told to, and which were told to but ran.
  std::int64_t oom_stated = 0, oom_measured = 0, oom_told = 0, oom_false = 0;
  std::optional<double> median, mape, bias, regret_mean, regret_max, tau, oom_accuracy;
  std::optional<double> memory_error, memory_bias, coverage;
};

/// `predictions` is parallel to file.points.
Score score(const CorpusFile& file, std::span<const PointPrediction> predictions);

/// Counts are added, figures averaged over the files that have them; regret_max is the largest.
Score over(std::span<const Score> files);

/// Kendall's tau-b; nothing with fewer than two points or when all of `b` are tied, 0 if only `a`
/// is.
std::optional<double> kendall_tau_b(std::span<const double> a, std::span<const double> b);

}  // namespace spp::regress
