// Two ranks over NCCL as torchrun would start them: processes of this machine.
#pragma once

#include "tests/cli/program.hpp"

#include <unistd.h>

#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace spp::test {

/// A checked run of a ring of two; `options` are those of a rank, to which torchrun's are added.
inline std::array<Result, 2> two_processes(const std::function<RunOptions(int rank)>& options) {
  const std::string port = std::to_string(20000 + ::getpid() % 20000);
  std::array<Result, 2> results;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      RunOptions of_rank = options(rank);
      of_rank.environment.merge(
          std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                             {"WORLD_SIZE", "2"},
                                             {"LOCAL_RANK", std::to_string(rank)},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"MASTER_PORT", port}});
      results[static_cast<std::size_t>(rank)] = sp_plan(
          "run --device cuda --comm nccl --kernels reference --heads 4 --kv-heads 2 "
          "--head-dim 64 --seq 512 --ulysses 1 --ring 2 --iters 2 --check --json",
          of_rank);
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  return results;
}

}  // namespace spp::test
