// One list of contracts, hence one file.
//
// What CUDA and cuDNN ask of those who call them, and what a GPU would make of the calls: the
// stand-ins on the host (host_cuda.hpp) count, refuse and run out.
#include "base/error.hpp"
#include "runtime/device/cuda/green_context.hpp"
#include "runtime/device/cuda/kernels.hpp"
#include "runtime/device/device.hpp"
#include "runtime/kernels/cudnn/sdpa.hpp"
#include "tests/conformance/layer_trials.hpp"
#include "tests/device/device.hpp"
#include "tests/device/host_cuda.hpp"
#include "tests/device/known_cases.hpp"
#include "tests/support/calibrations.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/patience.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

using namespace spp;
using namespace spp::runtime;
using namespace spp::test;

namespace {

struct Outcome {
  TrialResult result;
  device::DeviceReport report;
  std::vector<std::string> warnings;
};

/// All ranks on one GPU.
Outcome run(TrialRequest request, const std::string& kernels, Seconds timeout = Seconds(60)) {
  const int ranks = request.forward->mesh.size();
  const auto engines =
      device::make_engines({.kernels = kernels, .ranks_per_gpu = ranks}, ranks, *request.transport);
  request.engines = engines.get();
  request.execution.timeout = timeout;
  Outcome outcome{.result = run_trial(request), .report = engines->report(), .warnings = {}};
  outcome.warnings = engines->warnings();
  return outcome;
}

/// Both phases, so without those of the backward alone.
std::vector<Case> trials(int ranks, std::size_t most) {
  std::vector<Case> all = known(cases(ranks, most));
  std::erase_if(all, [](const Case& c) { return c.phase == Phase::backward; });
  return all;
}

/// One that cuDNN can do.
Case half_precision(int ranks) {
  for (Case c : trials(ranks, 6)) {
    c.problem.dtype = DType::bf16;
    c.problem.head_dim = 16;
    if (c.problem.mask.kind != MaskKind::window && c.strategy().name == "ring") {
      return c;
    }
  }
  throw InternalError("no such case");
}

bool has_cudnn() {
  const std::vector<std::string> names = device::compiled();
  return std::ranges::find(names, "cudnn") != names.end();
}

/// Kernels that can run here.
std::vector<std::string> kernels_here() {
  std::vector<std::string> names = device::kernel_names();
  std::erase_if(names, [](const std::string& name) { return name == "cudnn" && !has_cudnn(); });
  return names;
}

bool mentions(const std::vector<std::string>& lines, std::string_view text) {
  return std::ranges::any_of(
      lines, [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("while work on a device waits for somebody, nothing is allocated, loaded or compiled") {
  const int late = host::seen().late_calls;
  for (const std::string& kernels : kernels_here()) {
    for (Case c : trials(4, 3)) {
      c.problem.dtype = DType::bf16;
      c.problem.head_dim = 16;
      if (kernels == "cudnn" && c.problem.mask.kind == MaskKind::window) {
        continue;
      }
      INFO(kernels << " " << c.text());
      TrialRequest request = trial_of(c);
      request.iterations = 2;
      const Outcome o = run(request, kernels);
      CHECK(failures(o.result) == "");
    }
  }
  CHECK(host::seen().late_calls == late);
}

TEST_CASE("memory that is taken while a transfer waits is seen to be late") {
  const cuda::Stream held(0);
  const cuda::DeviceBuffer clock(sizeof(std::uint64_t));
  auto* const at = reinterpret_cast<std::uint64_t*>(clock.data());
  cuda::stamp(at, held.get());
  held.synchronize();
  const int late = host::seen().late_calls;
  cuda::hold_until(at, Seconds(0.5), held.get());
  const cuda::DeviceBuffer taken(256);
  CHECK(host::seen().late_calls == late + 1);
  held.synchronize();
}

TEST_CASE("elapsed time has nothing of what hosts do") {
  const auto ops = [](const TrialRequest& request) {
    return static_cast<double>(ops_of(request.forward->program(Rank(0))).size());
  };
  TrialRequest request = trial_of(trials(4, 1).front());
  for (const Case& c : trials(4, 2)) {
    TrialRequest other = trial_of(c);
    if (ops(other) > ops(request) && ops(other) <= 128) {
      request = std::move(other);
    }
  }
  request.backward.reset();
  request.check = false;
  // An op takes three calls at least: two events, a launch or a copy. So the host is busy for 0.4 s
  // or more, but not for as long as a gate is patient.
  constexpr double least = 0.4;
  const host::With slow(host::settings().latency_us,
                        static_cast<std::int64_t>(least * 1e6 / (3 * ops(request))));
  const Outcome o = run(request, "reference");
  CHECK(o.result.forward->samples.front().count() < least / 2);
}

TEST_CASE("what an op with many launches puts behind a gate leaves room in a stream's queue") {
  // Products of experts: a launch for each expert's rows in every one of few ops.
  StepCase c{.layer = small_layer(DType::fp32),
             .experts = {.count = 128, .per_token = 8, .ffn = 2, .bias = true}};
  c.layer.tensor = 1;
  c.layer.attention.plan = {.strategy = "ulysses"};
  c.layer.attention.problem.seq = 64;
  TrialRequest request = trial_of(c);
  std::size_t products = 0;
  const std::vector<StoredProgram> programs = store(*request.forward);
  for (const StoredOp& stored : programs.front().ops) {
    products += stored.runs.size();
  }
  REQUIRE(products > 1024);
  request.check = false;
  const int late = host::seen().late_calls;
  const bool complete = run(std::move(request), "reference").result.complete;
  CHECK(complete);
  CHECK(host::seen().late_calls == late);
}

TEST_CASE("phases share streams, which are those that programs use") {
  for (const Case& c : trials(8, 2)) {
    INFO(c.text());
    const TrialRequest request = trial_of(c);
    int used = 0;
    for (int r = 0; r < 8; ++r) {
      std::size_t most = 0;  // beside the one that computes
      for (const auto& schedule : {request.forward, request.backward}) {
        std::set<int> streams;
        if (!schedule) {
          continue;
        }
        for (const Op& op : ops_of(schedule->program(Rank(r)))) {
          streams.insert(op.stream.value);
        }
        streams.erase(0);
        most = std::max(most, streams.size());
      }
      used += 1 + static_cast<int>(most);
    }
    host::seen().most_streams = 0;
    const Outcome o = run(request, "reference");
    CHECK(failures(o.result) == "");
    CHECK(host::seen().most_streams == used);
    CHECK(o.warnings.empty() == (used <= 32));
  }
  CHECK(host::seen().streams == 0);
}

TEST_CASE("one hardware queue for all streams is warned of, and what is computed is right") {
  device::why_not_cuda();
  const std::string before = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  const Outcome o = run(trial_of(trials(4, 1).front()), "reference");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", before.c_str(), 1);
  CHECK(failures(o.result) == "");
  CHECK(mentions(o.warnings, "streams of a GPU go through 1 hardware queues"));
}

TEST_CASE("gates of ranks whose streams share a hardware queue hold up no host") {
  device::why_not_cuda();
  const std::string before = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  const int late = host::seen().late_calls;
  for (const Case& c : trials(8, 2)) {
    CHECK(failures(run(trial_of(c), "reference").result) == "");
  }
  CHECK(host::seen().late_calls == late);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", before.c_str(), 1);
}

TEST_CASE("streams that share a hardware queue wait for each other, others do not") {
  device::why_not_cuda();
  const std::string before = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const auto waits = [](const char* queues, Seconds held_for) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", queues, 1);
    const cuda::Stream held(0);
    const cuda::Stream other(0);
    const cuda::DeviceBuffer clock(sizeof(std::uint64_t));
    const cuda::DeviceBuffer numbers(1024);
    auto* const at = reinterpret_cast<std::uint64_t*>(clock.data());
    const cuda::Event held_on;
    cuda::fill({.data = numbers.data(), .dtype = DType::fp32, .count = 256}, 0, other.get());
    cuda::stamp(at, held.get());
    cuda::hold_until(at, held_for, held.get());
    held_on.record(held.get());
    cuda::fill({.data = numbers.data(), .dtype = DType::fp32, .count = 256}, 1, other.get());
    other.synchronize();
    const bool waited = held_on.happened();
    held.synchronize();
    return waited;
  };
  CHECK(waits("1", Seconds(0.05)));
  CHECK_FALSE(waits("32", Seconds(3)));
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", before.c_str(), 1);
}

TEST_CASE("ranks of a GPU get shares of its SMs, whether the driver says how or not") {
  for (const bool says : {true, false}) {
    const host::With rules(host::settings().driver_says_share_rules, says);
    const auto shares = cuda::split_device(0, 4);
    REQUIRE(shares.size() == 4);
    for (const auto& share : shares) {
      CHECK(share->multiprocessors() == 32);  // 33 would be rounded up to 40: three shares
      CHECK(host::current_context()->sms() == 132);
      const auto entered = share->enter();
      CHECK(host::current_context()->sms() == 32);
    }
    CHECK(host::current_context()->sms() == 132);
  }
  CHECK(host::seen().green_contexts == 0);
}

TEST_CASE("without green contexts ranks share all SMs, which is warned of") {
  const host::With none(host::settings().green_contexts, false);
  const Outcome o = run(trial_of(trials(2, 1).front()), "reference");
  CHECK(failures(o.result) == "");
  CHECK_FALSE(o.report.split);
  CHECK(mentions(o.warnings, "ranks share all SMs of a GPU"));
}

TEST_CASE("cuDNN runs in the context of its streams, and says for how many SMs its plans are") {
  if (!has_cudnn()) {
    SPP_SKIP("cuDNN was not found");
  }
  for (const bool knows : {true, false}) {
    const host::With target(host::settings().sm_count_target, knows);
    Case c = half_precision(4);
    c.problem.seq += knows ? 8 : 16;  // plans that are not there yet
    INFO(c.text());
    const Outcome o = run(trial_of(c), "cudnn");
    CHECK(failures(o.result) == "");
    CHECK(o.report.split);
    CHECK(o.report.multiprocessors == 32);
    CHECK(o.report.attention_made_for == (knows ? "32 SMs" : "the whole GPU"));
    CHECK(o.report.attention_refused == "");
  }
}

TEST_CASE("a cuDNN that is known to be wrong is refused by its version, and the reference taken") {
  if (!has_cudnn()) {
    SPP_SKIP("cuDNN was not found");
  }
  const Problem problem = half_precision(4).problem;
  const auto passed_over = [&](std::size_t version) {
    const host::With other(host::settings().cudnn_version, version);
    std::vector<std::string> why;
    CHECK(device::choose_kernels({}, problem, why) == (version == 0 ? "cudnn" : "reference"));
    return why;
  };
  CHECK(passed_over(0).empty());
  CHECK(passed_over(91001) ==
        std::vector<std::string>{"cudnn kernels: cuDNN 9.10.1 has known bugs in attention, which "
                                 "9.10.2 mended"});
  CHECK(mentions(passed_over(91500), "cudnn kernels: cuDNN 9.15.0 gives wrong gradients for"));
  // Who does not ask is refused the plan.
  const SdpaShape shape{.q_rows = 8, .k_rows = 200, .head_dim = 16};
  const host::With wrong(host::settings().cudnn_version, std::size_t{91500});
  CHECK_NOTHROW(make_sdpa()->workspace(shape, Phase::forward));
  CHECK(message_of<BackendError>([&] {
          (void)make_sdpa()->workspace(shape, Phase::backward);
        }).find("cuDNN 9.15.0 gives wrong gradients for 200 keys") != std::string::npos);
}

TEST_CASE("ranks that share a plan of cuDNN take turns, each with a handle of its own") {
  if (!has_cudnn()) {
    SPP_SKIP("cuDNN was not found");
  }
  // Of calls, in which the stand-in sees whoever comes meanwhile.
  const host::With slow(host::settings().latency_us, std::int64_t{200});
  const Outcome o = run(trial_of(half_precision(4)), "cudnn");
  CHECK(failures(o.result) == "");
  CHECK(o.report.attention_refused == "");
}

TEST_CASE("where cuDNN refuses a share of a GPU, attention takes all SMs, and its words are told") {
  if (!has_cudnn()) {
    SPP_SKIP("cuDNN was not found");
  }
  const auto refused = [](host::Objection objection) {
    const host::With objecting(host::settings().objection, objection);
    const Outcome o = run(trial_of(half_precision(4)), "cudnn");
    CHECK(failures(o.result) == "");
    CHECK(o.report.split);
    CHECK(mentions(o.warnings, "cuDNN does not take streams of a share of the GPU"));
    CHECK(mentions(o.warnings, o.report.attention_refused));
    return o.report.attention_refused;
  };
  CHECK(refused(host::Objection::to_streams) ==
        "cudnnSetStream failed on rank -1: an error of cuDNN on the host (a stream of a green "
        "context)");
  CHECK(refused(host::Objection::to_plans) ==
        "cudnnBackendExecute failed on rank -1: an error of cuDNN on the host (a plan that was "
        "made in "
        "another context)");
}

TEST_CASE("cuDNN that refuses shares is not asked to take one where there are none") {
  if (!has_cudnn()) {
    SPP_SKIP("cuDNN was not found");
  }
  const host::With green(host::settings().green_contexts, false);
  const host::With objecting(host::settings().objection, host::Objection::to_streams);
  const Outcome o = run(trial_of(half_precision(4)), "cudnn");
  CHECK(failures(o.result) == "");
  CHECK(o.report.attention_refused == "");
}

TEST_CASE("a plan of cuDNN is compiled once a process, for all ranks and engines") {
  if (!has_cudnn()) {
    SPP_SKIP("cuDNN was not found");
  }
  Case c = half_precision(4);
  c.problem.seq += 24;
  const int before = host::seen().compiled_plans;
  CHECK(failures(run(trial_of(c), "cudnn").result) == "");
  const int once = host::seen().compiled_plans - before;
  CHECK(once > 0);
  CHECK(once <= 2 * 4);  // blocks of a causal ring: own, earlier, and their like; not times ranks
  const Outcome again = run(trial_of(c), "cudnn");
  CHECK(failures(again.result) == "");
  CHECK(host::seen().compiled_plans - before == once);
  CHECK(again.report.attention_plans == host::seen().compiled_plans);
}

TEST_CASE("ranks that compile for longer than the time-out are not taken for dead") {
  if (!has_cudnn()) {
    SPP_SKIP("cuDNN was not found");
  }
  Case c = half_precision(4);
  c.problem.head_dim = 40;  // plans that are not there yet
  const host::With slow(host::settings().compile_ms, std::int64_t{1000});
  const int before = host::seen().compiled_plans;
  const Seconds compiled_before = sdpa_plans().compiling;
  const Outcome o = run(trial_of(c), "cudnn", patient(Seconds(1.5)));
  CHECK(failures(o.result) == "");
  const int plans = host::seen().compiled_plans - before;
  CHECK(plans > 2);  // more than the time-out, one after the other
  CHECK((o.report.compiling_attention - compiled_before).count() >= plans);
}

TEST_CASE("a calibration compiles a plan once for all its ranks") {
  if (!has_cudnn()) {
    SPP_SKIP("cuDNN was not found");
  }
  const auto compiled = [](int ranks) {
    CalibrationRequest request = small_calibration(ranks);
    request.ranks_per_device = ranks;
    // A shape that nobody else compiles.
    request.shape.head_dim = 24 + 8 * ranks;
    request.blocks.resize(1);
    AttentionBlock& block = request.blocks.front();
    block.head_dim = request.shape.head_dim;
    block.q = block.k = TokenSet(TokenRange{.begin = 0, .count = 16});
    request.suites = {"attention"};
    const auto engines = device::make_engines({.kernels = "cudnn", .ranks_per_gpu = ranks}, ranks,
                                              *request.transport);
    request.engines = engines.get();
    const host::With slow(host::settings().compile_ms, std::int64_t{50});
    const int before = host::seen().compiled_plans;
    CHECK_FALSE(calibrate(request).series.at("attention").empty());
    return host::seen().compiled_plans - before;
  };
  const int of_one = compiled(1);
  CHECK(of_one > 0);
  CHECK(compiled(4) == of_one);
}

TEST_CASE("ranks of a GPU copy beside kernels where the driver can, and say how") {
  const Case c = trials(4, 1).front();
  for (const bool can : {true, false}) {
    const host::With batches(host::settings().batch_copies, can);
    const int before = host::seen().copies_beside_kernels;
    const Outcome o = run(trial_of(c), "reference");
    CHECK(failures(o.result) == "");
    CHECK(o.report.copies == (can ? "beside kernels" : "plain"));
    CHECK((host::seen().copies_beside_kernels > before) == can);
  }
}

TEST_CASE("copies beside kernels wait for no SM, plain ones do") {
  const cuda::Stream stream(0);
  REQUIRE(cuda::find_copy_way(stream.get()) == cuda::CopyWay::beside_kernels);
  const cuda::DeviceBuffer from(256);
  const cuda::DeviceBuffer to(256);
  const auto copies_beside_attention = [&](cuda::CopyWay way, Seconds patience) {
    const cuda::Event copied;
    const auto all = host::current_context();
    all->take(all->sms());
    cuda::copy(to.data(), from.data(), from.size(), way, stream.get());
    copied.record(stream.get());
    const auto since = std::chrono::steady_clock::now();
    while (!copied.happened() && std::chrono::steady_clock::now() - since < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const bool beside = copied.happened();
    all->give(all->sms());
    stream.synchronize();
    return beside;
  };
  CHECK(copies_beside_attention(cuda::CopyWay::beside_kernels, patient(Seconds(5))));
  CHECK_FALSE(copies_beside_attention(cuda::CopyWay::plain, Seconds(0.02)));
}

TEST_CASE("a transfer that is held up takes no SM from kernels that want all") {
  const cuda::Stream held(0);
  const cuda::Stream busy(0);
  const cuda::DeviceBuffer clock(sizeof(std::uint64_t));
  const cuda::DeviceBuffer numbers(std::size_t{4} << 20);
  auto* const at = reinterpret_cast<std::uint64_t*>(clock.data());
  const cuda::Event held_on;
  const cuda::Event filled;
  cuda::stamp(at, held.get());
  held.synchronize();
  cuda::hold_until(at, Seconds(4), held.get());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it has what it takes by now
  held_on.record(held.get());
  cuda::fill({.data = numbers.data(), .dtype = DType::fp32, .count = 1 << 20}, 1, busy.get());
  filled.record(busy.get());
  const auto since = std::chrono::steady_clock::now();
  while (!filled.happened() && std::chrono::steady_clock::now() - since < Seconds(2.5)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(filled.happened());
  CHECK_FALSE(held_on.happened());
  busy.synchronize();
  held.synchronize();
}

TEST_CASE("a run is refused when its buffers fit into a GPU but its workspaces do not") {
  if (!has_cudnn()) {
    SPP_SKIP("cuDNN was not found");
  }
  const Case c = half_precision(4);
  const TrialRequest request = trial_of(c);
  Bytes buffers{};
  for (const auto& schedule : {request.forward, request.backward}) {
    for (const StoredProgram& program : store(*schedule)) {
      buffers += memory_needed(program);
    }
  }
  const Outcome fits = run(request, "cudnn");
  CHECK(fits.result.refused == "");
  CHECK(fits.report.attention_workspaces.value() > 0);
  CHECK(fits.report.communication_workspaces.value() == 0);
  const host::With memory(host::settings().memory, static_cast<std::size_t>(buffers.value()));
  const std::string refused = run(request, "cudnn").result.refused;
  CHECK(refused.find("of memory left") != std::string::npos);
  CHECK(refused.find("GB of it for workspaces and libraries, estimated)") != std::string::npos);
}

TEST_CASE("what fits by its workspaces runs in a GPU of just that memory") {
  const Case c = half_precision(4);
  const TrialRequest request = trial_of(c);
  for (const std::string& kernels : kernels_here()) {
    const auto engines =
        device::make_engines({.kernels = kernels, .ranks_per_gpu = 4}, 4, *request.transport);
    const std::vector<StoredProgram> forward = store(*request.forward);
    const std::vector<StoredProgram> backward = store(*request.backward);
    const std::array phases{&forward, &backward};
    Bytes all{};
    for (int r = 0; r < 4; ++r) {
      all += memory_needed(forward[static_cast<std::size_t>(r)]) +
             memory_needed(backward[static_cast<std::size_t>(r)]) +
             engines->beside_buffers(Rank(r), *request.forward, phases);
    }
    // Plans' own workspaces, events' clocks and what rounding up costs: 64 KB a rank.
    const host::With memory(host::settings().memory,
                            static_cast<std::size_t>(all.value()) + (std::size_t{4} << 16));
    INFO(kernels);
    CHECK(failures(run(request, kernels).result) == "");
  }
}

TEST_CASE("to ask what a GPU is makes no context on it") {
  const int before = host::seen().primary_contexts;
  const cuda::DeviceInfo info = cuda::device_info(7);
  CHECK(info.multiprocessors == 132);
  CHECK(info.memory.value() > 0);
  CHECK(host::seen().primary_contexts == before);
  CHECK(cuda::memory_free(7).value() > 0);
  CHECK(host::seen().primary_contexts == before + 1);
  cuda::use_device(0);
}
