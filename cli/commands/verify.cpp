// sp-plan verify: the proof of one schedule, or the counter-example.
#include "base/error.hpp"
#include "base/file.hpp"
#include "cli/command.hpp"
#include "cli/layer_job.hpp"
#include "cli/limits.hpp"
#include "cli/plan_file.hpp"
#include "cli/report_json.hpp"
#include "cli/report_table.hpp"
#include "planner/step.hpp"
#include "schedule/arena.hpp"
#include "schedule/demand.hpp"
#include "schedule/storage.hpp"
#include "schedule/text.hpp"

#include <algorithm>
#include <array>
#include <chrono>

namespace spp::cli::commands {
namespace {

constexpr std::array verify_groups{OptionGroup::work, OptionGroup::machine, OptionGroup::degrees,
                                   OptionGroup::plan_file};
constexpr std::array verify_options{
    scope_option,
    Option{"schedule", "FILE",
           "a schedule as text ('simulate --dump-schedule'), instead of a plan"},
    force_option,
};

/// Refuses what does not fit into this machine or takes too long: all phases, before the first.
void expect_provable(const Arguments& arguments, const std::string& subject,
                     const std::vector<Schedule>& schedules) {
  constexpr double of_walking = 2;  // an op of a proof, in those of a simulation
  constexpr double of_pair = 0.1;   // atoms that meet
  Effort all;
  for (const Schedule& schedule : schedules) {
    const Demand demand = demand_of(schedule);
    const double atoms = token_atoms_of(schedule);
    all.ops += of_walking * demand.ops + of_pair * atoms * atoms * schedule.grain.heads.parts();
    all.memory = std::max(all.memory, proof_memory(schedule));
  }
  expect_feasible(arguments, fmt::format("the proof of {}", subject), all,
                  "a proof over fewer ranks needs less");
}

/// A proof takes the program of every rank: a text that lacks one ends here, before anything is
/// built for as many ranks as it says.
void expect_programs(const Schedule& schedule) {
  for (int r = 0; r < schedule.mesh.size(); ++r) {
    (void)schedule.program(Rank(r));
  }
}

Verified verified(const Schedule& schedule, const Output& output) {
  const std::string phase(to_string(schedule.contract.phase));
  Verified v{.phase = phase, .proof = {}, .peak_memory = {}};
  {
    Progress progress = output.progress(fmt::format("proving {},", phase), "ops");
    v.proof = prove(schedule, progress.watch());
  }
  if (v.proof.proven) {
    Progress progress = output.progress(fmt::format("order of rows of {},", phase), "ops");
    v.proof.counter_example = misplaced(schedule, progress.watch());
    v.proof.proven = v.proof.counter_example.empty();
  }
  if (v.proof.proven) {
    Progress progress = output.progress(fmt::format("memory of {},", phase), "ranks");
    v.peak_memory = most_memory(schedule, progress.watch());
  }
  return v;
}

/// A file holds one schedule after the other, each under its line "sp-plan/schedule …". What stands
/// before a piece is replaced by empty lines, so that complaints name the lines of the file.
std::vector<Schedule> read_schedules(const std::string& file) {
  const std::string text = read_text_file(file, "--schedule", {.most = most_lines_text});
  constexpr std::string_view heading = "\nsp-plan/schedule ";
  std::vector<Schedule> schedules;
  std::size_t begin = 0;
  while (begin < text.size() || schedules.empty()) {
    const std::size_t at = text.find(heading, begin);
    const std::size_t end = at == std::string::npos ? text.size() : at + 1;
    const auto lines =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin), '\n');
    const std::string piece =
        std::string(static_cast<std::size_t>(lines), '\n') + text.substr(begin, end - begin);
    schedules.push_back(parse_schedule(piece, file));
    expect_programs(schedules.back());
    begin = end;
  }
  return schedules;
}

Verification verify_all(const Arguments& arguments, const std::string& subject,
                        const std::vector<Schedule>& schedules, const Output& output) {
  expect_provable(arguments, subject, schedules);
  Verification result{.subject = subject, .schedules = {}};
  for (const Schedule& schedule : schedules) {
    result.schedules.push_back(verified(schedule, output));
  }
  return result;
}

