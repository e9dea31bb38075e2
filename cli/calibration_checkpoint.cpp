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
  for (const std::string& suite : suites_) {
    if (!samples_.contains(suite)) {
      missing.push_back(suite);
    }
  }
  return missing;
}

void Checkpoint::add(const std::string& suite, const std::vector<Series>& series) {
  samples_[suite] = series;
  saving_ = saving_ && save();
}

SamplesBySuite Checkpoint::samples() const {
  SamplesBySuite asked;
  for (const std::string& suite : suites_) {
    if (const auto list = samples_.find(suite); list != samples_.end()) {
      asked.insert(*list);
    }
  }
  return asked;
}

void Checkpoint::end() {
  for (const std::string& suite : suites_) {
    samples_.erase(suite);
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
    json["suites"][suite] = samples_json(list);
  }
  try {
    write_file(file_, to_text(json));
  } catch (const InputError& e) {
    complain(fmt::format("warning: {}; measuring goes on, but could not be resumed", e.what()));
    return false;
  }
  return true;
}

void Checkpoint::load() {
  std::error_code ec;
  if (!std::filesystem::exists(file_, ec)) {
    return;
  }
  const Json json = read_json(file_);
  const JsonView view(json, file_);
  expect_format(view, "sp-plan/calibration");
  if (const auto others = differences(view.at("key").value()); !others.empty()) {
    complain(fmt::format("warning: {} is of another calibration ({} differ) and is not used", file_,
                         fmt::join(others, ", ")));
    return;
  }
  const JsonView suites = view.at("suites");
  std::vector<std::string> found;
  for (const std::string_view suite : calibration_suites) {
    if (const auto list = suites.find(suite)) {
      std::vector<Series>& samples = samples_[std::string(suite)];
      for (const JsonView& series : list->elements()) {
        samples.push_back(read_series(series));
      }
      if (std::ranges::find(suites_, suite) != suites_.end()) {
        found.emplace_back(suite);
      }
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
