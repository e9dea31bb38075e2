// What NCCL asks of those who call it, as far as the stand-in on the host can tell (host_nccl.cpp).
#include "base/error.hpp"
#include "runtime/device/cuda/nccl.hpp"
#include "runtime/device/cuda/nccl_library.hpp"
#include "runtime/host_engine.hpp"
#include "tests/conformance/trials.hpp"
#include "tests/device/device.hpp"
#include "tests/device/host_cuda.hpp"
#include "tests/device/known_cases.hpp"
#include "tests/support/calibrations.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

/// Two ranks, each on a GPU, whose programs exchange with each other on two streams.
void run_pair(const ExecuteOptions& options, const std::function<void(const EngineParts&)>& body) {
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
    HostMemory memory(programs[self]);
    body({.transport = transport,
          .forward = {.schedule = schedule, .program = programs[self], .memory = memory},
          .backward = nullptr,
          .options = options,
          .forward_of_all = programs,
          .backward_of_all = none});
  });
}

}  // namespace

TEST_CASE("ops over NCCL start no threads, and nothing waits for a device on their way") {
  const int threads = host::seen().group_threads;
  const int late = host::seen().late_calls;
  for (const Case& c : known(cases(4, 2))) {
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

TEST_CASE("elapsed time over NCCL has nothing of what hosts do") {
  TrialRequest request;
  std::size_t ops = 0;
  for (const Case& c : known(cases(4, 2))) {
    TrialRequest other = trial_of(c);
    const std::size_t of_other = ops_of(other.forward->program(Rank(0))).size();
    // No more than stay behind the gate at the start.
    if (c.phase != Phase::backward && of_other > ops && of_other <= 128) {
      ops = of_other;
      request = std::move(other);
    }
  }
  REQUIRE(ops > 0);
  request.backward.reset();
  request.check = false;
  const auto engines =
      device::make_engines({.communication = device::Communication::nccl, .kernels = "reference"},
                           4, *request.transport);
  request.engines = engines.get();
  // An op takes three calls at least: two events, and a launch or a group.
  constexpr double least = 0.4;
  const host::With slow(host::settings().latency_us,
                        static_cast<std::int64_t>(least * 1e6 / (3 * static_cast<double>(ops))));
  const TrialResult result = run_trial(request);
  REQUIRE(result.complete);
  CHECK(result.forward->samples.front().count() < least / 2);
}

TEST_CASE("messages that are timed over NCCL have nothing of hosts, however many there are") {
  CalibrationRequest request = small_calibration(2);
  request.suites = {"links"};
  request.budget = Seconds(0.01);
  const auto engines =
      device::make_engines({.communication = device::Communication::nccl, .kernels = "reference"},
                           2, *request.transport);
  request.engines = engines.get();
  // A message takes eight calls: two events, and a group of sends and receives.
  constexpr double call = 0.5e-3;
  const host::With slow(host::settings().latency_us, static_cast<std::int64_t>(call * 1e6));
  const Calibration calibration = calibrate(request);
  check_samples(calibration);
  CHECK(calibration.series.at("links").size() > 10);  // of some 14 ops each
  for (const Series& s : calibration.series.at("links")) {
    INFO(s.what << " " << s.size);
    CHECK(*std::ranges::min_element(s.seconds) < 4 * call / 2);
  }
}

TEST_CASE("memory that NCCL takes counts: what fits with it runs, and less is refused before") {
  // As an all-to-all of 8 H100 takes it: 7 peers, both ways, 3.28 GB (NVIDIA/nccl issue 1685).
  constexpr std::size_t channels_of_a_way = std::size_t{32} * 7 << 20;
  const host::With channels(host::settings().nccl_channels, channels_of_a_way);
  for (const Case& c : known(cases(4, 1))) {
    if (c.phase == Phase::backward || !c.strategy().backward) {
      continue;
    }
    INFO(c.text());
    TrialRequest request = trial_of(c);
    const std::vector<StoredProgram> forward = store(*request.forward);
    const std::vector<StoredProgram> backward = store(*request.backward);
    const std::array phases{&forward, &backward};
    const auto run_in = [&](Bytes memory) {
      const host::With size(host::settings().memory, static_cast<std::size_t>(memory.value()));
      const auto engines = device::make_engines(
          {.communication = device::Communication::nccl, .kernels = "reference"}, 4,
          *request.transport);
      request.engines = engines.get();
      TrialResult result = run_trial(request);
      return std::pair(std::move(result), engines->report().communication_workspaces);
    };
    const auto engines =
        device::make_engines({.communication = device::Communication::nccl, .kernels = "reference"},
                             4, *request.transport);
    Bytes most{};
    for (int r = 0; r < 4; ++r) {
      const auto at = static_cast<std::size_t>(r);
      most = std::max(most, memory_needed(forward[at]) + memory_needed(backward[at]) +
                                engines->beside_buffers(Rank(r), *request.forward, phases));
    }
    constexpr Bytes rest{1 << 16};  // events' clocks, what rounding up costs
    const auto [result, of_nccl] = run_in(most + rest);
    CHECK(failures(result) == "");
    CHECK(of_nccl >= Bytes(static_cast<std::int64_t>(2 * channels_of_a_way)));
    CHECK(run_in(most - rest).first.refused.find("of memory left") != std::string::npos);
  }
}

TEST_CASE("an all-to-all wants memory for every peer, a ring for its neighbours") {
  Case c;
  for (const Case& other : known(cases(8, 2))) {
    if (other.strategy().name == "ulysses" && other.phase != Phase::backward) {
      c = other;
    }
  }
  REQUIRE(c.strategy().name == "ulysses");
  const TrialRequest request = trial_of(c);
  const std::vector<StoredProgram> forward = store(*request.forward);
  const std::array phases{&forward};
  const auto engines =
      device::make_engines({.communication = device::Communication::nccl, .kernels = "reference"},
                           8, *request.transport);
  const double needed = engines->beside_buffers(Rank(0), *request.forward, phases).as_double();
  CHECK(needed >= 3.28e9);  // as was seen
}

TEST_CASE("ranks whose kernels wait in several communicators can be aborted") {
  const int stuck = host::seen().stuck_aborts;
  run_pair({}, [&](const EngineParts& parts) {
    Transport& transport = parts.transport;
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

TEST_CASE("a call that waits for a peer inside of NCCL while communicators are made is ended") {
  static std::atomic<int> aborted = 0;  // communicators; a function of C has nothing else
  cuda::NcclApi api = cuda::nccl_api();
  api.split = [](ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*) {
    while (aborted == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return ncclSystemError;
  };
  api.abort = [](ncclComm_t comm) {
    ++aborted;
    return cuda::nccl_api().abort(comm);
  };
  CHECK_THROWS_AS(
      run_pair({.timeout = Seconds(0.2)},
               [&](const EngineParts& parts) { (void)cuda::make_nccl_communicator(parts, api); }),
      BackendError);
  CHECK(aborted > 0);
}

TEST_CASE("a communicator that the watchdog ends while it is closed is not asked any more") {
  static std::mutex mutex;
  static std::set<ncclComm_t> closing;
  static std::set<ncclComm_t> ended;
  static int asked_after = 0;
  cuda::NcclApi api = cuda::nccl_api();
  api.finalize = [](ncclComm_t comm) {
    const std::scoped_lock lock(mutex);
    closing.insert(comm);
    return ncclInProgress;  // for ever: a peer does not come
  };
  api.async_error = [](ncclComm_t comm, ncclResult_t* state) {
    const std::scoped_lock lock(mutex);
    asked_after += ended.contains(comm) ? 1 : 0;
    if (closing.contains(comm)) {
      *state = ncclInProgress;
      return ncclSuccess;
    }
    return cuda::nccl_api().async_error(comm, state);
  };
  api.abort = [](ncclComm_t comm) {
    const std::scoped_lock lock(mutex);
    ended.insert(comm);
    return cuda::nccl_api().abort(comm);
  };
  run_pair({.timeout = Seconds(0.5)},
           [&](const EngineParts& parts) { (void)cuda::make_nccl_communicator(parts, api); });
  CHECK_FALSE(ended.empty());
  CHECK(asked_after == 0);
}
