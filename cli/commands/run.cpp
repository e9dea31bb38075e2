// sp-plan run: executes a plan for real, checks it, and holds it against its prediction.
#include "base/error.hpp"
#include "cli/backend.hpp"
#include "cli/command.hpp"
#include "cli/human.hpp"
#include "cli/layer_job.hpp"
#include "cli/limits.hpp"
#include "cli/plan_file.hpp"
#include "cli/report_run.hpp"
#include "planner/step.hpp"
#include "runtime/calibrate/calibrate.hpp"
#include "runtime/trial/demand.hpp"
#include "schedule/coverage.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

namespace spp::cli::commands {
namespace {

constexpr std::array run_groups{OptionGroup::work, OptionGroup::machine, OptionGroup::degrees,
                                OptionGroup::plan_file};
constexpr std::array run_options{
    scope_option,
    comm_option,
    device_option,
    kernels_option,
    ranks_per_gpu_option,
    emulate_link_option,
    Option{"check", "", "compare every rank's results with single-device attention in fp64"},
    Option{"iters", "N", "timed iterations (default: 5)"},
    Option{"warmup", "N", "iterations before (default: 1)"},
    timeout_option,
    Option{"seed", "N", "of the random inputs (default: 1)"},
    Option{.name = "trace",
           .value = "FILE",
           .help = "write a trace for Chrome and ui.perfetto.dev, as measured",
           .writes = true},
    force_option,
};

constexpr double noisy = 0.05;    // spread from which on a measurement is called noisy
constexpr double off_pace = 0.1;  // from which on a machine is not what was calibrated
constexpr double above_peak = 1.02;
constexpr double unexpected_ratio = 1.5;  // beyond a prediction's interval

/// The ranks that mpirun started are the GPUs of the request, unless it says something else.
void adopt_launched_ranks(Arguments& arguments, int launched) {
  if (launched > 0 && !arguments.has("gpus")) {
    arguments.set_default("gpus", fmt::format("{}", launched));
  }
}

runtime::TrialRequest trial_of(const Arguments& arguments, const Job& job, const SequencePlan& plan,
                               const std::optional<LayerQuestion>& layer) {
  const Strategy& strategy = strategies::by_name(plan.strategy, "--strategy");
  const auto build = [&](Phase phase) {
    return layer ? layer->schedule(phase)
                 : strategy.build(job.request.problem, plan, phase, job.request.build);
  };
  const std::vector<Phase> phases = layer ? layer->phases : phases_of(job.request.phase);
  runtime::TrialRequest trial;
  trial.forward = build(phases.front() == Phase::step ? Phase::step : Phase::forward);
  if (phases.back() == Phase::backward) {
    trial.backward = build(Phase::backward);
  }
  trial.time_forward = phases.front() != Phase::backward;
  trial.check = arguments.has("check");
  if (arguments.has("force")) {
    trial.checking.flops = std::numeric_limits<double>::infinity();
  }
  trial.iterations = whole(arguments, "iters", 5);
  trial.warmup = whole(arguments, "warmup", 1, 0);
  trial.seed = static_cast<std::uint64_t>(whole(arguments, "seed", 1, 0));
  trial.execution.timeout = timeout_of(arguments);
  return trial;
}

/// Refuses what is more than this machine can run, before anything is built. The ranks of other
/// processes are theirs to count.
void expect_runnable(const Arguments& arguments, const runtime::TrialRequest& trial,
                     const std::string& plan) {
  const int ranks = trial.transport->launched_ranks() > 0 ? 1 : trial.forward->mesh.size();
  const std::string what = fmt::format("the run of {}", plan);
  if (ranks > most_threads && !arguments.has("force")) {
    throw Refusal(ExitCode::infeasible,
                  fmt::format("{} takes {} threads, and a process may have {}: fewer ranks, "
                              "processes under mpirun, or --force",
                              what, ranks, most_threads));
  }
  expect_feasible(arguments, what, {.ops = 0, .memory = trial_memory(trial, ranks)},
                  "shorter sequences, fewer ranks or --iters need less");
}

void expect_proven(const runtime::TrialRequest& trial, const std::string& plan, bool quiet) {
  for (const std::optional<Schedule>* schedule : {&trial.forward, &trial.backward}) {
    if (!*schedule) {
      continue;
    }
    Progress progress(fmt::format("proving {},", to_string((*schedule)->contract.phase)), quiet,
                      "ops");
    if (const Proof proof = prove(**schedule, progress.watch()); !proof.proven) {
      throw InternalError(fmt::format("{} is refuted: {}", plan, proof.counter_example));
    }
  }
}

/// The profile's, if these kernels measured it in this dtype.
std::optional<Seconds> calibrated_pace(const Job& job, const RunReport& report) {
  if (job.cluster == nullptr) {
    return std::nullopt;
  }
  const auto& pace = job.cluster->machine().gpu.pace;
  const bool same =
      pace && pace->kernels == report.kernels && pace->dtype == job.request.problem.dtype;
  return same ? std::optional(pace->median) : std::nullopt;
}

/// Warnings of what --profile tells that it was measured on, over and with, and that did not run.
std::vector<std::string> what_else_was_measured(const Job& job, const RunReport& report) {
  std::vector<std::string> differences;
  if (!job.profile) {
    return differences;
  }
  const auto compare = [&](std::string_view key, const std::string& here, std::string_view on) {
    const std::string there = job.profile->told(key);
    if (!there.empty() && there != here && there != "unknown" && here != "unknown") {
      differences.push_back(
          fmt::format("--profile '{}' was measured {} {}, not {} {}: predictions are of that",
                      job.profile->name, on, there, on, here));
    }
  };
  if (report.device) {
    compare("gpu", report.device->gpu, "on");
  } else {
    compare("cpu", runtime::cpu_model(), "on");
  }
  compare("comm", report.comm, "over");
  compare("kernels", report.kernels, "with kernels of");
  return differences;
}

/// Far outside of what this machine's own profile allows.
std::optional<std::string> unexpected(const Job& job, const RunReport& report) {
  if (!job.profile || !report.predicted) {
    return std::nullopt;
  }
  const Prediction& p = report.predicted->candidate.predicted;
  const double measured = measured_times(report.trial).step.count();
  const double ratio = measured / p.step.count();
  if (measured <= unexpected_ratio * p.high.count() &&
      measured * unexpected_ratio >= p.low.count()) {
    return std::nullopt;
  }
  return fmt::format(
      "measured {}, {:.2g} times what is predicted ({}, {} to {}): other work on this machine, now "
      "or during the calibration, or ranks that ran elsewhere",
      human(Seconds(measured)), ratio, human(p.step), human(p.low), human(p.high));
}

/// Ours or theirs: a kernel that is faster than the machine can be was measured or described
/// wrongly.
void expect_below_peak(const Job& job, const RunReport& report) {
  if (job.cluster == nullptr) {
    return;
  }
  const FlopRate peak =
      matrix_rate(job.cluster->machine().gpu, job.request.problem.dtype, "--dtype");
  const double measured = measured_times(report.trial).attention_flop_rate;
  if (measured > above_peak * peak.value()) {
    throw Refusal(
        ExitCode::refused,
        fmt::format("attention kernels reached {:.1f} GFLOP/s a rank, above the {:.1f} "
                    "GFLOP/s that {} is said to have: calibrate this machine",
                    measured * 1e-9, peak.value() * 1e-9, job.cluster->machine().gpu.name));
  }
}

void write_trace(const Job& job, const RunReport& report, const std::string& file) {
  const runtime::TrialResult& trial = report.trial;
  const Timeline timeline = trial.forward && trial.backward
                                ? joined(trial.forward->timeline, trial.backward->timeline)
                            : trial.forward ? trial.forward->timeline
                                            : trial.backward->timeline;
  write_file(file,
             to_chrome_trace(timeline, fmt::format("{}: {}, measured", job.title, report.subject)));
}

/// What of a step does not run.
std::string unexecuted(const StepPlan& step, const std::optional<LayerQuestion>& layer) {
  if (layer && layer->step) {
    return "";
  }
  if (layer) {
    return fmt::format(
        "one layer over its tensor and sequence ranks ({} of {}) is executed; the "
        "rest of the step is not (--scope step runs all of it)",
        step.tensor * step.sequence(), step.world());
  }
  const std::string group =
      step.world() == step.sequence()
          ? "one attention call"
          : fmt::format("one attention call of one tensor rank's sequence group ({} of {} ranks)",
                        step.sequence(), step.world());
  return fmt::format("{} is executed; the rest of the step is not (--scope step runs all of it)",
                     group);
}

void run_command(const Arguments& given, Output& output) {
  const auto start = std::chrono::steady_clock::now();
  Arguments arguments = given;
  const std::optional<SaidGroups> groups = adopt_plan_file(arguments);
  const Device device = device_of(arguments);
  std::vector<std::string> warnings;
  const Communication comm = communication_of(arguments, device, warnings);
  const runtime::TransportBackend& transport = *comm.transport;
  adopt_launched_ranks(arguments, transport.launched_ranks());
  Job job = read_job(arguments, MachineNeed::optional);
  output.warn(job.warnings);
  const StepPlan step = read_plan(job);
  expect_groups(groups, step);
  const std::optional<LayerQuestion> layer = asked_layer(arguments, job, step);
  if (!layer) {
    expect_scheduled_attention(job.request);
  }
  const Problem& problem = job.request.problem;
  const AttentionQuestion question = layer ? layer_attention(job.request, step, problem.mask)
                                           : attention_question(job.request, step, problem);
  if (layer) {
    output.warn(layer->notes);
    std::ranges::copy(layer->notes, std::back_inserter(warnings));
  }
  const std::string name = layer ? layer_name(step, *layer) : short_name(step.attention);
  std::optional<Evaluation> predicted_layer;
  if (layer && job.cluster != nullptr) {
    predicted_layer =
        evaluate_layer(job.request, step, *layer, phases_of(job.request, step, *layer, false),
                       {.fold = false, .timeline = true, .steps = false, .by_stack = false});
  }
  if (job.request.whole_step()) {
    if (std::string rest = unexecuted(step, layer); !rest.empty()) {
      complain("warning: " + rest);
      warnings.push_back(std::move(rest));
    }
    job.request = question.request;  // from here on: one tensor rank's attention
  }
  RunReport report{.step = step,
                   .plan = step.attention,
                   .scope = !layer        ? "attention"
                            : layer->step ? "step"
                                          : "layer",
                   .subject = layer ? layer->subject() + ", " + name : name,
                   .oracle = !layer        ? "single-device attention"
                             : layer->step ? "the step on a single device"
                                           : "the layer on a single device",
                   .ranks = layer ? layer->plan.ranks() : step.attention.ranks(),
                   .comm = comm.name,
                   .kernels = "",
                   .device = std::nullopt,
                   .first = layer && layer->step ? Phase::step : Phase::forward,
                   .trial = {},
                   .predicted = std::nullopt,
                   .calibrated_pace = std::nullopt,
                   .warnings = std::move(warnings)};
  const runtime::AttentionBackend* kernels = nullptr;
  std::unique_ptr<runtime::device::DeviceEngines> engines;
  if (device == Device::cpu) {
    kernels = &kernels_of(arguments, problem.dtype, report.warnings);
    report.kernels = kernels->name;
  } else {
    const auto wanted = device_options(arguments, comm, problem, report.warnings);
    engines = runtime::device::make_engines(wanted, report.ranks, transport);
    report.kernels = wanted.kernels;
  }
  runtime::TrialRequest trial = trial_of(arguments, job, report.plan, layer);
  trial.transport = &transport;
  trial.kernels = kernels;
  trial.engines = engines.get();
  const bool quiet = output.quiet() || transport.launched_rank() > 0;
  expect_runnable(arguments, trial, name);
  expect_proven(trial, name, quiet);
  report.calibrated_pace = calibrated_pace(job, report);
  trial.pace = report.calibrated_pace && device == Device::cpu;
  {
    Progress progress("running", quiet, "iterations");
    trial.progress = [&](int done) { progress.update(std::max(done, 0), trial.iterations); };
    report.trial = run_trial(trial);
  }
  if (!report.trial.complete) {
    return;  // rank 0 tells
  }
  std::ranges::copy(report.trial.warnings, std::back_inserter(report.warnings));
  if (!report.trial.refused.empty()) {
    throw Refusal(ExitCode::infeasible, report.trial.refused);
  }
  if (engines != nullptr) {
    report.device = engines->report();
    std::ranges::copy(engines->warnings(), std::back_inserter(report.warnings));
  }
  if (layer) {
    report.predicted = std::move(predicted_layer);
  } else if (job.cluster != nullptr) {
    report.predicted =
        evaluate(job.request, report.plan, {.fold = false, .timeline = true, .steps = false});
  }
  if (report.plan.rank_order == RankOrder::cyclic && job.cluster != nullptr &&
      job.cluster->nodes() > 1) {
    report.warnings.emplace_back(
        "the plan deals ranks out over the nodes in turn: the launcher must, too (mpirun --map-by "
        "node, srun --distribution=cyclic)");
  }
  std::ranges::copy(what_else_was_measured(job, report), std::back_inserter(report.warnings));
  if (device == Device::cpu && job.cluster != nullptr && !job.cluster->machine().host) {
    report.warnings.push_back(
        fmt::format("the prediction is of {}, and CPUs ran", job.cluster->machine().gpu.name));
  }
  if (auto warning = unexpected(job, report)) {
    report.warnings.push_back(std::move(*warning));
  }
  if (const double spread = measured_times(report.trial).spread; spread > noisy) {
    report.warnings.push_back(fmt::format(
        "the iterations differ by {:.0f} %: other work on this machine, or too few cores",
        100 * spread));
  }
  if (const auto pace = pace_of(report); pace && std::abs(*pace - 1) > off_pace) {
    report.warnings.push_back(fmt::format(
        "this machine computes {:.0f} % {} than when it was calibrated: what differs from the "
        "prediction may be that; calibrate again",
        100 * std::abs(*pace - 1), *pace < 1 ? "slower" : "faster"));
  }
  if (const auto file = arguments.find("trace")) {
    write_trace(job, report, *file);
  }
  const Seconds elapsed = std::chrono::steady_clock::now() - start;
  output.result(run_document(job, report, elapsed),
                [&](const Style& style) { return run_table(job, report, style); });
  if (!report.trial.passed()) {
    throw Refusal(ExitCode::refused,
                  fmt::format("{} computes something else than {}", name, report.oracle));
  }
  expect_below_peak(job, report);
}

}  // namespace

extern const Command run{
    .name = "run",
    .summary = "execute a plan for real, check it, and hold it against its prediction",
    .description =
        "Runs one attention call, or one layer or a whole training step of a model (--scope), "
        "forward and backward, with real messages and real kernels, on "
        "CPUs or on GPUs: ranks are threads of this process, which may share a GPU, or the "
        "processes that mpirun or srun started. The schedule is the one that simulate simulates. "
        "With a machine (--profile, --topology) the prediction "
        "stands beside the measurement; --check compares the results with single-device attention "
        "in fp64. Bytes are counted by the transport and must be those of the schedule.",
    .arguments = "",
    .groups = run_groups,
    .options = run_options,
    .examples =
        "sp-plan run --heads 8 --head-dim 64 --seq 4K --dtype fp32 --ulysses 2 --ring 4 --check\n"
        "sp-plan run --plan plan.json --check --trace measured.json\n"
        "sp-plan run --model config.json --seq 1K --dtype fp32 --tp 2 --ulysses 2 --scope layer "
        "--check\n"
        "sp-plan run --model config.json --seq 512 --dtype fp32 --tp 2 --dp 2 --scope step "
        "--check\n"
        "mpirun -np 4 sp-plan run --heads 8 --head-dim 64 --seq 8K --dtype fp32 --ring 4 --check\n"
        "sp-plan run --device cuda --heads 32 --kv-heads 8 --seq 32K --ulysses 2 --ring 4 --check",
    .run = run_command,
    .as_ranks = true,
};

}  // namespace spp::cli::commands
