#include "regress/gate.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"
#include "regress/corpus_point.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace spp::regress {
namespace {

std::optional<double> limit(const JsonView& view, std::string_view key) {
  const auto value = view.find(key);
  if (!value) {
    return std::nullopt;
  }
  const double number = value->number();
  if (!(number >= 0)) {
    value->fail(fmt::format("{} is below 0; limits are fractions, such as 0.08", number));
  }
  return number;
}

Limits read_limits(const JsonView& view) {
  view.allow_only(
      {"median_error", "mape", "bias", "regret_mean", "regret_max", "kendall_tau", "coverage"});
  Limits l{.median_error = limit(view, "median_error"),
           .mape = limit(view, "mape"),
           .bias = limit(view, "bias"),
           .regret_mean = limit(view, "regret_mean"),
           .regret_max = limit(view, "regret_max"),
           .kendall_tau = limit(view, "kendall_tau")};
  if (const auto coverage = view.find("coverage")) {
    const auto ends = coverage->elements();
    if (ends.size() != 2 || !(ends[0].number() <= ends[1].number())) {
      coverage->fail("is no range; write [0.7, 0.9]");
    }
    l.coverage_least = ends[0].number();
    l.coverage_most = ends[1].number();
  }
  return l;
}

struct NamedLimit {
  std::string_view name;
  std::optional<double> Limits::* limit;
  bool at_most = true;
};
constexpr std::array<NamedLimit, 8> named_limits{
    {{"median_error", &Limits::median_error},
     {"mape", &Limits::mape},
     {"bias", &Limits::bias},
     {"regret_mean", &Limits::regret_mean},
     {"regret_max", &Limits::regret_max},
     {"kendall_tau", &Limits::kendall_tau, false},
     {"coverage (least)", &Limits::coverage_least, false},
     {"coverage (most)", &Limits::coverage_most}}};

/// Limits may only be tightened.
void expect_no_looser(const Gate& gate, const JsonView& past) {
  for (const auto& [family, view] : past.members()) {
    const Limits before = read_limits(view);
    const auto at = gate.accuracy.find(family);
    const Limits now = at == gate.accuracy.end() ? Limits() : at->second;
    for (const NamedLimit& named : named_limits) {
      const std::optional<double>& old = before.*named.limit;
      const std::optional<double>& limit = now.*named.limit;
      if (old && (!limit || (named.at_most ? *limit > *old : *limit < *old))) {
        view.fail(fmt::format("{} was {:.6g} and is {} now: limits may only be tightened",
                              named.name, *old, limit ? fmt::format("{:.6g}", *limit) : "none"));
      }
    }
  }
}

void expect_accepted(const Gate& gate, const JsonView& history) {
  const std::filesystem::path& baseline = gate.baseline;
  const auto entries = history.at("entries").elements();
  if (entries.empty()) {
    history.at("entries").fail("is empty: no baseline was accepted yet");
  }
  const JsonView& last = entries.back();
  if (last.at("reason").string().empty()) {
    last.at("reason").fail("is empty: say why the predictions moved");
  }
  if (const std::string now = digest(baseline); last.at("digest").string() != now) {
    last.at("digest").fail(
        fmt::format("'{}' is not that of {} ({}); accept predictions with "
                    "scripts/accept-predictions REASON",
                    last.at("digest").string(), baseline.string(), now));
  }
  for (const JsonView& entry : entries) {
    if (const auto limits = entry.find("limits")) {
      expect_no_looser(gate, *limits);
    }
  }
}

std::string percent(double fraction) { return fmt::format("{:.2f} %", 100 * fraction); }

struct Change {
  double by = 0;         // relative; infinite of a prediction that appeared or went
  bool flipped = false;  // out of memory or not
};

/// Of a prediction, nullptr where there was or is no such point.
Change change_of(const PointPrediction* was, const PointPrediction* is) {
  if (was == nullptr || is == nullptr) {
    return {.by = was == is ? 0 : INFINITY};
  }
  Change change{.flipped = was->oom != is->oom};
  if (was->predicted && is->predicted) {
    change.by = std::abs(*is->predicted / *was->predicted - 1);
  } else if (was->predicted || is->predicted) {
    change.by = INFINITY;
  }
  return change;
}

}  // namespace

std::string digest(const std::filesystem::path& file) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : read_text_file(file)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

Gate read_gate(const std::filesystem::path& file) {
  const Json document = read_json(file);
  const JsonView view(document, file.string());
  expect_format(view, "sp-plan/gate");
  view.allow_only({"format", "format_version", "accuracy", "drift", "note"});
  Gate gate;
  if (const auto accuracy = view.find("accuracy")) {
    for (const auto& [family, limits] : accuracy->members()) {
      if (family != "overall") {
        (void)parse_family(family, limits.where());
      }
      gate.accuracy.emplace(family, read_limits(limits));
    }
  }
  if (const auto drift = view.find("drift")) {
    drift->allow_only({"baseline", "tolerance", "history"});
    gate.baseline = file.parent_path() / drift->at("baseline").string();
    gate.tolerance = drift->at("tolerance").number();
    const std::filesystem::path history = file.parent_path() / drift->at("history").string();
    const Json accepted = read_json(history);
    expect_accepted(gate, JsonView(accepted, history.string()));
  }
  return gate;
}

