// What launchers tell: numbers that are numbers, in their ranges; else what is wrong, in words.
#include "runtime/comm/launcher.hpp"
#include "runtime/comm/transport.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

using namespace spp::runtime;

namespace {

/// Only these of all variables that launchers set, for as long as it lives.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) {
    for (const char* name : all) {
      const char* value = std::getenv(name);
      before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      const auto now = variables.find(name);
      set(name, now == variables.end() ? std::nullopt : std::optional(now->second));
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) {
      set(name, value);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static constexpr std::array all{"RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_WORLD_SIZE",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_RANK",
                                  "PMI_SIZE",
                                  "PMI_RANK",
                                  "PMIX_RANK",
                                  "SLURM_PROCID",
                                  "SLURM_STEP_NUM_TASKS",
                                  "SLURM_NTASKS",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_ID",
                                  "TORCHELASTIC_RUN_ID",
                                  "TORCHELASTIC_RESTART_COUNT",
                                  "SP_PLAN_JOB_TOKEN"};
  static void set(const std::string& name, const std::optional<std::string>& value) {
    if (value) {
      ::setenv(name.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name.c_str());
    }
  }
  std::map<std::string, std::optional<std::string>> before_;
};

std::map<std::string, std::string> torch(const std::string& name = "",
                                         const std::string& value = "") {
  std::map<std::string, std::string> variables{
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
  if (!name.empty()) {
    variables[name] = value;
  }
  return variables;
}

/// What is wrong when one of torchrun's variables has this value; the transport says the same.
std::string wrong(const std::string& name, const std::string& value) {
  const Environment environment(torch(name, value));
  const TransportBackend& tcp = transports::by_name("tcp", "test");
  CHECK(tcp.launched());
  CHECK(tcp.launched_ranks() == 0);
  CHECK(tcp.launched_rank() == (name == "MASTER_PORT" || name == "MASTER_ADDR" ? 1 : 0));
  CHECK(tcp.why_not() == launched_by_torchrun().wrong);
  return launched_by_torchrun().wrong;
}

}  // namespace

TEST_CASE("torchrun's variables are read, all four or none") {
  {
    const Environment environment(torch());
    const TorchLaunch launch = launched_by_torchrun();
    CHECK(launch.ranks == 2);
    CHECK(launch.rank == 1);
    CHECK(launch.master == "node1");
    CHECK(launch.port == 29500);
    CHECK_FALSE(launch.one_host);
    CHECK(launch.wrong.empty());
  }
  {
    const Environment environment(torch("LOCAL_WORLD_SIZE", "2"));
    CHECK(launched_by_torchrun().one_host);
  }
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    auto variables = torch("RANK", "garbage");
    variables.erase(name);
    const Environment environment(variables);
    CHECK_FALSE(launched_by_torchrun().found());
  }
}

TEST_CASE("wrong variables of torchrun are told with name, value and range") {
  CHECK(wrong("MASTER_PORT", "abc") ==
        "MASTER_PORT is 'abc', not a whole number from 1 to 65534 "
        "(rank 0 listens on the port behind it)");
  for (const char* port :
       {"65535", "0", "99999999999", "-1", "+80", " 80", "80 ", "0x50", "", "8e1"}) {
    CHECK(wrong("MASTER_PORT", port).find("MASTER_PORT is '" + std::string(port) + "', not") == 0);
  }
  CHECK(wrong("RANK", "-1") == "RANK is '-1', not a whole number from 0 to 1 (WORLD_SIZE is 2)");
  CHECK(wrong("RANK", "5") == "RANK is '5', not a whole number from 0 to 1 (WORLD_SIZE is 2)");
  CHECK(wrong("RANK", "2").find("RANK is '2', not") == 0);
  CHECK(wrong("WORLD_SIZE", "0").find("WORLD_SIZE is '0', not a whole number from 1 to") == 0);
  CHECK(wrong("WORLD_SIZE", "4294967298").find("WORLD_SIZE is '4294967298', not") == 0);
  CHECK(wrong("MASTER_ADDR", "").find("MASTER_ADDR is empty") == 0);
  CHECK(wrong("RANK", "\x1b[31m\n").find("RANK is '?[31m?', not") == 0);
  CHECK(wrong("RANK", std::string(1000, '9')).size() < 200);
}

TEST_CASE("variables of Open MPI, MPICH and srun are read alike, and wrong ones are told") {
  const auto launch = [](const std::map<std::string, std::string>& variables) {
    const Environment environment(variables);
    return launched_by_mpi();
  };
  CHECK_FALSE(launch({}).found());
  CHECK_FALSE(launch({{"SLURM_PROCID", "x"}, {"SLURM_NTASKS", "y"}}).found());  // a batch script
  const Launch open = launch({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}});
  CHECK(open.ranks == 4);
  CHECK(open.rank == 3);
  CHECK(launch({{"PMI_SIZE", "4"}, {"PMI_RANK", "2"}}).rank == 2);
  const Launch srun = launch({{"SLURM_PROCID", "1"}, {"PMIX_RANK", "1"}, {"SLURM_NTASKS", "8"}});
  CHECK(srun.ranks == 8);
  CHECK(srun.rank == 1);
  CHECK(launch({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "4"}}).wrong ==
        "OMPI_COMM_WORLD_RANK is '4', not a whole number from 0 to 3 (OMPI_COMM_WORLD_SIZE is 4)");
  CHECK(launch({{"PMI_SIZE", "two"}, {"PMI_RANK", "0"}}).wrong.find("PMI_SIZE is 'two', not") == 0);
  CHECK(launch({{"SLURM_PROCID", "-1"}, {"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}})
            .wrong.find("SLURM_PROCID is '-1', not") == 0);
}

TEST_CASE("the job token is the secret, else torchrun's id, else Slurm's") {
  const auto token = [](const std::map<std::string, std::string>& variables) {
    const Environment environment(variables);
    return job_token();
  };
  CHECK(token({}).variable.empty());
  CHECK(token({}).value.empty());
  std::map<std::string, std::string> ids{{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}};
  CHECK(token(ids).variable == "SLURM_JOB_ID");
  CHECK(token(ids).value == "SLURM_JOB_ID 7 0");
  ids["TORCHELASTIC_RUN_ID"] = "none";
  ids["TORCHELASTIC_RESTART_COUNT"] = "1";
  CHECK(token(ids).value == "TORCHELASTIC_RUN_ID none 1");
  ids["SP_PLAN_JOB_TOKEN"] = "secret";
  CHECK(token(ids).variable == "SP_PLAN_JOB_TOKEN");
  CHECK(token(ids).value == "secret");
}
