// sp-plan simulate: what one plan costs, and where the time goes.
#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/fit.hpp"
#include "cli/human.hpp"
#include "cli/layer_job.hpp"
#include "cli/limits.hpp"
#include "cli/plan_file.hpp"
#include "cli/report_json.hpp"
#include "cli/report_table.hpp"
#include "planner/step.hpp"
#include "schedule/demand.hpp"
#include "schedule/text.hpp"

#include <algorithm>
#include <array>
#include <chrono>

namespace spp::cli::commands {
namespace {

constexpr std::array simulate_groups{OptionGroup::work, OptionGroup::machine, OptionGroup::degrees,
                                     OptionGroup::plan_file};
constexpr std::array simulate_options{
    scope_option,
    Option{.name = "trace",
           .value = "FILE",
           .help = "write a trace for Chrome and ui.perfetto.dev: of a training step its "
                   "stages and micro-batches, else of one attention call",
           .writes = true},
    Option{.name = "dump-schedule",
           .value = "FILE",
           .help = "write the schedule as text, forward and then backward",
           .writes = true},
    force_option,
};

constexpr int most_trace_ranks = 512;
constexpr std::int64_t most_lines = 2'000'000;  // of a trace or a schedule text: some 100 MB

std::int64_t op_count(const Schedule& schedule) {
  ProgramCursor cursor(schedule.program(Rank(0)));
  while (cursor.next() != nullptr) {
  }
  return cursor.position() * schedule.mesh.size();
}

/// Of one tensor rank's attention.
Schedule build(const Job& job, const StepPlan& plan, Phase phase) {
  const Request& request = job.request;
  return strategies::by_name(plan.attention.strategy, "--strategy")
      .build(attention_problem(request, plan, request.problem), plan.attention, phase,
             request.build);
}

/// Refuses what would make a file that nothing can open.
void expect_small(const Job& job, const StepPlan& plan, std::string_view option, int most_ranks) {
  if (plan.sequence() > most_ranks) {
    throw InputError(option, fmt::format("{} ranks are too many for one file (at most {})",
                                         plan.sequence(), most_ranks));
  }
  std::int64_t ops = 0;
  for (const Phase phase : phases_of(job.request.phase)) {
    ops += op_count(build(job, plan, phase));
  }
  if (ops > most_lines) {
    throw InputError(option,
                     fmt::format("{} ops of {} ranks are too many for one file (at most {})",
                                 human_count(ops), plan.sequence(), human_count(most_lines)));
  }
}

void write_schedules(const Job& job, const StepPlan& plan, const std::string& file) {
  std::string text;
  for (const Phase phase : phases_of(job.request.phase)) {
    text += to_text(build(job, plan, phase));
  }
  write_file(file, text);
}

void expect_few_passes(const StepPlan& plan, std::string_view option) {
  constexpr double lines_of_a_pass = 8;
  const double lines = lines_of_a_pass * 2 * plan.pipeline * plan.virtual_stages *
                       static_cast<double>(plan.micro_batches);
  if (lines > static_cast<double>(most_lines)) {
    throw InputError(
        option, fmt::format("{} micro-batches in {} virtual stages are too many for one file",
                            human_count(plan.micro_batches), plan.pipeline * plan.virtual_stages));
  }
}

/// A training step whole; else one attention call.
void write_trace(const Job& job, const StepPlan& plan, const std::string& file) {
  if (job.request.phase == StepPhase::train) {
    write_file(file, to_chrome_trace(
                         StepEvaluator(job.request).timeline(plan),
                         fmt::format("{}: {}, one step, predicted", job.title, short_name(plan))));
    return;
  }
  const AttentionQuestion question = attention_question(job.request, plan, job.request.problem);
  const Evaluation all =
      evaluate(question.request, plan.attention, {.fold = false, .timeline = true, .steps = false});
  Timeline timeline;
  if (all.forward && all.backward) {
    timeline = joined(all.forward->timeline, all.backward->timeline);
  } else if (all.forward || all.backward) {
    timeline = (all.forward ? all.forward : all.backward)->timeline;
  }
  write_file(file, to_chrome_trace(timeline, fmt::format("{}: {}, one attention call, predicted",
                                                         job.title, short_name(plan))));
}

/// Refuses a plan whose tensors take more than there is.
void expect_fits(const Job& job, const StepPlan& plan, const Prediction& p) {
  if (!p.fits) {
    throw Refusal(ExitCode::infeasible, does_not_fit(job, plan, p));
  }
}

/// Op by op nothing is said of memory: the step's cost knows it, where it can be told.
std::optional<Prediction> costed(const Job& job, const StepPlan& plan, Output& output) {
  try {
    return evaluate(job.request, plan).candidate.predicted;
  } catch (const InputError& e) {
    output.warn({fmt::format("whether it fits is not known: {}", e.what())});
    return std::nullopt;
  }
}

/// One layer of the model, or its whole step: every rank of it.
void simulate_layer(const Arguments& arguments, const Job& job, const StepPlan& plan,
                    const LayerQuestion& layer, Output& output) {
  const auto start = std::chrono::steady_clock::now();
  const auto trace = arguments.find("trace");
  EvaluationOptions options{
      .fold = !trace.has_value(), .timeline = trace.has_value(), .steps = true};
  const std::vector<LayerPhase> phases = phases_of(job.request, plan, layer, options.fold);
  expect_feasible(
      arguments,
      fmt::format("the simulation of {} over {} ranks", layer.subject(), layer.plan.ranks()),
      effort_of(phases), "one of fewer ranks takes less");
  double ops = 0;  // of all ranks
  for (const LayerPhase& phase : phases) {
    ops += phase.demand.ops;
  }
  for (const std::string_view option : {"trace", "dump-schedule"}) {
    if (arguments.has(option) && ops > static_cast<double>(most_lines)) {
      throw InputError(
          fmt::format("--{}", option),
          fmt::format("{} ops are too many for one file (at most {})",
                      human_count(static_cast<std::int64_t>(ops)), human_count(most_lines)));
    }
  }
  Evaluation evaluation;
  {
    Progress progress = output.progress("simulating", "ops");
    options.watch = progress.watch();
    evaluation = evaluate_layer(job.request, plan, layer, phases, options);
  }
  if (const auto file = arguments.find("dump-schedule")) {
    std::string text;
    for (const LayerPhase& phase : phases) {
      text += to_text(phase.schedule);
    }
    write_file(*file, text);
  }
  if (trace) {
    const Timeline timeline =
        evaluation.backward ? joined(evaluation.forward->timeline, evaluation.backward->timeline)
                            : evaluation.forward->timeline;
    write_file(*trace,
               to_chrome_trace(timeline, fmt::format("{}: {}, {}, predicted", job.title,
                                                     layer_name(plan, layer), layer.subject())));
  }
  const std::optional<Prediction> cost =
      layer.step ? costed(job, plan, output) : std::optional<Prediction>();
  const Seconds elapsed = std::chrono::steady_clock::now() - start;
  output.result(layer_document(job, plan, layer, evaluation, elapsed), [&](const Style& style) {
    return layer_table(job, plan, layer, evaluation, style);
  });
  if (cost) {
    expect_fits(job, plan, *cost);
  }
}

void simulate_command(const Arguments& given, Output& output) {
  Arguments arguments = given;
  const std::optional<SaidGroups> groups = adopt_plan_file(arguments, CostedOn::its_stack);
  Job job = read_job(arguments);
  output.warn(job.warnings);
  const StepPlan plan = read_plan(job);
  expect_groups(groups, plan);
  if (const auto layer = asked_layer(arguments, job, plan)) {
    output.warn(layer->notes);
    return simulate_layer(arguments, job, plan, *layer, output);
  }
  for (const std::string_view option : {"trace", "dump-schedule"}) {
    if (arguments.has(option)) {
      const std::string where = fmt::format("--{}", option);
      if (option == "trace" && job.request.phase == StepPhase::train) {
        expect_few_passes(plan, where);
      } else {
        expect_scheduled_attention(job.request);
        expect_small(job, plan, where, option == "trace" ? most_trace_ranks : most_gpus);
      }
    }
  }

  const auto start = std::chrono::steady_clock::now();
  expect_feasible(arguments, fmt::format("the simulation of {}", short_name(plan)),
                  effort_of(job.request, plan),
                  "one of fewer GPUs, or of shorter rings, takes less");
  Evaluation evaluation;
  {
    Progress progress = output.progress("simulating", "ops");
    evaluation =
        evaluate(job.request, plan,
                 {.fold = true, .timeline = false, .steps = true, .watch = progress.watch()});
    if (const auto file = arguments.find("dump-schedule")) {
      write_schedules(job, plan, *file);
    }
    if (const auto file = arguments.find("trace")) {
      write_trace(job, plan, *file);
    }
  }
  const Seconds elapsed = std::chrono::steady_clock::now() - start;

  output.result(simulation_document(job, evaluation, elapsed),
                [&](const Style& style) { return simulation_table(job, evaluation, style); });
  expect_fits(job, plan, evaluation.candidate.predicted);
}

}  // namespace

extern const Command simulate{
    .name = "simulate",
    .summary = "cost of one plan: where the time goes, step by step, and the memory",
    .description =
        "Simulates one plan op by op on the modelled machine: time of a step, what communication "
        "is exposed and "
        "where, memory by class of tensor. Degrees that are not given are 1 or follow from the "
        "others.",
    .arguments = "",
    .groups = simulate_groups,
    .options = simulate_options,
    .examples =
        "sp-plan simulate --model llama-3.1-8b --seq 128K --topology dgx-h100 --ulysses 4 --ring "
        "2 --zero 3 --recompute full\n"
        "sp-plan simulate --heads 32 --kv-heads 8 --seq 256K --topology dgx-h100 --strategy "
        "zigzag-ring "
        "--trace ring.json\n"
        "sp-plan plan --model llama-3.1-8b --seq 128K --topology dgx-h100 -o plan.json\n"
        "sp-plan simulate --plan plan.json --dump-schedule schedule.txt\n"
        "sp-plan simulate --model llama-3.1-8b --seq 32K --topology dgx-h100 --tp 2 --ulysses 4 "
        "--scope layer --trace layer.json",
    .run = simulate_command,
};

}  // namespace spp::cli::commands
