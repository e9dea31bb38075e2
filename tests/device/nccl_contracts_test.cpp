// What NCCL asks of those who call it, as far as the stand-in on the host can tell (host_nccl.cpp).
#include "runtime/device/cuda/nccl.hpp"
#include "runtime/host_engine.hpp"
#include "tests/conformance/trials.hpp"
#include "tests/device/device.hpp"
#include "tests/device/host_cuda.hpp"
#include "tests/support/catch.hpp"

#include <array>

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

TEST_CASE("ops over NCCL start no threads, and nothing waits for a device on their way") {
  const int threads = host::seen().group_threads;
  const int late = host::seen().late_calls;
  for (const Case& c : cases(4, 2)) {
    if (c.phase == Phase::backward) {
      continue;
    }
    INFO(c.text());
    TrialRequest request = trial_of(c);
    const auto engines =
        device::make_engines({.communication = device::Communication::nccl, .kernels = "reference"},
                             4, *request.transport);
    request.engines = engines.get();
    CHECK(failures(run_trial(request)) == "");
  }
  CHECK(host::seen().group_threads == threads);
  CHECK(host::seen().late_calls == late);
}

TEST_CASE("memory that NCCL takes counts before anything is allocated") {
  for (const Case& c : cases(4, 1)) {
    const TrialRequest request = trial_of(c);
    const std::vector<StoredProgram> forward = store(*request.forward);
    const std::array phases{&forward};
    const auto needed = [&](device::Communication communication) {
      const auto engines = device::make_engines(
          {.communication = communication, .kernels = "reference"}, 4, *request.transport);
      return engines->beside_buffers(Rank(0), *request.forward, phases);
    };
    INFO(c.text());
    // At least one communicator of 256 MiB.
    CHECK(needed(device::Communication::nccl) >=
          needed(device::Communication::inproc) + Bytes(std::int64_t{256} << 20));
  }
}

TEST_CASE("ranks whose kernels wait in several communicators can be aborted") {
  const int stuck = host::seen().stuck_aborts;
  std::vector<StoredProgram> programs;
  for (int r = 0; r < 2; ++r) {
    StoredProgram program{.rank = Rank(r), .buffers = {}, .arena = {}, .ops = {}};
    const Exchange exchange{.to = Rank(1 - r), .from = Rank(1 - r), .send = {}, .receive = {}};
    for (int stream = 1; stream <= 2; ++stream) {
      StoredOp stored;
      stored.op = {StreamId(stream), exchange};
      program.ops.push_back(stored);
    }
    programs.push_back(program);
  }
  const std::vector<StoredProgram> none;
  const Schedule schedule;
  transports::by_name("inproc", "test").run(2, [&](Transport& transport) {
    const std::size_t self = transport.rank().index();
    cuda::use_device(transport.rank().value);
    HostMemory memory(programs[self], schedule.problem);
    const ExecuteOptions options;
    const EngineParts parts{
        .transport = transport,
        .forward = {.schedule = schedule, .program = programs[self], .memory = memory},
        .backward = nullptr,
        .options = options,
        .forward_of_all = programs,
        .backward_of_all = none};
    const auto communicator = cuda::make_nccl_communicator(parts);
    const cuda::Stream first(0);
    const cuda::Stream second(0);
    const cuda::DeviceBuffer bytes(512);
    if (transport.rank().value == 0) {
      // Rank 1 never answers.
      const std::span<std::byte> all(bytes.data(), bytes.size());
      for (int stream = 1; stream <= 2; ++stream) {
        communicator->exchange(
            {.stream = stream == 1 ? first.get() : second.get(),
             .stream_id = StreamId(stream),
             .op = stream - 1,
             .name = "exchange"},
            {.to = Rank(1), .from = Rank(1), .send = {all.first(256)}, .receive = {all.last(256)}});
      }
      communicator->abort();
      first.synchronize();
      second.synchronize();
    }
    transport.barrier();
  });
  CHECK(host::seen().stuck_aborts == stuck);
}
