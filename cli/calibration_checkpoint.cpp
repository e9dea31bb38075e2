#include "cli/calibration_checkpoint.hpp"

#include "base/document.hpp"
#include "base/error.hpp"
#include "cli/output.hpp"
#include "samples/calibration.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace spp::cli {

std::vector<std::string> Checkpoint::begin(Json key) {
  key_ = std::move(key);
  load();
  std::vector<std::string> missing;
  for (const SuiteBudget& s : suites_) {
    if (!samples_.contains(s.suite)) {
      missing.push_back(s.suite);
    }
  }
  return missing;
}

void Checkpoint::add(const std::string& suite, const std::vector<Series>& series) {
  samples_[suite] = series;
  budgets_[suite] = asked(suite)->budget;
  saving_ = saving_ && save();
}

SamplesBySuite Checkpoint::samples() const {
  SamplesBySuite of_asked;
  for (const SuiteBudget& s : suites_) {
    if (const auto list = samples_.find(s.suite); list != samples_.end()) {
      of_asked.insert(*list);
    }
  }
  return of_asked;
}

void Checkpoint::end() {
  for (const SuiteBudget& s : suites_) {
    samples_.erase(s.suite);
  }
  if (!samples_.empty()) {
    saving_ = saving_ && save();
    return;
  }
  std::error_code ec;
  std::filesystem::remove(file_, ec);
}

bool Checkpoint::save() const {
  Json json = document("calibration");
  json["date"] = utc("%Y-%m-%d %H:%M:%S UTC");
  json["key"] = key_;
  json["suites"] = Json::object();
  for (const auto& [suite, list] : samples_) {
    json["suites"][suite] = {{"budget_s", budgets_.at(suite).count()},
                             {"samples", samples_json(list)}};
  }
  try {
    write_file(file_, to_text(json));
  } catch (const InputError& e) {
    complain(fmt::format("warning: {}; measuring goes on, but could not be resumed", e.what()));
    return false;
  }
  return true;
}

const SuiteBudget* Checkpoint::asked(std::string_view suite) const {
  const auto at = std::ranges::find(suites_, suite, &SuiteBudget::suite);
  return at != suites_.end() ? &*at : nullptr;
}

void Checkpoint::load() {
  std::error_code ec;
  if (!std::filesystem::exists(file_, ec)) {
    return;
  }
  try {
    take_samples();
  } catch (const InputError& e) {
    throw InputError(e.where(),
                     fmt::format("{}; it is what an interrupted calibration left: delete it, or "
                                 "name another -o",
                                 e.message()));
  }
}

void Checkpoint::take_samples() {
  const Json json = read_json(file_);
  const JsonView view(json, file_);
  expect_format(view, "sp-plan/calibration");
  if (const auto others = differences(view.at("key").value()); !others.empty()) {
    complain(fmt::format(
        "warning: {} is of another calibration ({} differ) and is not used, but replaced", file_,
        fmt::join(others, ", ")));
    return;
  }
  const JsonView suites = view.at("suites");
  std::vector<std::string> found;
  for (const std::string_view suite : calibration_suites) {
    const auto left = suites.find(suite);
    if (!left) {
      continue;
    }
    const Seconds budget(left->at("budget_s").number());
    const SuiteBudget* const now = asked(suite);
    constexpr double rounding = 1e-9;
    if (now != nullptr && budget < now->budget * (1 - rounding)) {
      complain(
          fmt::format("warning: {}: {} had {:.3g} s and has {:.3g} s now: it is measured again",
                      file_, suite, budget.count(), now->budget.count()));
      continue;
    }
    std::vector<Series>& samples = samples_[std::string(suite)];
    for (const JsonView& series : left->at("samples").elements()) {
      samples.push_back(read_series(series));
    }
    budgets_[std::string(suite)] = budget;
    if (now != nullptr) {
      found.emplace_back(suite);
    }
  }
  if (!found.empty()) {
    complain(fmt::format("goes on from {}, measured here until {}: {}", file_,
                         view.at("date").string(), fmt::join(found, ", ")));
  }
}

std::vector<std::string> Checkpoint::differences(const Json& other) const {
  std::vector<std::string> names;
  const auto differs = [&](const Json& a, const Json& b) {
    for (const auto& [name, value] : a.items()) {
      if (!b.is_object() || !b.contains(name) || b.at(name) != value) {
        if (std::ranges::find(names, name) == names.end()) {
          names.push_back(name);
        }
      }
    }
  };
  differs(key_, other);
  if (other.is_object()) {
    differs(other, key_);
  }
  return names;
}

}  // namespace spp::cli
