#include "runtime/comm/launcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace spp::runtime {
namespace {

constexpr int most_ranks = 1 << 20;
constexpr int most_port = 65534;  // the port behind it is listened on

std::optional<std::string> variable(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

/// Digits only.
std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool digits =
      !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  return digits && error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                            : std::nullopt;
}

/// What people see of a variable: short, and in one line.
std::string shown(std::string_view text) {
  constexpr std::size_t most = 40;
  std::string line(text.substr(0, most));
  std::ranges::replace_if(line, [](char c) { return c < ' ' || c > '~'; }, '?');
  return line + (text.size() > most ? "..." : "");
}

/// A variable that has to be a number in [least, most]; else `wrong` says so.
int number_of(const char* name, int least, int most, std::string& wrong,
              std::string_view because = "") {
  const std::string text = variable(name).value_or("");
  const auto value = whole_number(text);
  if (value && *value >= least && *value <= most) {
    return *value;
  }
  if (wrong.empty()) {
    wrong = fmt::format("{} is '{}', not a whole number from {} to {}{}", name, shown(text), least,
                        most, because);
  }
  return 0;
}

/// Ranks by the first variable, this rank by the second.
Launch launch_of(const char* ranks, const char* rank) {
  Launch launch;
  const int count = number_of(ranks, 1, most_ranks, launch.wrong);
  if (launch.wrong.empty()) {
    launch.rank =
        number_of(rank, 0, count - 1, launch.wrong, fmt::format(" ({} is {})", ranks, count));
  }
  if (launch.wrong.empty()) {
    launch.ranks = count;
  }
  return launch;
}

bool is_set(const char* name) { return variable(name).has_value(); }

}  // namespace

Launch launched_by_mpi() {
  if (is_set("OMPI_COMM_WORLD_SIZE")) {
    return launch_of("OMPI_COMM_WORLD_SIZE",
                     is_set("OMPI_COMM_WORLD_RANK") ? "OMPI_COMM_WORLD_RANK" : "PMIX_RANK");
  }
  if (is_set("PMI_SIZE")) {  // MPICH, srun's PMI-2
    return launch_of("PMI_SIZE", "PMI_RANK");
  }
  if (is_set("SLURM_PROCID") && (is_set("PMIX_RANK") || is_set("PMI_RANK"))) {  // srun --mpi=pmix
    return launch_of(is_set("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
                     "SLURM_PROCID");
  }
  return {};
}

TorchLaunch launched_by_torchrun() {
  TorchLaunch launch;
  if (!std::ranges::all_of(std::array{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
                           is_set)) {
    return launch;
  }
  static_cast<Launch&>(launch) = launch_of("WORLD_SIZE", "RANK");
  launch.port = number_of("MASTER_PORT", 1, most_port, launch.wrong,
                          " (rank 0 listens on the port behind it)");
  launch.master = *variable("MASTER_ADDR");
  if (launch.master.empty() && launch.wrong.empty()) {
    launch.wrong = "MASTER_ADDR is empty, not the name or address of rank 0's host";
  }
  if (!launch.wrong.empty()) {
    launch.ranks = 0;  // who this is may be known all the same: one of all ranks will complain
  }
  launch.one_host =
      launch.ranks > 0 && whole_number(variable("LOCAL_WORLD_SIZE").value_or("")) == launch.ranks;
  return launch;
}

JobToken job_token() {
  if (const auto secret = variable("SP_PLAN_JOB_TOKEN"); secret && !secret->empty()) {
    return {.variable = "SP_PLAN_JOB_TOKEN", .value = *secret};
  }
  struct Ids {
    const char *job, *part;
  };
  for (const auto& [job, part] : {Ids{"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
                                  Ids{"SLURM_JOB_ID", "SLURM_STEP_ID"}}) {
    if (const auto id = variable(job)) {
      return {.variable = job,
              .value = fmt::format("{} {} {}", job, *id, variable(part).value_or(""))};
    }
  }
  return {};
}

int srun_tasks() { return whole_number(variable("SLURM_STEP_NUM_TASKS").value_or("")).value_or(0); }

}  // namespace spp::runtime
