#include "runtime/execute.hpp"

#include "runtime/host_kernels.hpp"
#include "runtime/ops.hpp"

#include <algorithm>
#include <chrono>

namespace spp::runtime {
namespace {

using Clock = std::chrono::steady_clock;

struct StreamState {
  std::vector<std::int32_t> ops;  // indices into the program
  std::size_t next = 0;
  std::unique_ptr<Pending> running;  // communication under way
  Seconds begun{};
  [[nodiscard]] bool finished() const { return next == ops.size(); }
  [[nodiscard]] std::int32_t head() const { return ops[next]; }
};

/// Posts messages over a transport.
struct HostCommunication {
  Transport& transport;
  int tag;

  [[nodiscard]] auto exchange(const ExchangeParts& parts) const {
    return runtime::exchange(transport, tag, parts);
  }
  [[nodiscard]] auto all_to_all(const RankGroup& group, const AllToAllParts& parts) const {
    return runtime::all_to_all(transport, tag, group, parts);
  }
  [[nodiscard]] auto all_gather(const RankGroup& group, AllGatherParts parts) const {
    return runtime::all_gather(transport, tag, group, parts.own, std::move(parts.parts));
  }
  [[nodiscard]] auto reduce_scatter(const RankGroup& group, ReduceScatterParts parts) const {
    return runtime::reduce_scatter(transport, tag, group, std::move(parts.parts), parts.from_type,
                                   parts.result, parts.to_type);
  }
  [[nodiscard]] auto all_reduce(const RankGroup& group, AllReduceParts parts) const {
    return runtime::all_reduce(transport, tag, group, std::move(parts.parts),
                               std::move(parts.results), parts.type);
  }
};

class Executor {
 public:
  Executor(const Schedule& schedule, const StoredProgram& program, HostMemory& memory,
           AttentionKernels& kernels, Transport& transport, const ExecuteOptions& options)
      : schedule_(schedule),
        program_(program),
        memory_(memory),
        kernels_(kernels),
        transport_(transport),
        options_(options),
        shapes_(shapes_of(schedule, program)),
        streams_(schedule.streams.size()),
        done_(program.ops.size(), false),
        poll_([this] {
          transport_.working();
          pump();
        }) {
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      streams_[program.ops[i].op.stream.index()].ops.push_back(static_cast<std::int32_t>(i));
    }
    result_.timeline.streams = schedule.streams;
    if (options.timeline) {
      result_.timeline.events.reserve(program.ops.size());
    }
  }

