// How well published measurements are predicted: whether a gate holds, what was left out, figures
// by scope and by file, the worst first.
#include "report/candidate.hpp"
#include "report/kind.hpp"
#include "report/markup.hpp"
#include "report/points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace spp::report::kinds::regression {
namespace {

std::string subject(const JsonView& document) {
  const auto overall = document.find("overall");
  return fmt::format("{} points of {} files", overall ? text_at(*overall, "n") : "0",
                     document.at("files").elements().size());
}

std::string percent_at(const JsonView& view, std::string_view key) {
  const auto found = view.find(key);
  return found ? percent(found->number()) : "";
}

/// Of "ran out of memory" and "was told to", where a source speaks of it: how many ran out, how
/// many of those were told to, how many were told to and ran.
std::string out_of_memory(const JsonView& f) {
  const auto stated = f.find("oom_stated");
  return stated && stated->number() > 0
             ? fmt::format("{} / {} / {}", text_at(f, "oom_measured"), text_at(f, "oom_told"),
                           text_at(f, "oom_false"))
             : "";
}

std::vector<std::string> figures(std::string name, const JsonView& f) {
  return {std::move(name),
          text_at(f, "n"),
          text_at(f, "missing"),
          percent_at(f, "median_error"),
          percent_at(f, "mape"),
          percent_at(f, "bias"),
          percent_at(f, "interval_coverage"),
          percent_at(f, "regret_mean"),
          percent_at(f, "memory_error"),
          out_of_memory(f)};
}

Grid empty_grid() {
  return {.heading = {"", "points", "not predicted", "median error", "mean error", "bias",
                      "inside the interval", "mean regret", "memory error",
                      "out of memory / told / false alarms"},
          .right = {false, true, true, true, true, true, true, true, true, true},
          .rows = {}};
}

void add_scopes(Sheet& sheet, const JsonView& document) {
  Grid grid = empty_grid();
  for (const auto& [name, scope] : document.at("scopes").members()) {
    grid.rows.push_back(figures(name, scope));
  }
  if (const auto overall = document.find("overall")) {
    grid.rows.push_back(figures("all, each file alike", *overall));
  }
  sheet.table(shortened(std::move(grid), 60));
}

void add_overall(Sheet& sheet, const JsonView& overall) {
  std::vector<Stat> stats{{"median error", percent_at(overall, "median_error"), "over files"},
                          {"bias", percent_at(overall, "bias"), ""},
                          {"points", text_at(overall, "n"), "of " + text_at(overall, "points")}};
  if (overall.find("regret_mean")) {
    stats.push_back(
        {"mean regret", percent_at(overall, "regret_mean"), "of choosing by prediction"});
  }
  sheet.stats(stats);
}

/// `passed` is null where the gate limits nothing of what was asked for.
void add_gate(Sheet& sheet, const JsonView& gate) {
  const auto passed = gate.find("passed");
  if (!passed) {
    sheet.verdict(Tone::note, "Not judged", "The gate limits nothing of what was asked for.");
    return;
  }
  if (passed->boolean()) {
    sheet.verdict(Tone::good, "Passed", "The gate's limits hold.");
    return;
  }
  std::vector<std::string> failures;
  for (const JsonView& failure : gate.at("failures").elements()) {
    failures.push_back(failure.string());
  }
  sheet.verdict(Tone::bad, "Failed", "The gate's limits do not hold:");
  sheet.list(failures);
}

void add_refused(Sheet& sheet, const JsonView& document) {
  std::vector<std::string> refused;
  if (const auto list = document.find("refused")) {
    for (const JsonView& file : list->elements()) {
      refused.push_back(file.string());
    }
  }
  if (!refused.empty()) {
    sheet.verdict(Tone::bad, "Left out", fmt::format("{} files have errors:", refused.size()));
    sheet.list(refused);
  }
}

/// `files` have a median error each.
void add_charts(Sheet& sheet, const std::vector<JsonView>& files) {
  PointChart chart{.title = "Error of each file by its size",
                   .description =
                       "Each point is a file of published measurements: how many of its points "
                       "are predicted, and the median of their errors.",
                   .note = "",
                   .x = {.title = "points", .text = short_number},
                   .y = {.title = "median error", .text = percent},
                   .groups = {}};
  PointChart lean{
      .title = "Error and bias of each file",
      .description = "Left of 0 predictions are too small on average, right of it too large.",
      .note = "",
      .x = {.title = "bias", .text = signed_percent, .logarithmic = false},
      .y = {.title = "median error", .text = percent},
      .groups = {}};
  std::map<std::string, std::size_t> scopes;
  for (const JsonView& file : files) {
    const double error = file.at("median_error").number();
    const std::string scope = file.at("scope").string();
    const auto [at, fresh] = scopes.try_emplace(scope, chart.groups.size());
    if (fresh) {
      chart.groups.push_back({.label = scope, .points = {}});
      lean.groups.push_back({.label = scope, .points = {}});
    }
    const std::string name = file.at("name").string();
    chart.groups[at->second].points.push_back(
        {file.at("n").number(0, most_count_read), error, name});
    if (const auto bias = file.find("bias")) {
      lean.groups[at->second].points.push_back({bias->number(), error, name});
    }
  }
  add(sheet, chart);
  add(sheet, lean);
}

/// `files` are sorted, the worst first.
void add_worst(Sheet& sheet, const std::vector<JsonView>& files,
               const std::optional<JsonView>& overall) {
  BarChart worst{.title = "The files that are predicted worst",
                 .description = "Median of the errors of each file's points.",
                 .note = "",
                 .unit_heading = "median error",
                 .text = percent,
                 .bars = {},
                 .marks = {}};
  for (std::size_t i = 0; i < std::min<std::size_t>(12, files.size()); ++i) {
    const double error = files[i].at("median_error").number(0, most_count_read);
    worst.bars.push_back(
        {.label = fmt::format("{} ({}, {} points)", files[i].at("name").string(),
                              files[i].at("scope").string(), text_at(files[i], "n")),
         .value = percent(error),
         .parts = {{"k-attention", "median error", error}},
         .interval = std::nullopt});
  }
  if (const auto median = overall ? overall->find("median_error") : std::nullopt) {
    worst.marks.push_back(
        {median->number(0, most_count_read), "over all files: " + percent(median->number())});
  }
  add(sheet, worst);
}

/// A document without "overall" has no file that could be read.
void add(const JsonView& document, Sheet& sheet) {
  if (const auto gate = document.find("gate")) {
    add_gate(sheet, *gate);
  }
  const auto overall = document.find("overall");
  if (overall) {
    add_overall(sheet, *overall);
  }
  add_refused(sheet, document);
  add_scopes(sheet, document);

  // Files of memory alone have no error of a time or a rate: they are listed, and not drawn.
  std::vector<JsonView> files = document.at("files").elements();
  const auto without = std::ranges::stable_partition(
      files, [](const JsonView& file) { return file.find("median_error").has_value(); });
  std::vector<JsonView> drawn(files.begin(), without.begin());
  add_charts(sheet, drawn);
  std::ranges::stable_sort(drawn, [](const JsonView& a, const JsonView& b) {
    return a.at("median_error").number() > b.at("median_error").number();
  });
  add_worst(sheet, drawn, overall);

  Grid grid = empty_grid();
  for (const JsonView& file : drawn) {
    grid.rows.push_back(figures(file.at("name").string(), file));
  }
  for (const JsonView& file : without) {
    grid.rows.push_back(figures(file.at("name").string(), file));
  }
  sheet.details("All files", shortened(std::move(grid), 400));
}

}  // namespace

extern const Kind entry{.format = "regression", .name = "Accuracy", .subject = subject, .add = add};

}  // namespace spp::report::kinds::regression
