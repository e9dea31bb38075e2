// A plan that was executed: measured beside predicted, by phase and kind of op, and whether the
// numbers came out right.
#include "report/candidate.hpp"
#include "report/kind.hpp"
#include "report/markup.hpp"
#include "report/points.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace spp::report::kinds::run {
namespace {

std::string subject(const JsonView& document) {
  const JsonView backend = document.at("backend");
  return fmt::format("{} on {} ranks ({}, {}, {} kernels)", plan_name(document.at("plan")),
                     text_at(backend, "ranks"), text_at(backend, "device"),
                     text_at(backend, "comm"), text_at(backend, "kernels"));
}

double seconds_at(const JsonView& view, std::string_view key) {
  const auto found = view.find(key);
  return found ? found->number(0, most_seconds_read) : 0;
}

void add_phases(Sheet& sheet, const JsonView& document) {
  BarChart chart{.title = "Measured and predicted, by phase",
                 .description =
                     "For each phase the iteration of median time with its parts, and under it "
                     "what was predicted.",
                 .note = "",
                 .unit_heading = "seconds",
                 .text = seconds_text,
                 .bars = {},
                 .marks = {}};
  for (const auto& [name, phase] : document.at("phases").members()) {
    // Older documents have parts of an iteration that they do not name, near the median.
    const double measured_s =
        phase.find("middle_s").value_or(phase.at("median_s")).number(0, most_seconds_read);
    const double attention = seconds_at(phase, "attention_s");
    const double gemm = seconds_at(phase, "gemm_s");
    const double other = seconds_at(phase, "other_kernels_s");
    const double exposed = seconds_at(phase, "exposed_s");
    const double imbalance = seconds_at(phase, "imbalance_s");
    Bar measured{
        .label = name + ", measured",
        .value = seconds_text(measured_s),
        .parts = {{"k-attention", "attention kernels", attention},
                  {"k-gemm", "matrix products", gemm},
                  {"k-elementwise", "small kernels", other},
                  {"k-cp", "exposed communication", exposed},
                  {"k-bubble", "waiting for busy ranks", imbalance},
                  {"k-launch", "host, and the rest",
                   std::max(0.0, measured_s - attention - gemm - other - exposed - imbalance)}},
        .interval = std::nullopt,
        .strong = true};
    if (const auto samples = phase.find("samples_s")) {
      double least = measured_s;
      double most = measured_s;
      for (const JsonView& s : samples->elements()) {
        least = std::min(least, s.number(0, most_seconds_read));
        most = std::max(most, s.number(0, most_seconds_read));
      }
      measured.interval = {least, most};
    }
    chart.bars.push_back(std::move(measured));
    if (const double predicted = seconds_at(phase, "predicted_s"); predicted > 0) {
      chart.bars.push_back({.label = name + ", predicted",
                            .value = fmt::format("{} ({})", seconds_text(predicted),
                                                 signed_percent(predicted / measured_s - 1)),
                            .parts = {{"k-predicted", "predicted", predicted}},
                            .interval = std::nullopt});
    }
  }
  chart.note = "The line with two ends goes from the fastest to the slowest iteration.";
  add(sheet, chart);
}

void add_kinds(Sheet& sheet, const JsonView& document) {
  PointChart chart{.title = "Kinds of ops: predicted against measured",
                   .description =
                       "Each point is all ops of one kind in one phase. On the line both are "
                       "equal; the dotted lines are a tenth above and below.",
                   .note = "",
                   .x = {.title = "measured", .text = seconds_text},
                   .y = {.title = "predicted", .text = seconds_text},
                   .groups = {},
                   .diagonal = true};
  for (const auto& [name, phase] : document.at("phases").members()) {
    const auto list = phase.find("kinds");
    if (!list) {
      continue;
    }
    PointGroup group{.label = name, .points = {}};
    for (const JsonView& kind : list->elements()) {
      group.points.push_back({seconds_at(kind, "measured_s"), seconds_at(kind, "predicted_s"),
                              kind.at("kind").string()});
    }
    chart.groups.push_back(std::move(group));
  }
  add(sheet, chart);
}

void add_checks(Sheet& sheet, const JsonView& document) {
  Grid grid{.heading = {"phase", "tensor", "largest error", "limit", "of a tile", "limit",
                        "numbers", "verdict"},
            .right = {false, false, true, true, true, true, true, false},
            .rows = {}};
  for (const auto& [name, phase] : document.at("phases").members()) {
    const auto check = phase.find("check");
    if (!check) {
      continue;
    }
    for (const JsonView& t : check->at("tensors").elements()) {
      const auto number = [&t = t](std::string_view key) {
        const auto said = t.find(key);  // null: not a number
        return said && said->value().is_number() ? fmt::format("{:.2e}", said->number()) : "nan";
      };
      grid.rows.push_back({name, t.at("tensor").string(), number("error"), number("limit"),
                           number("mean_error"), number("mean_limit"), text_at(t, "compared"),
                           t.at("passed").boolean() ? "right" : "WRONG: " + text_at(t, "worst")});
    }
  }
  if (!grid.rows.empty()) {
    sheet.heading("Against single-device attention in fp64");
    sheet.table(shortened(std::move(grid), 60));
  }
}

void add(const JsonView& document, Sheet& sheet) {
  const bool passed = document.at("passed").boolean();
  const JsonView measured = document.at("measured");
  sheet.verdict(passed ? Tone::good : Tone::bad, passed ? "Ran" : "Failed its checks",
                plan_name(document.at("plan")));
  std::vector<Stat> stats{{"measured step",
                           seconds_text(measured.at("step_s").number(0, most_seconds_read)),
                           fmt::format("spread {}", percent(measured.at("spread").number()))}};
  if (const auto predicted = document.find("predicted")) {
    stats.push_back({"predicted step",
                     seconds_text(predicted->at("step_s").number(0, most_seconds_read)),
                     signed_percent(predicted->at("error").number()) + " of the measured"});
  }
  stats.push_back({"attention", seconds_text(seconds_at(measured, "attention_s")), ""});
  stats.push_back(
      {"exposed communication", seconds_text(seconds_at(measured, "exposed_comm_s")), ""});
  sheet.stats(stats);
  if (const auto warnings = document.find("warnings")) {
    for (const JsonView& w : warnings->elements()) {
      sheet.verdict(Tone::note, "Warning", w.string());
    }
  }
  add_phases(sheet, document);
  add_kinds(sheet, document);
  add_checks(sheet, document);
  add_assumptions(sheet, document);
  add_request(sheet, document);
}

}  // namespace

extern const Kind entry{.format = "run", .name = "Run", .subject = subject, .add = add};

}  // namespace spp::report::kinds::run