  Execution run() {
    start_ = Clock::now();
    while (left_ > 0) {
      const bool moved = pump();
      const std::int32_t kernel = ready_kernel();
      if (kernel >= 0) {
        compute(kernel);
        last_progress_ = now();
      } else if (moved) {
        last_progress_ = now();
      } else {
        transport_.idle();
        expect_progress();
      }
    }
    result_.elapsed = now();
    if (options_.timeline) {
      tell_waits(program_, result_.timeline.events);
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] Seconds now() const { return Clock::now() - start_; }
  [[nodiscard]] bool ready(const StreamState& stream) const {
    const auto& waits = program_.ops[static_cast<std::size_t>(stream.head())].waits;
    return std::ranges::all_of(
        waits, [&](std::int32_t op) { return done_[static_cast<std::size_t>(op)]; });
  }

  /// Moves communication on: what has arrived, and what can be posted. Says whether an op began or
  /// ended.
  bool pump() {
    transport_.progress();
    bool moved = false;
    for (bool again = true; again;) {
      again = false;
      for (StreamState& stream : streams_) {
        while (!stream.finished() && advance(stream)) {
          again = moved = true;
        }
      }
    }
    return moved;
  }

  /// Posts or ends the stream's communication op; false if it has to wait, or is a kernel.
  bool advance(StreamState& stream) {
    const std::int32_t index = stream.head();
    const StoredOp& stored = program_.ops[static_cast<std::size_t>(index)];
    const auto* transfer = std::get_if<Transfer>(&stored.op.body);
    if (stream.running == nullptr) {
      if (transfer == nullptr || !ready(stream)) {
        return false;
      }
      stream.begun = now();
      stream.running =
          run_transfer(place(stored), *transfer,
                       HostCommunication{.transport = transport_, .tag = stored.op.stream.value});
      return true;
    }
    if (!stream.running->advance()) {
      return false;
    }
    const Bytes sent(stream.running->sent());
    expect_sent(*transfer, shapes_, sent);
    result_.sent[static_cast<std::size_t>(comm_kind_of(*transfer))] += sent;
    stream.running.reset();
    finish(stream, stream.begun);
    return true;
  }

  void finish(StreamState& stream, Seconds begin) {
    const std::int32_t index = stream.head();
    done_[static_cast<std::size_t>(index)] = true;
    ++stream.next;
    --left_;
    if (options_.timeline) {
      result_.timeline.events.push_back(event_of(schedule_, program_, index, begin, now()));
    }
  }

  /// The earliest kernel in the program that can run; -1 if there is none.
  [[nodiscard]] std::int32_t ready_kernel() const {
    std::int32_t earliest = -1;
    for (const StreamState& stream : streams_) {
      if (!stream.finished() && stream.running == nullptr && ready(stream) &&
          !is_transfer(program_.ops[static_cast<std::size_t>(stream.head())].op.body) &&
          (earliest < 0 || stream.head() < earliest)) {
        earliest = stream.head();
      }
    }
    return earliest;
  }

  void compute(std::int32_t index) {
    const StoredOp& stored = program_.ops[static_cast<std::size_t>(index)];
    const Seconds begin = now();
    run_kernel(place(stored), std::get<Kernel>(stored.op.body),
               HostKernels{.attention = kernels_, .poll = poll_});
    finish(streams_[stored.op.stream.index()], begin);
  }

  [[nodiscard]] OpPlace place(const StoredOp& stored) const {
    return {.schedule = schedule_, .memory = memory_, .stored = stored};
  }

  // ---- faults

  void expect_progress() {
    Seconds waited = now() - last_progress_;
    if (waited < options_.timeout) {
      return;
    }
    waited = std::min(waited, transport_.silence());  // others may be at work
    if (waited < options_.timeout) {
      return;
    }
    std::string text;
    for (const StreamState& stream : streams_) {
      if (stream.running == nullptr) {
        continue;
      }
      const std::int32_t op = stream.head();
      for (const Rank peer : stream.running->waits_for()) {
        text +=
            fmt::format("{}for rank {} in op {} {} (stream {})", text.empty() ? "" : ", ",
                        peer.value, op, name_of(program_.ops[static_cast<std::size_t>(op)].op.body),
                        schedule_.streams[static_cast<std::size_t>(&stream - streams_.data())]);
      }
    }
    throw BackendError("execution",
                       fmt::format("nothing happened for {:.0f} s; it waits {}", waited.count(),
                                   text.empty() ? "for nobody" : text),
                       program_.rank.value);
  }

  const Schedule& schedule_;
  const StoredProgram& program_;
  HostMemory& memory_;
  AttentionKernels& kernels_;
  Transport& transport_;
  const ExecuteOptions& options_;
  Shapes shapes_;
  std::vector<StreamState> streams_;
  std::vector<bool> done_;
  Poll poll_;
  std::size_t left_ = program_.ops.size();
  Clock::time_point start_;
  Seconds last_progress_{};
  Execution result_;
};

}  // namespace

Execution execute(const Schedule& schedule, const StoredProgram& program, HostMemory& memory,
                  AttentionKernels& kernels, Transport& transport, const ExecuteOptions& options) {
  return Executor(schedule, program, memory, kernels, transport, options).run();
}

}  // namespace spp::runtime
