// What an interrupted calibration has left for a next start.
#pragma once

#include "base/json.hpp"
#include "base/units.hpp"
#include "samples/series.hpp"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

using SamplesBySuite = std::map<std::string, std::vector<Series>>;

/// A suite that is asked for, and how long it may measure.
struct SuiteBudget {
  std::string suite;
  Seconds budget{};
};

/// What is measured, and what of it lies in a file for a next start.
class Checkpoint {
 public:
  Checkpoint(std::string file, std::vector<SuiteBudget> suites)
      : file_(std::move(file)), suites_(std::move(suites)) {}

  /// Of the suites that are asked for.
  [[nodiscard]] SamplesBySuite samples() const;
  /// Whether a next start would find any.
  [[nodiscard]] bool keeps_any() const { return saving_ && !samples_.empty(); }

  /// Takes what an earlier start has left, and tells what it takes; the suites that are missing.
  /// `key`: what samples depend on; those of another one are not used, nor are those of a smaller
  /// budget, which has left out what is to be measured.
  std::vector<std::string> begin(Json key);
  void add(const std::string& suite, const std::vector<Series>& series);
  /// All is done: what is left is other suites', which an earlier start was asked for.
  void end();

 private:
  /// What cannot be written only costs the chance to go on later: it ends no measurement. False,
  /// and a warning, then.
  [[nodiscard]] bool save() const;
  void load();
  void take_samples();
  /// Of a suite that is asked for; nullptr: it is not.
  [[nodiscard]] const SuiteBudget* asked(std::string_view suite) const;
  /// Names of what the samples of `other` depend on otherwise than ours.
  [[nodiscard]] std::vector<std::string> differences(const Json& other) const;

  std::string file_;
  std::vector<SuiteBudget> suites_;
  Json key_;
  SamplesBySuite samples_;                  // of all suites that have any
  std::map<std::string, Seconds> budgets_;  // in which these were measured
  bool saving_ = true;
};

}  // namespace spp::cli
