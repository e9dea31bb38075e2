#include "regress/gate.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/parse.hpp"
#include "regress/corpus_point.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace spp::regress {
namespace {

/// A limit's key and field, and what it can be at most.
struct NamedLimit {
  std::string_view name;
  std::optional<double> Limits::* limit;
  double most = 1;
  bool at_most = true;
};
constexpr std::array<NamedLimit, 6> single_limits{
    {{"median_error", &Limits::median_error},
     {"mape", &Limits::mape},
     {"bias", &Limits::bias},
     {"regret_mean", &Limits::regret_mean,
      10},  // the worst plan may take many times the best's time
     {"regret_max", &Limits::regret_max, 10},
     {"kendall_tau", &Limits::kendall_tau, 1, false}}};
constexpr std::array<NamedLimit, 2> coverage_ends{
    {{"coverage (least)", &Limits::coverage_least, 1, false},
     {"coverage (most)", &Limits::coverage_most}}};

Limits read_limits(const JsonView& view) {
  view.allow_only(
      {"median_error", "mape", "bias", "regret_mean", "regret_max", "kendall_tau", "coverage"});
  Limits l;
  bool any = false;
  for (const NamedLimit& named : single_limits) {
    if (const auto value = view.find(named.name)) {
      const double number = value->number();
      if (!(number >= 0 && number <= named.most)) {
        value->fail(fmt::format("{} is not from 0 to {}; limits are fractions, such as 0.08",
                                number, named.most));
      }
      l.*named.limit = number;
      any = true;
    }
  }
  if (const auto coverage = view.find("coverage")) {
    const auto ends = coverage->elements();
    const auto end = [&](std::size_t i) { return ends[i].number(0, 1); };
    if (ends.size() != 2 || !(end(0) <= end(1)) || (end(0) == 0 && end(1) == 1)) {
      coverage->fail("is no range within 0 to 1; write [0.7, 0.9]");
    }
    l.coverage_least = end(0);
    l.coverage_most = end(1);
    any = true;
  }
  if (!any) {
    view.fail("has no limit: it could not fail");
  }
  return l;
}

/// Limits may only be tightened.
void expect_no_looser(const Gate& gate, const JsonView& past) {
  for (const auto& [family, view] : past.members()) {
    const Limits before = read_limits(view);
    const auto at = gate.accuracy.find(family);
    const Limits now = at == gate.accuracy.end() ? Limits() : at->second;
    const auto compare = [&](const NamedLimit& named) {
      const std::optional<double>& old = before.*named.limit;
      const std::optional<double>& limit = now.*named.limit;
      if (old && (!limit || (named.at_most ? *limit > *old : *limit < *old))) {
        view.fail(fmt::format("{} was {:.6g} and is {} now: limits may only be tightened",
                              named.name, *old, limit ? fmt::format("{:.6g}", *limit) : "none"));
      }
    };
    std::ranges::for_each(single_limits, compare);
    std::ranges::for_each(coverage_ends, compare);
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
  double by = 0;         // relative; infinite of a prediction that appeared, went, or is no number
  bool flipped = false;  // out of memory or not
  /// The worst of a file is what is told of it.
  friend bool operator<(const Change& a, const Change& b) {
    return std::pair(std::isinf(a.by), std::pair(a.flipped, a.by)) <
           std::pair(std::isinf(b.by), std::pair(b.flipped, b.by));
  }
};

double change_of(const std::optional<double>& was, const std::optional<double>& is) {
  if (was && is) {
    const double by = *was == *is ? 0 : std::abs(*is / *was - 1);
    return std::isnan(by) ? INFINITY : by;
  }
  return was || is ? INFINITY : 0;
}

/// Of a prediction, nullptr where there was or is no such point.
Change change_of(const PointPrediction* was, const PointPrediction* is) {
  if (was == nullptr || is == nullptr) {
    return {.by = was == is ? 0 : INFINITY};
  }
  return {.by = std::max({change_of(was->predicted, is->predicted), change_of(was->low, is->low),
                          change_of(was->high, is->high)}),
          .flipped = was->oom != is->oom};
}

std::string text_of(const Change& change) {
  if (std::isinf(change.by)) {
    return "appearing or going";
  }
  if (change.flipped) {
    return fmt::format("being out of memory or not, and {}", percent(change.by));
  }
  return percent(change.by);
}

/// Whether figures of a family are complete in what was asked for.
bool judges_family(const Asked& asked, std::string_view family) {
  return !asked.one_file && (asked.family.empty() || family == asked.family);
}

}  // namespace

std::string digest(const std::filesystem::path& file) {
  Hash hash;
  hash.add(read_text_file(file));
  return fmt::format("{:016x}", hash.value());
}

Gate read_gate(const std::filesystem::path& file) {
  const Json document = read_json(file);
  const JsonView view(document, file.string());
  expect_format(view, "sp-plan/gate");
  view.allow_only({"format", "format_version", "accuracy", "drift", "note"});
  Gate gate;
  if (!view.find("accuracy") && !view.find("drift")) {
    view.fail("has neither 'accuracy' nor 'drift': it could not fail");
  }
  if (const auto accuracy = view.find("accuracy")) {
    for (const auto& [family, limits] : accuracy->members()) {
      if (family != "overall") {
        (void)parse_family(family, limits.where());
      }
      gate.accuracy.emplace(family, read_limits(limits));
    }
    if (gate.accuracy.empty()) {
      accuracy->fail("has limits of no family: it could not fail");
    }
  }
  if (const auto drift = view.find("drift")) {
    drift->allow_only({"baseline", "tolerance", "history"});
    gate.baseline = file.parent_path() / drift->at("baseline").string();
    gate.tolerance = drift->at("tolerance").number(0, 0.1);
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
    if (const auto interval = view.find("interval")) {
      const auto ends = interval->elements();
      if (ends.size() != 2) {
        interval->fail("has not two ends");
      }
      p.low = ends[0].number();
      p.high = ends[1].number();
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

bool judges(const Gate& gate, const Asked& asked) {
  return !gate.baseline.empty() || std::ranges::any_of(gate.accuracy, [&](const auto& limits) {
    return judges_family(asked, limits.first);
  });
}

std::vector<std::string> failures(const Gate& gate, const std::map<std::string, Score>& figures,
                                  const Asked& asked) {
  std::vector<std::string> failed;
  for (const auto& [family, limits] : gate.accuracy) {
    if (!judges_family(asked, family)) {
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
    Change worst;
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < points; ++i) {
      const auto was = old.find(i);
      const auto place = static_cast<std::size_t>(i);
      const Change change = change_of(was == old.end() ? nullptr : &was->second,
                                      place < predictions.size() ? &predictions[place] : nullptr);
      if (change.by > gate.tolerance || change.flipped) {
        ++count;
        if (worst < change) {
          worst = change;
          at = i;
        }
      }
    }
    if (count > 0) {
      moved.push_back(fmt::format("{}: {} of {} predictions moved, points[{}] by {}", file, count,
                                  points, at, text_of(worst)));
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
