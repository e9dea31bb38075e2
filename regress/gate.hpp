// Gates: limits that figures must keep (accuracy), and predictions that must not move unnoticed
// (drift). Both are data: reports/gates/gate.json.
#pragma once

#include "regress/score.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace spp::regress {

/// Limits of one family of files ("attention", "kernel", …, "overall"). Missing: no limit.
struct Limits {
  std::optional<double> median_error, mape, bias, regret_mean,
      regret_max;                                       // at most (bias: |bias|)
  std::optional<double> kendall_tau;                    // at least
  std::optional<double> coverage_least, coverage_most;  // of the 80 % intervals
};

struct Gate {
  std::map<std::string, Limits> accuracy;  // by family
  std::filesystem::path baseline;          // predictions that were accepted; "": no drift gate
  double tolerance = 1e-4;                 // relative
};

/// InputError names file and key; also if it could not fail (nothing is limited, or a limit is
/// none), if the baseline is not the one that was accepted last (its history gives the reason of
/// every change), or a limit is looser than one in its history.
Gate read_gate(const std::filesystem::path& file);

/// One line of a predictions file, as text without a newline.
std::string prediction_line(const std::string& file, std::int64_t index,
                            const PointPrediction& prediction);

/// Predictions by file and index. InputError names file and line.
std::map<std::string, std::map<std::int64_t, PointPrediction>> read_predictions(
    const std::filesystem::path& file);

/// What of the corpus was predicted: a gate judges nothing else.
struct Asked {
  std::string family;     // "": all
  bool one_file = false;  // no family's figures are complete then
};

/// Whether a gate has anything to judge of what was asked for.
bool judges(const Gate& gate, const Asked& asked);

/// What failed, one sentence each. `figures` by family.
std::vector<std::string> failures(const Gate& gate, const std::map<std::string, Score>& figures,
                                  const Asked& asked = {});

/// Predictions, or ends of their intervals, that moved further than the gate tolerates, appeared or
/// went, against its baseline: one sentence a file, with the worst point. Whole files can go where
/// all were asked for.
std::vector<std::string> drift(const Gate& gate,
                               const std::map<std::string, std::vector<PointPrediction>>& now,
                               const Asked& asked = {});

/// FNV-1a of a file's bytes, as 16 hexadecimal digits: what a history entry names its baseline by.
std::string digest(const std::filesystem::path& file);

}  // namespace spp::regress
