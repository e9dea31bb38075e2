// sp-plan verify: the proof of one schedule, or the counter-example.
#include "base/error.hpp"
#include "base/file.hpp"
#include "cli/command.hpp"
#include "cli/plan_file.hpp"
#include "cli/report_json.hpp"
#include "cli/report_table.hpp"
#include "schedule/arena.hpp"
#include "schedule/text.hpp"

#include <algorithm>
#include <array>
#include <chrono>

namespace spp::cli::commands {
namespace {

constexpr std::array groups{OptionGroup::work, OptionGroup::machine, OptionGroup::degrees,
                            OptionGroup::plan_file};
constexpr std::array options{
    Option{"schedule", "FILE",
           "a schedule as text ('simulate --dump-schedule'), instead of a plan"},
};

Bytes peak_memory(const Schedule& schedule) {
  Bytes peak{};
  for (int r = 0; r < schedule.mesh.size(); ++r) {
    peak = std::max(peak, plan_arena(schedule.program(Rank(r)), schedule.problem).total());
  }
  return peak;
}

/// A proof takes the program of every rank: a text that lacks one ends here, before anything is
/// built for as many ranks as it says.
void expect_programs(const Schedule& schedule) {
  for (int r = 0; r < schedule.mesh.size(); ++r) {
    (void)schedule.program(Rank(r));
  }
}

Verified verified(const Schedule& schedule) {
  Verified v{
      .phase = std::string(to_string(schedule.phase)), .proof = prove(schedule), .peak_memory = {}};
  if (v.proof.proven) {
    v.peak_memory = peak_memory(schedule);
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
    begin = end;
  }
  return schedules;
}

Verification verify_file(const std::string& file) {
  Verification result{.subject = file, .schedules = {}};
  for (const Schedule& schedule : read_schedules(file)) {
    expect_programs(schedule);
    result.schedules.push_back(verified(schedule));
  }
  return result;
}

Verification verify_plan(const Job& job, const SequencePlan& plan) {
  Verification result{.subject = short_name(plan), .schedules = {}};
  const Strategy& strategy = strategies::by_name(plan.strategy, "--strategy");
  for (const Phase phase : phases_of(job.request.phase)) {
    result.schedules.push_back(
        verified(strategy.build(job.request.problem, plan, phase, job.request.build)));
  }
  return result;
}

void refuse(const Verification& verification) {
  const auto bad = std::ranges::find_if(verification.schedules,
                                        [](const Verified& v) { return !v.proof.proven; });
  if (bad != verification.schedules.end()) {
    throw Refusal(ExitCode::refused, fmt::format("{} ({}) is refuted: {}", verification.subject,
                                                 bad->phase, bad->proof.counter_example));
  }
}

void run(const Arguments& given, Output& output) {
  Arguments arguments = given;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return Seconds(std::chrono::steady_clock::now() - start); };
  if (const auto file = arguments.find("schedule")) {
    for (const std::string_view option : {"plan", "model", "seq", "strategy", "ulysses", "ring"}) {
      if (arguments.has(option)) {
        throw InputError(fmt::format("--{}", option),
                         "given together with --schedule, whose file says it already");
      }
    }
    arguments.expect_no_positionals();
    Verification verification;
    {
      const Progress progress("proving", output.quiet());
      verification = verify_file(*file);
    }
    output.result(
        verification_document(verification, nullptr, nullptr, elapsed()),
        [&](const Style& style) { return verification_table(verification, nullptr, style); });
    refuse(verification);
    return;
  }
  adopt_plan_file(arguments);
  Job job = read_job(arguments, MachineNeed::optional);
  const SequencePlan plan = read_plan(job);
  Verification verification;
  {
    const Progress progress("proving", output.quiet());
    verification = verify_plan(job, plan);
  }
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
        "ever. If there is a counter-example it is printed, and the exit code is 4. No machine is "
        "needed.",
    .arguments = "",
    .groups = groups,
    .options = options,
    .examples =
        "sp-plan verify --heads 8 --seq 4K --ulysses 2 --ring 4\n"
        "sp-plan verify --heads 8 --seq 4K --strategy startrail --ring 8 --team 2\n"
        "sp-plan verify --plan plan.json\n"
        "sp-plan verify --schedule schedule.txt",
    .run = run,
};

}  // namespace spp::cli::commands