/// Of one tensor rank's attention, or of a layer or step.
std::vector<Schedule> schedules_of(const Job& job, const StepPlan& plan,
                                   const std::optional<LayerQuestion>& layer) {
  const SequencePlan& attention = plan.attention;
  const Strategy& strategy = strategies::by_name(attention.strategy, "--strategy");
  const Problem problem = attention_problem(job.request, plan, job.request.problem);
  std::vector<Schedule> schedules;
  for (const Phase phase : layer ? layer->phases : phases_of(job.request.phase)) {
    schedules.push_back(layer ? layer->schedule(phase)
                              : strategy.build(problem, attention, phase, job.request.build));
  }
  return schedules;
}

void refuse(const Verification& verification) {
  const auto bad = std::ranges::find_if(verification.schedules,
                                        [](const Verified& v) { return !v.proof.proven; });
  if (bad != verification.schedules.end()) {
    throw Refusal(ExitCode::refused, fmt::format("{} ({}) is refuted: {}", verification.subject,
                                                 bad->phase, bad->proof.counter_example));
  }
}

void verify_command(const Arguments& given, Output& output) {
  Arguments arguments = given;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return Seconds(std::chrono::steady_clock::now() - start); };
  if (const auto file = arguments.find("schedule")) {
    const auto is_said = [&](const Option& option) {
      return std::ranges::find(verify_groups, option.group) != verify_groups.end() &&
             arguments.has(option.name);
    };
    std::vector<Option> options(shared_options().begin(), shared_options().end());
    options.push_back(scope_option);
    options.back().group = OptionGroup::work;
    if (const auto said = std::ranges::find_if(options, is_said); said != options.end()) {
      throw InputError(fmt::format("--{}", said->name),
                       "given together with --schedule, whose file says it already");
    }
    arguments.expect_no_positionals();
    const Verification verification = verify_all(arguments, *file, read_schedules(*file), output);
    output.result(
        verification_document(verification, nullptr, nullptr, elapsed()),
        [&](const Style& style) { return verification_table(verification, nullptr, style); });
    refuse(verification);
    return;
  }
  const std::optional<SaidGroups> groups = adopt_plan_file(arguments, CostedOn::nothing);
  Job job = read_job(arguments, MachineNeed::optional);
  output.warn(job.warnings);
  const StepPlan plan = read_plan(job);
  expect_groups(groups, plan);
  const std::optional<LayerQuestion> layer = asked_layer(arguments, job, plan);
  if (!layer) {
    expect_scheduled_attention(job.request);
  }
  output.warn(layer ? layer->notes : std::vector<std::string>());
  const Verification verification =
      verify_all(arguments, layer ? layer_name(plan, *layer) : short_name(plan),
                 schedules_of(job, plan, layer), output);
  output.result(verification_document(verification, &job, &plan, elapsed()),
                [&](const Style& style) { return verification_table(verification, &job, style); });
  refuse(verification);
}

}  // namespace

extern const Command verify{
    .name = "verify",
    .summary = "prove one schedule: coverage, matching, deadlock, memory",
    .description =
        "Runs the schedule of one plan symbolically over all ranks and proves that it computes "
        "attention: every "
        "allowed pair of query and key is met exactly once, every message has its receiver, nobody "
        "waits for "
        "ever; of a layer or a step (--scope) also that every part of each product, of each "
        "gradient and of each parameter's gradient is there once, and every parameter is updated "
        "once, everywhere; and that rows lie in the order that each op needs. If there is a "
        "counter-example it is printed, and "
        "the exit code is 4. No machine is "
        "needed.",
    .arguments = "",
    .groups = verify_groups,
    .options = verify_options,
    .examples =
        "sp-plan verify --heads 8 --seq 4K --ulysses 2 --ring 4\n"
        "sp-plan verify --heads 8 --seq 4K --strategy startrail --ring 8 --team 2\n"
        "sp-plan verify --plan plan.json\n"
        "sp-plan verify --model llama-3.1-8b --seq 4K --tp 2 --ulysses 2 --ring 2 --scope layer\n"
        "sp-plan verify --schedule schedule.txt",
    .run = verify_command,
};

}  // namespace spp::cli::commands
