#include "runtime/execute.hpp"

#include "base/error.hpp"
#include "runtime/host_engine.hpp"
#include "runtime/ops.hpp"
#include "schedule/text.hpp"
#include "tests/support/all_reduce.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/patience.hpp"

#include <chrono>
#include <thread>

namespace spp::runtime {
namespace {

/// The ring of two ranks of tests/golden, forward.
Schedule ring_of_two() {
  const std::string file = "tests/golden/ring_of_two.txt";
  return parse_schedule(test::read_text(test::source_path(file)), file);
}

/// Kernels that compute nothing; one rank's does what the test wants before.
class Idle : public AttentionKernels {
 public:
  explicit Idle(std::function<void()> first) : first_(std::move(first)) {}
  void forward(const AttentionForwardArgs&, const Poll& poll) override {
    if (first_) {
      std::exchange(first_, nullptr)();
    }
    poll();
  }
  void backward(const AttentionBackwardArgs&, const Poll&) override {}
  void gemm(const GemmArgs&, const Poll&) override {}

 private:
  std::function<void()> first_;
};

/// The first kernel of rank 1 takes long, and polls between its tiles, as kernels do.
class Slow : public AttentionKernels {
 public:
  explicit Slow(std::chrono::seconds first) : first_(first) {}
  void forward(const AttentionForwardArgs&, const Poll& poll) override {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < first_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      poll();
    }
    first_ = {};
  }
  void backward(const AttentionBackwardArgs&, const Poll&) override {}
  void gemm(const GemmArgs&, const Poll&) override {}

 private:
  std::chrono::seconds first_;
};

void run_slow_kernel(Seconds timeout, std::chrono::seconds length) {
  const Schedule schedule = ring_of_two();
  const std::vector<StoredProgram> programs = store(schedule);
  transports::by_name("inproc", "test")
      .run(2,
           [&](Transport& transport) {
             const StoredProgram& program = programs[transport.rank().index()];
             HostMemory memory(program);
             Slow kernels(transport.rank().value == 1 ? length : std::chrono::seconds(0));
             abort_on_throw(transport, [&] {
               (void)execute(schedule, program, memory, kernels, transport, {.timeout = timeout});
               transport.barrier();
             });
           },
           {.deadlines = {.timeout = timeout}});
}

/// Runs the ring; rank 1 does `late` before it begins, `act` in its first kernel.
void run(Seconds timeout, const std::function<void()>& late, const std::function<void()>& act) {
  const Schedule schedule = ring_of_two();
  const std::vector<StoredProgram> programs = store(schedule);
  transports::by_name("inproc", "test").run(2, [&](Transport& transport) {
    const StoredProgram& program = programs[transport.rank().index()];
    HostMemory memory(program);
    Idle kernels(transport.rank().value == 1 ? act : std::function<void()>());
    abort_on_throw(transport, [&] {
      if (transport.rank().value == 1 && late) {
        late();
      }
      const Execution execution =
          execute(schedule, program, memory, kernels, transport, {.timeout = timeout});
      ensure(execution.timeline.events.size() == program.ops.size(), "an op without an event");
    });
  });
}

}  // namespace

TEST_CASE("a run ends, with an event for every op of the program") {
  run(test::patient(Seconds(20)), {}, {});
}

TEST_CASE("an op waited for what ended last, unless that was its own stream") {
  StoredProgram program;
  for (const auto& [stream, waits] :
       {std::pair(0, std::vector<std::int32_t>()), {1, {}}, {2, {}}, {0, {1, 2}}}) {
    StoredOp& op = program.ops.emplace_back();
    op.op.stream = StreamId(stream);
    op.waits = waits;
  }
  const auto waited_for = [&](double own, double first, double second) {
    std::vector<TimelineEvent> events;
    for (const double end : {own, first, second, 9.0}) {
      events.push_back({.op = std::ssize(events), .end = Seconds(end)});
    }
    tell_waits(program, events);
    return events.back().waited_for;
  };
  CHECK(waited_for(1, 3, 2) == 1);
  CHECK(waited_for(1, 2, 3) == 2);
  CHECK(waited_for(3, 2, 1) == -1);
}

TEST_CASE("peers of an op are the others that take part in it") {
  const auto peers = [](const OpBody& body) { return runtime::peers_of(body, Rank(2)); };
  CHECK(peers(Exchange{.to = Rank(3), .from = Rank(1), .send = {}, .receive = {}}) ==
        std::vector{Rank(1), Rank(3)});
  CHECK(peers(Exchange{.to = Rank(1), .from = Rank(1), .send = {}, .receive = {}}) ==
        std::vector{Rank(1)});
  CHECK(peers(Exchange{.to = Rank(2), .from = Rank(2), .send = {}, .receive = {}}).empty());
  Collective gather;
  gather.group = {.first = 0, .stride = 2, .size = 3};
  CHECK(peers(gather) == std::vector{Rank(0), Rank(4)});
  CHECK(peers(Kernel{Fill{}}).empty());
}

TEST_CASE("a rank that hangs ends the run, and the message says who waits for whom in which op") {
  const std::string message = test::message_of<BackendError>(
      [&] { run(Seconds(0.3), [] { std::this_thread::sleep_for(std::chrono::seconds(2)); }, {}); });
  INFO(message);
  CHECK(message.starts_with("execution failed on rank 0: nothing happened for"));
  CHECK(message.find("it waits for rank 1 in op ") != std::string::npos);
  CHECK(message.find("exchange (stream ring)") != std::string::npos);
}

TEST_CASE("a kernel that takes longer than the time-out is waited for while it polls") {
  REQUIRE_NOTHROW(run_slow_kernel(Seconds(3), std::chrono::seconds(6)));
}

TEST_CASE("a rank that throws ends the run with its own message") {
  const std::string message = test::message_of<BackendError>([] {
    run(test::patient(Seconds(20)), {}, [] { throw BackendError("kernel", "no more", 1); });
  });
  CHECK(message == "kernel failed on rank 1: no more");
}

TEST_CASE("an all_reduce gives every member the sum over its group") {
  HostEngines engines(&attention_kernels::by_name("reference", "test"));
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      CHECK(test::all_reduce_failure(engines, ranks, dtype) == "");
    }
  }
}

}  // namespace spp::runtime
