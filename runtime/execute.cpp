#include "runtime/execute.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

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
        shapes_{.problem = &schedule.problem, .buffers = program.buffers, .rank = program.rank},
        streams_(schedule.streams.size()),
        done_(program.ops.size(), false),
        poll_([this] { pump(); }) {
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
        run_kernel(kernel);
        last_progress_ = now();
      } else if (moved) {
        last_progress_ = now();
      } else {
        transport_.idle();
        expect_progress();
      }
    }
    result_.elapsed = now();
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
    if (stream.running == nullptr) {
      if (!is_communication(stored.op.body) || !ready(stream)) {
        return false;
      }
      stream.begun = now();
      stream.running = post(stored);
      return true;
    }
    if (!stream.running->advance()) {
      return false;
    }
    const Bytes sent(stream.running->sent());
    expect_bytes(stored, sent);
    result_.sent[static_cast<std::size_t>(comm_kind_of(stored.op.body))] += sent;
    stream.running.reset();
    finish(stream, stream.begun, sent.value());
    return true;
  }

  void expect_bytes(const StoredOp& stored, Bytes sent) const {
    const Bytes planned = sent_bytes(stored.op.body, shapes_);
    if (sent != planned) {
      throw BackendError(
          name_of(stored.op.body),
          fmt::format("{} bytes were sent, the schedule says {}", sent.value(), planned.value()),
          program_.rank.value);
    }
  }

  void finish(StreamState& stream, Seconds begin, std::int64_t bytes) {
    const std::int32_t index = stream.head();
    const StoredOp& stored = program_.ops[static_cast<std::size_t>(index)];
    done_[static_cast<std::size_t>(index)] = true;
    ++stream.next;
    --left_;
    if (!options_.timeline) {
      return;
    }
    result_.timeline.events.push_back(
        {.rank = program_.rank,
         .op = index,
         .stream = stored.op.stream,
         .kind = static_cast<std::uint8_t>(stored.op.body.index()),
         .begin = begin,
         .end = now(),
         .bytes = bytes,
         .flops = attention_flops(stored.op.body, schedule_.problem).value(),
         .waited_for = stored.waits.empty() ? -1 : stored.waits.back(),
         .waited_for_rank = Rank()});
  }

  /// The earliest kernel in the program that can run; -1 if there is none.
  [[nodiscard]] std::int32_t ready_kernel() const {
    std::int32_t earliest = -1;
    for (const StreamState& stream : streams_) {
      if (!stream.finished() && stream.running == nullptr && ready(stream) &&
          !is_communication(program_.ops[static_cast<std::size_t>(stream.head())].op.body) &&
          (earliest < 0 || stream.head() < earliest)) {
        earliest = stream.head();
      }
    }
    return earliest;
  }

  void run_kernel(std::int32_t index) {
    const StoredOp& stored = program_.ops[static_cast<std::size_t>(index)];
    const Seconds begin = now();
    std::visit([&](const auto& op) { compute(op, stored); }, stored.op.body);
    finish(streams_[stored.op.stream.index()], begin,
           options_.timeline ? touched_bytes(stored.op.body, shapes_).value() : 0);
  }

  // ---- kernels

  [[nodiscard]] Rows rows(const StoredOp& stored, BufferId id) const {
    return memory_.rows(stored.rows_of(id));
  }
  template <class Attention>
  [[nodiscard]] Visibility visible(const Attention& op) const {
    return {.q_tokens = op.q_tokens,
            .k_tokens = op.k_tokens,
            .mask = schedule_.problem.mask,
            .seq = schedule_.requested.seq};
  }

  void compute(const AttentionForward& op, const StoredOp& s) {
    kernels_.forward({.q = rows(s, op.q),
                      .k = rows(s, op.k),
                      .v = rows(s, op.v),
                      .out = rows(s, op.out),
                      .lse = rows(s, op.lse),
                      .visible = visible(op)},
                     poll_);
  }
  void compute(const AttentionBackward& op, const StoredOp& s) {
    kernels_.backward({.q = rows(s, op.q),
                       .k = rows(s, op.k),
                       .v = rows(s, op.v),
                       .d_out = rows(s, op.d_out),
                       .lse = rows(s, op.lse),
                       .delta = rows(s, op.delta),
                       .d_q = rows(s, op.d_q),
                       .d_k = rows(s, op.d_k),
                       .d_v = rows(s, op.d_v),
                       .visible = visible(op)},
                      poll_);
  }
  void compute(const RowDot& op, const StoredOp& s) {
    row_dot(rows(s, op.out), rows(s, op.d_out), rows(s, op.delta));
  }
  void compute(const Merge& op, const StoredOp& s) {
    merge(rows(s, op.out), rows(s, op.lse), rows(s, op.part_out), rows(s, op.part_lse), op.initial);
  }
  void compute(const Rescale& op, const StoredOp& s) {
    rescale(rows(s, op.out), rows(s, op.lse), rows(s, op.gathered_lse), rows(s, op.scaled),
            rows(s, op.global_lse));
  }
  void compute(const Accumulate& op, const StoredOp& s) {
    accumulate(rows(s, op.sum), rows(s, op.part), op.initial);
  }
  void compute(const Fill& op, const StoredOp& s) {
    const bool lse = memory_.buffer(op.buffer).tensor == Tensor::lse;
    fill(rows(s, op.buffer), lse ? -std::numeric_limits<float>::infinity() : 0.0F);
  }
  void compute(const Copy& op, const StoredOp& s) {
    const std::int64_t batch = schedule_.problem.batch;
    const int width = memory_.width(op.from);
    for (const CellMove& m : s.moves) {
      const bool dense = m.from.row_step == 1 && m.to.row_step == 1;
      const std::int64_t steps = dense ? 1 : m.rows;
      for (std::int64_t i = 0; i < steps; ++i) {
        move(box(op.from, m.from, i), box(op.to, m.to, i), dense ? m.rows : 1, batch, m.heads,
             width, m.add);
      }
    }
  }
  [[nodiscard]] Box box(BufferId id, const CellBox& cells, std::int64_t step) const {
    const std::int64_t first =
        cells.begin + step * cells.row_step * schedule_.problem.batch * cells.row_heads;
    return {.data = memory_.cells(id, {.begin = first, .count = 0}).data(),
            .dtype = memory_.buffer(id).dtype,
            .row_heads = cells.row_heads};
  }

  template <class Communication>
  void compute(const Communication& op, const StoredOp&) {
    throw InternalError(fmt::format("{} is no kernel", name_of(OpBody(op))));
  }

  // ---- communication

  std::unique_ptr<Pending> post(const StoredOp& stored) {
    const int tag = stored.op.stream.value;
    return std::visit(
        Overloaded{[&](const Exchange& op) { return post_exchange(op, tag); },
                   [&](const AllToAll& op) {
                     AllToAllParts parts{.send = {}, .receive = spans(op.to, stored.receives)};
                     for (const CellSpan& part : stored.sends) {
                       parts.send.emplace_back(memory_.cells(op.from, part));
                     }
                     return all_to_all(transport_, tag, op.group, std::move(parts));
                   },
                   [&](const AllGather& op) {
                     return all_gather(transport_, tag, op.group,
                                       memory_.cells(op.from, stored.sends.front()),
                                       spans(op.to, stored.receives));
                   },
                   [&](const ReduceScatter& op) {
                     std::vector<std::span<const std::byte>> parts;
                     for (const CellSpan& part : stored.sends) {
                       parts.emplace_back(memory_.cells(op.from, part));
                     }
                     return reduce_scatter(transport_, tag, op.group, std::move(parts),
                                           memory_.buffer(op.from).dtype,
                                           memory_.cells(op.to, stored.receives.front()),
                                           memory_.buffer(op.to).dtype);
                   },
                   [](const auto&) -> std::unique_ptr<Pending> {
                     throw InternalError("a kernel is no communication");
                   }},
        stored.op.body);
  }

  std::unique_ptr<Pending> post_exchange(const Exchange& op, int tag) {
    ExchangeParts parts{.to = op.to, .from = op.from, .send = {}, .receive = {}};
    for (const BufferId id : op.send) {
      parts.send.emplace_back(memory_.bytes(id));
    }
    for (const BufferId id : op.receive) {
      parts.receive.emplace_back(memory_.bytes(id));
    }
    return exchange(transport_, tag, std::move(parts));
  }

  [[nodiscard]] std::vector<std::span<std::byte>> spans(BufferId id,
                                                        const std::vector<CellSpan>& parts) const {
    std::vector<std::span<std::byte>> result;
    for (const CellSpan& part : parts) {
      result.push_back(memory_.cells(id, part));
    }
    return result;
  }

  // ---- faults

  void expect_progress() {
    const Seconds waited = now() - last_progress_;
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