std::string prediction_line(const std::string& file, std::int64_t index, const PointPrediction& p) {
  const auto number = [](const std::optional<double>& value) {
    return value ? Json(std::stod(fmt::format("{:.7g}", *value))) : Json();
  };
  Json line = {{"file", file},
               {"index", index},
               {"predicted", number(p.predicted)},
               {"oom", p.oom},
               {"reason", p.reason.empty() ? Json() : Json(p.reason)}};
  if (p.low && p.high) {
    line["interval"] = {number(p.low), number(p.high)};
  }
  return line.dump();
}

std::map<std::string, std::map<std::int64_t, PointPrediction>> read_predictions(
    const std::filesystem::path& file) {
  const std::string text = read_text_file(file);
  std::map<std::string, std::map<std::int64_t, PointPrediction>> all;
  int number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (line.empty()) {
      continue;
    }
    const std::string where = fmt::format("{}:{}", file.string(), number);
    const Json json = parse_json(line, where);
    const JsonView view(json, where);
    PointPrediction p;
    if (const auto predicted = view.find("predicted")) {
      p.predicted = predicted->number();
    }
    p.oom = view.at("oom").boolean();
    if (const auto reason = view.find("reason")) {
      p.reason = reason->string();
    }
    all[view.at("file").string()].insert_or_assign(view.at("index").integer(0, most_count),
                                                   std::move(p));
  }
  return all;
}

std::vector<std::string> failures(const Gate& gate, const std::map<std::string, Score>& figures,
                                  const Asked& asked) {
  std::vector<std::string> failed;
  for (const auto& [family, limits] : gate.accuracy) {
    if (asked.one_file || (!asked.family.empty() && family != asked.family)) {
      continue;
    }
    const auto at = figures.find(family);
    if (at == figures.end()) {
      failed.push_back(fmt::format("{}: there is no such data", family));
      continue;
    }
    const Score& s = at->second;
    const auto at_most = [&](std::string_view what, std::optional<double> value,
                             std::optional<double> limit) {
      if (limit && (!value || std::abs(*value) > *limit)) {
        failed.push_back(fmt::format("{}: {} is {}, at most {} is allowed", family, what,
                                     value ? percent(*value) : "missing", percent(*limit)));
      }
    };
    const auto at_least = [&](std::string_view what, std::optional<double> value,
                              std::optional<double> limit) {
      if (limit && (!value || *value < *limit)) {
        failed.push_back(fmt::format("{}: {} is {}, at least {:.2f} is demanded", family, what,
                                     value ? fmt::format("{:.2f}", *value) : "missing", *limit));
      }
    };
    at_most("median_error", s.median, limits.median_error);
    at_most("mape", s.mape, limits.mape);
    at_most("bias", s.bias, limits.bias);
    at_most("regret_mean", s.regret_mean, limits.regret_mean);
    at_most("regret_max", s.regret_max, limits.regret_max);
    at_least("kendall_tau", s.tau, limits.kendall_tau);
    at_least("coverage", s.coverage, limits.coverage_least);
    at_most("coverage", s.coverage, limits.coverage_most);
  }
  return failed;
}

std::vector<std::string> drift(const Gate& gate,
                               const std::map<std::string, std::vector<PointPrediction>>& now,
                               const Asked& asked) {
  std::vector<std::string> moved;
  if (gate.baseline.empty()) {
    return moved;
  }
  auto before = read_predictions(gate.baseline);
  for (const auto& [file, predictions] : now) {
    const auto& old = before[file];
    const std::int64_t known = old.empty() ? 0 : old.rbegin()->first + 1;
    const auto points = std::max(known, static_cast<std::int64_t>(predictions.size()));
    std::int64_t count = 0;
    double worst = 0;
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < points; ++i) {
      const auto was = old.find(i);
      const auto place = static_cast<std::size_t>(i);
      const Change change = change_of(was == old.end() ? nullptr : &was->second,
                                      place < predictions.size() ? &predictions[place] : nullptr);
      if (change.by > gate.tolerance || change.flipped) {
        ++count;
        if (change.by > worst || count == 1) {
          worst = change.by;
          at = i;
        }
      }
    }
    if (count > 0) {
      moved.push_back(fmt::format("{}: {} of {} predictions moved, points[{}] by {}", file, count,
                                  points, at,
                                  std::isfinite(worst) ? percent(worst) : "appearing or going"));
    }
  }
  if (asked.family.empty() && !asked.one_file) {
    for (const auto& [file, predictions] : before) {
      if (!now.contains(file)) {
        moved.push_back(fmt::format("{}: all {} predictions went", file, predictions.size()));
      }
    }
  }
  return moved;
}

}  // namespace spp::regress
