#include "cli/report_run.hpp"

#include "base/error.hpp"
#include "base/median.hpp"
#include "cli/human.hpp"
#include "cli/report_json.hpp"

#include <algorithm>
#include <map>

namespace spp::cli {
namespace {

std::vector<const runtime::PhaseResult*> phases_of_trial(const runtime::TrialResult& trial) {
  std::vector<const runtime::PhaseResult*> phases;
  for (const auto* phase : {&trial.forward, &trial.backward}) {
    if (*phase) {
      phases.push_back(&**phase);
    }
  }
  return phases;
}

/// Time and number of ops by kind, mean over the ranks that have such an op.
struct KindTime {
  std::int64_t ops = 0;
  Seconds seconds{};
};
std::map<std::string, KindTime> by_kind(const Timeline& timeline) {
  std::map<std::string, KindTime> kinds;
  std::map<Rank, int> ranks;
  for (const TimelineEvent& e : timeline.events) {
    ++kinds[std::string(to_string(e.kind))].ops;
    kinds[std::string(to_string(e.kind))].seconds += e.end - e.begin;
    ranks[e.rank] = 1;
  }
  for (auto& [name, kind] : kinds) {
    kind.seconds /= std::max<double>(1, static_cast<double>(ranks.size()));
  }
  return kinds;
}

Json kinds_json(const runtime::PhaseResult& phase, const sim::Simulation* predicted) {
  const auto measured = by_kind(phase.timeline);
  const auto expected =
      predicted != nullptr ? by_kind(predicted->timeline) : std::map<std::string, KindTime>();
  Json list = Json::array();
  for (const auto& [name, kind] : measured) {
    const auto at = expected.find(name);
    list.push_back(
        {{"kind", name},
         {"ops", kind.ops},
         {"measured_s", kind.seconds.count()},
         {"predicted_s", at == expected.end() ? Json() : Json(at->second.seconds.count())}});
  }
  return list;
}

Json check_json(const runtime::CheckReport& check) {
  Json tensors = Json::array();
  for (const runtime::TensorCheck& t : check.tensors) {
    tensors.push_back({{"tensor", t.tensor},
                       {"error", t.error},
                       {"limit", t.limit.largest},
                       {"mean_error", t.mean_error},
                       {"mean_limit", t.limit.mean},
                       {"scale", t.scale},
                       {"compared", t.compared},
                       {"worst", t.worst},
                       {"worst_tile", t.worst_tile},
                       {"passed", t.passed()}});
  }
  return {{"passed", check.passed()}, {"part", check.part}, {"tensors", tensors}};
}

Json seconds_json(const std::vector<Seconds>& samples) {
  Json list = Json::array();
  for (const Seconds s : samples) {
    list.push_back(s.count());
  }
  return list;
}

Json phase_json(const runtime::PhaseResult& phase, std::size_t middle,
                const std::optional<sim::Simulation>* predicted) {
  const sim::Simulation* simulation =
      predicted != nullptr && predicted->has_value() ? &**predicted : nullptr;
  Json json = {{"median_s", median_of(phase.samples).count()},
               {"middle_s", phase.samples[middle].count()},
               {"predicted_s", simulation != nullptr ? Json(simulation->makespan.count()) : Json()},
               {"samples_s", seconds_json(phase.samples)},
               {"attention_s", phase.breakdown.attention.count()},
               {"gemm_s", phase.breakdown.gemm.count()},
               {"other_kernels_s", phase.breakdown.other_kernels.count()},
               {"exposed_s", phase.breakdown.exposed.count()},
               {"imbalance_s", phase.breakdown.imbalance.count()},
               {"launch_bound_s", phase.breakdown.launch_bound.count()},
               {"kinds", kinds_json(phase, simulation)},
               {"check", phase.check ? check_json(*phase.check) : Json()}};
  return json;
}

Json device_json(const DeviceReport& device) {
  const auto mhz = [](int khz) { return khz > 0 ? Json(khz / 1000) : Json(); };
  const auto text = [](const std::string& said) { return said.empty() ? Json() : Json(said); };
  return {{"name", device.gpu},
          {"gpus", device.gpus},
          {"ranks_per_gpu", device.ranks_per_gpu},
          {"multiprocessors_per_rank", device.multiprocessors},
          {"driver", cuda_version(device.driver)},
          {"runtime", cuda_version(device.runtime)},
          {"clock_mhz", mhz(device.clock_khz)},
          {"memory_clock_mhz", mhz(device.memory_clock_khz)},
          {"timed_event_s", device.timed_event.count()},
          {"attention_made_for", text(device.attention_made_for)},
          {"attention_refused", text(device.attention_refused)},
          {"attention_plans", device.attention_plans},
          {"compile_s", device.compiling_attention.count()},
          {"attention_workspaces_bytes", device.attention_workspaces.value()},
          {"communication_workspaces_bytes", device.communication_workspaces.value()},
          {"copies", text(device.copies)}};
}

std::string ratio_text(Seconds measured, Seconds predicted) {
  return predicted.count() > 0
             ? fmt::format("{:+.1f} %", 100 * (predicted.count() / measured.count() - 1))
             : "";
}

std::string check_text(const RunReport& report, const Style& style) {
  std::string text;
  Table table;
  table.rows.push_back(
      {"  checked", "largest error", "limit", "of a tile", "limit", "numbers", ""});
  double part = 1;
  for (const runtime::PhaseResult* phase : phases_of_trial(report.trial)) {
    if (!phase->check) {
      continue;
    }
    part = std::min(part, phase->check->part);
    for (const runtime::TensorCheck& t : phase->check->tensors) {
      table.rows.push_back(
          {"  " + t.tensor, fmt::format("{:.2e}", t.error), fmt::format("{:.2e}", t.limit.largest),
           fmt::format("{:.2e}", t.mean_error), fmt::format("{:.2e}", t.limit.mean),
           human_count(t.compared), t.passed() ? "right" : "WRONG: " + t.wrong()});
    }
  }
  if (table.rows.size() == 1) {
    return style.dim("\nNot checked (--check).") + "\n";
  }
  table.right = {false, true, true, true, true, true, false};
  text += "\n" + style.bold(fmt::format("Against {} in fp64", report.oracle)) +
          (part < 1 ? fmt::format(" (a sample: {:.2g} % of all numbers)", 100 * part) : "") + "\n";
  for (const std::string& line : table.lines()) {
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string device_text(const DeviceReport& device) {
  std::string text = fmt::format("on {} x {}", device.gpus, device.gpu);
  if (device.ranks_per_gpu > 1) {
    text += fmt::format(", {} ranks a GPU with {} SMs each", device.ranks_per_gpu,
                        device.multiprocessors);
  }
  return text;
}

MeasuredTimes measured_times(const runtime::TrialResult& trial) {
  MeasuredTimes m;
  double flops = 0;
  Seconds attention{};
  const auto all = [](const std::array<Bytes, comm_kinds>& by_kind) {
    Bytes sum{};
    for (const Bytes b : by_kind) {
      sum += b;
    }
    return sum;
  };
  for (const runtime::PhaseResult* phase : phases_of_trial(trial)) {
    m.all += phase->breakdown;
    for (const TimelineEvent& e : phase->timeline.events) {
      if (is_attention(e.kind)) {
        flops += e.flops;
        attention += e.end - e.begin;
      }
    }
    if (!phase->sent.empty()) {
      const std::array<Bytes, comm_kinds>& most = *std::ranges::max_element(phase->sent, {}, all);
      for (std::size_t k = 0; k < comm_kinds; ++k) {
        m.sent[k] += most[k];
      }
    }
  }
  m.attention_flop_rate = attention.count() > 0 ? flops / attention.count() : 0;
  m.step = trial.samples[trial.middle];
  m.p95 = runtime::percentile_95(trial.samples);
  m.spread = runtime::relative_spread(trial.samples);
  return m;
}

std::optional<double> pace_of(const RunReport& report) {
  if (!report.calibrated_pace || report.trial.pace.empty()) {
    return std::nullopt;
  }
  return *report.calibrated_pace / median_of(report.trial.pace);
}

Json run_document(const Job& job, const RunReport& report, Seconds elapsed) {
  const MeasuredTimes m = measured_times(report.trial);
  Json sent = Json::object();
  for (std::size_t k = 0; k < comm_kinds; ++k) {
    sent[std::string(to_string(static_cast<CommKind>(k)))] = m.sent[k].value();
  }
  Json json = document("run");
  json["request"] = job.resolved;
  json["assumptions"] = to_json(job.assumptions);
  json["plan"] = to_json(report.step);
  json["scope"] = report.scope;
  json["backend"] = {{"device", report.device ? "cuda" : "cpu"},
                     {"comm", report.comm},
                     {"kernels", report.kernels},
                     {"ranks", report.ranks},
                     {"gpu", report.device ? device_json(*report.device) : Json()}};
  json["measured"] = {
      {"step_s", m.step.count()},
      {"p95_s", m.p95.count()},
      {"spread", m.spread},
      {"samples_s", seconds_json(report.trial.samples)},
      {"attention_s", m.all.attention.count()},
      {"gemm_s", m.all.gemm.count()},
      {"other_kernels_s", m.all.other_kernels.count()},
      {"exposed_comm_s", m.all.exposed.count()},
      {"imbalance_s", m.all.imbalance.count()},
      {"launch_bound_s", m.all.launch_bound.count()},
      {"comm_bytes_per_rank", sent},
      {"attention_gflops_per_rank", m.attention_flop_rate * 1e-9},
      {"pace_s", report.trial.pace.empty() ? Json() : Json(median_of(report.trial.pace).count())},
      {"pace_samples_s", seconds_json(report.trial.pace)}};
  json["predicted"] = Json();
  if (report.predicted) {
    Seconds step{};
    for (const auto* phase : {&report.predicted->forward, &report.predicted->backward}) {
      step += *phase ? (*phase)->makespan : Seconds(0);
    }
    const Prediction& p = report.predicted->candidate.predicted;
    json["predicted"] = {
        {"step_s", step.count()},
        {"interval_s", {p.low.count(), p.high.count()}},
        {"error", step / m.step - 1},
        {"pace_s", report.calibrated_pace ? Json(report.calibrated_pace->count()) : Json()}};
  }
  json["phases"] = Json::object();
  if (report.trial.forward) {
    json["phases"][to_string(report.first)] =
        phase_json(*report.trial.forward, report.trial.middle,
                   report.predicted ? &report.predicted->forward : nullptr);
  }
  if (report.trial.backward) {
    json["phases"]["bwd"] = phase_json(*report.trial.backward, report.trial.middle,
                                       report.predicted ? &report.predicted->backward : nullptr);
  }
  json["passed"] = report.trial.passed();
  json["warnings"] = report.warnings;
  json["elapsed_s"] = elapsed.count();
  return json;
}

std::string run_table(const Job& job, const RunReport& report, const Style& style) {
  const MeasuredTimes m = measured_times(report.trial);
  std::string text = style.bold(fmt::format("{}: {}", job.title, report.subject)) + "\n";
  text += fmt::format("{} ranks ({}){}, {} kernels, median of {} iterations\n\n", report.ranks,
                      report.comm, report.device ? " " + device_text(*report.device) : "",
                      report.kernels, report.trial.samples.size());
  Table table;
  const bool products = m.all.gemm > Seconds(0);
  const auto add_row = [&](std::vector<std::string> cells) {
    if (!products) {
      cells.erase(cells.begin() + 5);
    }
    table.rows.push_back(std::move(cells));
  };
  add_row({"  phase", "measured", "predicted", "error", "attention", "products", "small kernels",
           "exposed", "imbalance", "host"});
  const auto add = [&](const std::string& name, const std::optional<runtime::PhaseResult>& phase,
                       const std::optional<sim::Simulation>* simulation) {
    if (!phase) {
      return;
    }
    const Breakdown& times = phase->breakdown;
    const Seconds measured = phase->samples[report.trial.middle];
    const Seconds predicted =
        simulation != nullptr && simulation->has_value() ? (*simulation)->makespan : Seconds(0);
    add_row({"  " + name, human(measured), predicted.count() > 0 ? human(predicted) : "-",
             ratio_text(measured, predicted), human(times.attention), human(times.gemm),
             human(times.other_kernels), human(times.exposed), human(times.imbalance),
             human(times.launch_bound)});
  };
  add(report.first == Phase::step ? "step" : "forward", report.trial.forward,
      report.predicted ? &report.predicted->forward : nullptr);
  add("backward", report.trial.backward, report.predicted ? &report.predicted->backward : nullptr);
  table.right.assign(table.rows.front().size(), true);
  table.right.front() = false;
  for (const std::string& line : table.lines()) {
    text += line + "\n";
  }
  text += fmt::format(
      "\nTogether {} (95 % of iterations within {}, spread {:.1f} %); attention "
      "kernels reach {:.1f} GFLOP/s a rank.\n",
      human(m.step), human(m.p95), 100 * m.spread, m.attention_flop_rate * 1e-9);
  if (const auto pace = pace_of(report)) {
    text +=
        fmt::format("The machine computes at {:.2f} times the pace of its calibration.\n", *pace);
  }
  std::string sent;
  for (std::size_t k = 0; k < comm_kinds; ++k) {
    if (m.sent[k] > Bytes(0)) {
      sent += fmt::format("{}{} {}", sent.empty() ? "" : ", ", to_string(static_cast<CommKind>(k)),
                          human(m.sent[k]));
    }
  }
  text +=
      fmt::format("Sent by a rank, as the schedule says: {}.\n", sent.empty() ? "nothing" : sent);
  text += check_text(report, style);
  for (const std::string& warning : report.warnings) {
    text += wrapped("Warning: " + warning, 0);
  }
  return text;
}

}  // namespace spp::cli
