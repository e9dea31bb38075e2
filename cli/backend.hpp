// Which back ends do the work of run and calibrate: --device, --comm, --kernels, --ranks-per-gpu,
// --emulate-link, read alike.
#pragma once

#include "cli/options.hpp"
#include "runtime/comm/transport.hpp"
#include "runtime/device/device.hpp"
#include "runtime/kernels/attention.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spp::cli {

inline constexpr Option comm_option{
    "comm", "inproc|mpi|tcp|nccl",
    "how ranks talk: threads of this process; the processes that mpirun or srun started; those "
    "that torchrun's variables name (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT); NCCL, one GPU a "
    "rank, under any of these launchers or as threads (default: on "
    "GPUs nccl under any launcher, on CPUs mpi or tcp by who started several processes, else "
    "inproc)"};
inline constexpr Option device_option{"device", "cpu|cuda", "where kernels run (default: cpu)"};
inline constexpr Option kernels_option{
    "kernels", "NAME",
    "attention kernels: onednn or reference, on GPUs cudnn or reference (default: the first "
    "that can)"};
inline constexpr Option ranks_per_gpu_option{
    "ranks-per-gpu", "N",
    "ranks that share a GPU, each with its part of the SMs (inproc; default: as few as the "
    "GPUs here allow)"};
inline constexpr Option emulate_link_option{
    "emulate-link", "LATENCY:RATE[,…]",
    "links between ranks on GPUs (inproc): 5us:100GB/s, or inside nodes, between them and "
    "ranks a node: 5us:300GB/s,20us:50GB/s,4"};

inline constexpr Option timeout_option{
    "timeout", "SECONDS",
    "give up when nothing happens for so long; longer than any kernel of a GPU (default: 120)"};

/// Ranks that are threads of one process: more are no machine any more, only a crowd.
inline constexpr int most_threads = 1024;

enum class Device : std::uint8_t { cpu, cuda };
/// InputError names the option; Refusal if there is no GPU here.
Device device_of(const Arguments& arguments);

/// How ranks talk, and what starts them: with NCCL that is the control plane only.
struct Communication {
  std::string name;
  const runtime::TransportBackend* transport = nullptr;
};
/// What has started the ranks of a run, by what its launcher tells its processes; null: nothing
/// has. `comm` is --comm, or empty.
const runtime::TransportBackend* launcher_of(std::string_view comm, Device device);
/// Tasks of srun that would each run all ranks on their own are warned about.
Communication communication_of(const Arguments& arguments, Device device,
                               std::vector<std::string>& warnings);

/// This process among those that a launcher started, as the words behind the command choose it.
/// They are searched, not parsed: who is to say that they are wrong depends on it.
struct Launched {
  int ranks = 0;  // 0: no launcher, or one that does not concern these words
  int rank = 0;
};
Launched launched_by(const std::vector<std::string>& words);

/// Attention kernels of the host. Those that have to stand in for faster ones are warned about.
const runtime::AttentionBackend& kernels_of(const Arguments& arguments, DType dtype,
                                            std::vector<std::string>& warnings);

/// What is wanted of GPUs; kernels that were passed over are warned about.
runtime::device::DeviceOptions device_options(const Arguments& arguments, const Communication& comm,
                                              const Problem& problem,
                                              std::vector<std::string>& warnings);

/// --timeout.
Seconds timeout_of(const Arguments& arguments);

/// A whole number given as an option.
int whole(const Arguments& arguments, std::string_view option, int otherwise,
          std::int64_t least = 1, std::int64_t most = 1'000'000);

}  // namespace spp::cli
