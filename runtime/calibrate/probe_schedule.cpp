// One class writes a rank's whole program: its probes share operands, flushes and meets.
#include "runtime/calibrate/probe_schedule.hpp"

#include "base/error.hpp"
#include "runtime/calibrate/probe_graph.hpp"
#include "schedule/builder.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spp::runtime {
namespace {

constexpr int times_in_sample = 8;
constexpr int flushes = 4;
/// So few that an executor of a device puts all of them on its stream before it starts.
constexpr int empty_ops = 100;

const StreamId compute_stream(0);
const StreamId message_stream(1);

TokenSet first_tokens(std::int64_t count, std::int64_t begin = 0) {
  return TokenSet(TokenRange{.begin = begin, .count = count});
}

HeadRange first_heads(int count) { return {.begin = 0, .end = count}; }

std::int64_t end_of(const TokenSet& tokens) {
  std::int64_t end = 0;
  for (const TokenRange& range : tokens.ranges()) {
    end = std::max(end, range.last() + 1);
  }
  return end;
}

bool is_message(const Probe& probe) {
  return std::ranges::any_of(probe.work, [](const Work& work) {
    return std::holds_alternative<ExchangeWork>(work) ||
           std::holds_alternative<CollectiveWork>(work);
  });
}

bool is_quiet(const Work& work) { return std::holds_alternative<std::monostate>(work); }

/// One rank's program, probe by probe.
class RankProgram {
 public:
  RankProgram(const ProbeSetting& setting, const Problem& problem, const ProbeGraph& graph,
              Rank rank)
      : setting_(setting), problem_(problem), graph_(graph), rank_(rank), builder_(problem, rank) {}

  /// `number`: of the probe in the graph.
  TimedOps add(const Probe& probe, std::size_t number) {
    place_ = graph_.places[number];
    const bool message = is_message(probe);
    stream_ = message ? message_stream : compute_stream;
    const RankGroup together = message ? all() : on_device();
    if (std::ranges::any_of(probe.work, is_quiet)) {
      meet(together);
    }
    const Prepared prepared =
        std::visit([this](const auto& work) { return prepare(work); }, probe.work[rank_.index()]);
    if (prepared.times == 0) {
      if (!message) {
        meet(together);
      }
      return {};
    }
    emit(prepared.copies.front());
    if (prepared.cold) {
      flush();
    }
    if (message) {
      emit(prepared.copies.front());
    } else {
      meet(together);
    }
    const TimedOps timed{.first = static_cast<std::int32_t>(ops_.size()), .times = prepared.times};
    for (int i = 0; i < prepared.times; ++i) {
      emit(prepared.copies[static_cast<std::size_t>(i) % prepared.copies.size()]);
    }
    return timed;
  }

  [[nodiscard]] const std::vector<ProbeInput>& inputs() const { return inputs_; }

  Program finish() {
    builder_.once(
        [ops = std::move(ops_)](OpList& list) { list.insert(list.end(), ops.begin(), ops.end()); });
    return builder_.finish();
  }

 private:
  /// The op on each of its copies.
  struct Prepared {
    std::vector<OpBody> copies;
    int times = 0;
    bool cold = true;
  };

  void emit(const OpBody& body) { ops_.push_back({stream_, body}); }

  [[nodiscard]] RankGroup all() const { return {.first = 0, .stride = 1, .size = setting_.ranks}; }
  [[nodiscard]] RankGroup on_device() const {
    const int first = rank_.value / setting_.ranks_per_device * setting_.ranks_per_device;
    return {.first = first,
            .stride = 1,
            .size = std::min(setting_.ranks_per_device, setting_.ranks - first)};
  }

  // ---- buffers

  BufferId input(std::string name, Tensor tensor, const TokenSet& tile, HeadRange heads,
                 float middle, float reach) {
    const BufferId id = builder_.input(std::move(name), tensor, tile, heads);
    inputs_.push_back({.buffer = id, .middle = middle, .reach = reach});
    return id;
  }
  /// Room for numbers of 4 bytes.
  BufferId numbers(std::string name, std::int64_t count, int heads = 1) {
    return builder_.scratch(std::move(name), Tensor::delta, count, heads);
  }
  BufferId filled(std::string name, const TokenSet& tokens, HeadRange heads = first_heads(1)) {
    const BufferId id = numbers(std::move(name), tokens.count(), heads.count());
    emit(Fill{.buffer = id, .tokens = tokens, .heads = heads});
    return id;
  }
  /// A scratch buffer with the same content.
  BufferId copied(BufferId from, Tensor tensor, std::int64_t tokens, int heads, DType dtype) {
    const BufferId id = builder_.scratch("copy", tensor, tokens, heads, dtype);
    emit(Copy{.kind = CopyKind::cast, .from = from, .to = id});
    return id;
  }

  /// So many that they do not fit into caches; one is enough if it does not, or counts little.
  [[nodiscard]] int copies_of(std::int64_t bytes, int times) const {
    const std::int64_t wanted = setting_.cold / std::max<std::int64_t>(bytes, 1) + 1;
    return static_cast<int>(std::min<std::int64_t>(wanted, times));
  }

  // ---- what the ranks do around a probe

  /// All of the group have come to the same place on the device.
  void meet(const RankGroup& group) {
    if (group.size == 1) {
      return;
    }
    const int self = group.index_of(rank_);
    const BufferId mine = filled("here", first_tokens(1, self));
    emit(Collective{.kind = CollectiveKind::all_gather,
                    .group = group,
                    .from = mine,
                    .to = numbers("all", group.size),
                    .to_tokens = first_tokens(group.size),
                    .to_heads = first_heads(1)});
  }

  void flush() {
    const std::int64_t count = std::max<std::int64_t>(1, setting_.cold / 4 / problem_.batch);
    if (!flushed_.valid()) {
      flushed_ = numbers("flush", count);
    }
    for (int i = 0; i < flushes; ++i) {
      emit(Fill{.buffer = flushed_, .tokens = first_tokens(count), .heads = first_heads(1)});
    }
  }

  // ---- the probes

  Prepared prepare(const std::monostate&) { return {}; }

  Prepared prepare(const ExchangeWork& work) {
    constexpr std::int64_t small = 1 << 20;  // latency, whatever is in a cache
    Prepared p{.copies = {}, .times = times_in_sample};
    const int copies = work.bytes < small ? 1 : copies_of(2 * work.bytes, p.times);
    for (int i = 0; i < copies; ++i) {
      Exchange op{.to = work.to, .from = work.from, .send = {}, .receive = {}};
      if (op.to.valid()) {
        op.send = {filled("send", first_tokens(work.bytes / 4))};
      }
      if (op.from.valid()) {
        op.receive = {numbers("receive", work.bytes / 4)};
      }
      p.copies.emplace_back(op);
    }
    return p;
  }

  Prepared prepare(const CollectiveWork& work) {
    constexpr std::int64_t small = 1 << 20;
    Prepared p{.copies = {}, .times = times_in_sample};
    const std::int64_t whole = work.part * work.group.size;
    const int copies = whole < small ? 1 : copies_of(2 * whole, p.times);
    for (int i = 0; i < copies; ++i) {
      p.copies.push_back(collective(work));
    }
    return p;
  }

  OpBody collective(const CollectiveWork& work) {
    const RankGroup& group = work.group;
    const int self = group.index_of(rank_);
    const std::int64_t n = work.part / 4;
    const TokenSet all_tokens = first_tokens(n * group.size);
    const TokenSet own_tokens = first_tokens(n, n * self);
    if (work.kind == CommKind::all_to_all) {
      // Every member has one head of all tokens.
      Problem heads;
      heads.q_heads = heads.kv_heads = group.size;
      return Collective{.kind = CollectiveKind::all_to_all,
                        .group = group,
                        .from = filled("from", all_tokens, {.begin = self, .end = self + 1}),
                        .to = numbers("to", n, group.size),
                        .deal = HeadDeal{.direction = HeadDirection::gather_heads,
                                         .split = HeadSplit(heads, group.size, HeadPolicy::divide),
                                         .kv = false,
                                         .tokens = n},
                        .to_tokens = own_tokens,
                        .to_heads = first_heads(group.size)};
    }
    if (work.kind == CommKind::all_gather) {
      return Collective{.kind = CollectiveKind::all_gather,
                        .group = group,
                        .from = filled("from", own_tokens),
                        .to = numbers("to", n * group.size),
                        .to_tokens = all_tokens,
                        .to_heads = first_heads(1)};
    }
    if (work.kind == CommKind::all_reduce) {
      return Collective{.kind = CollectiveKind::all_reduce,
                        .group = group,
                        .from = filled("from", all_tokens),
                        .to = numbers("to", n * group.size),
                        .to_tokens = all_tokens,
                        .to_heads = first_heads(1)};
    }
    ensure(work.kind == CommKind::reduce_scatter, "an unknown collective");
    return Collective{.kind = CollectiveKind::reduce_scatter,
                      .group = group,
                      .from = filled("from", all_tokens),
                      .to = numbers("to", n),
                      .to_tokens = own_tokens,
                      .to_heads = first_heads(1)};
  }

  Prepared prepare(const AttentionBlock& b) {
    const bool forward = b.phase == Phase::forward;
    const HeadRange heads = first_heads(b.q_heads);
    const HeadRange kv_heads = first_heads(b.kv_heads);
    const BufferId q = input("q", Tensor::q, b.q, heads, 0, 1);
    const BufferId k = input("k", Tensor::k, b.k, kv_heads, 0, 1);
    const BufferId v = input("v", Tensor::v, b.k, kv_heads, 0, 1);
    BufferId d_out;
    BufferId lse;
    BufferId delta;
    if (!forward) {
      const auto keys = static_cast<float>(b.k.count());
      d_out = input("d_out", Tensor::d_out, b.q, heads, 0, 1);
      lse = input("lse", Tensor::lse, b.q, heads, std::log(keys), 0.1F);
      delta = input("delta", Tensor::delta, b.q, heads, 0, 0.1F);
    }
    const auto like_q = [&](Tensor tensor) {
      return builder_.scratch("out", tensor, b.q.count(), b.q_heads);
    };
    const auto like_k = [&](Tensor tensor) {
      return builder_.scratch("out", tensor, b.k.count(), b.kv_heads);
    };
    const auto copy_of_q = [&] { return copied(q, Tensor::q, b.q.count(), b.q_heads, b.dtype); };
    const auto copy_of_d_out = [&] {
      return copied(d_out, Tensor::d_out, b.q.count(), b.q_heads, b.dtype);
    };
    const auto copy_of_k = [&] { return copied(k, Tensor::k, b.k.count(), b.kv_heads, b.dtype); };
    const auto copy_of_v = [&] { return copied(v, Tensor::v, b.k.count(), b.kv_heads, b.dtype); };
    const std::int64_t bytes = (b.q.count() * b.q_heads + b.k.count() * b.kv_heads) * b.batch *
                               (b.head_dim + b.v_dim()) * size_of(b.dtype) * (forward ? 1 : 2);
    Prepared p{.copies = {}, .times = times_of(flops_of(b))};
    for (int i = copies_of(bytes, p.times); i > 0; --i) {
      if (forward) {
        p.copies.emplace_back(AttentionForward{.q = copy_of_q(),
                                               .k = copy_of_k(),
                                               .v = copy_of_v(),
                                               .out = like_q(Tensor::out),
                                               .lse = like_q(Tensor::lse),
                                               .q_tokens = b.q,
                                               .k_tokens = b.k,
                                               .heads = heads,
                                               .kv_heads = kv_heads});
      } else {
        p.copies.emplace_back(AttentionBackward{.q = copy_of_q(),
                                                .k = copy_of_k(),
                                                .v = copy_of_v(),
                                                .d_out = copy_of_d_out(),
                                                .lse = lse,
                                                .delta = delta,
                                                .d_q = like_q(Tensor::d_q),
                                                .d_k = like_k(Tensor::d_k),
                                                .d_v = like_k(Tensor::d_v),
                                                .q_tokens = b.q,
                                                .k_tokens = b.k,
                                                .heads = heads,
                                                .kv_heads = kv_heads});
      }
    }
    return p;
  }

  Prepared prepare(const KernelWork& work) {
    const TokenSet tokens = first_tokens(work.rows);
    const HeadRange heads = first_heads(problem_.q_heads);
    const BufferId numbers = input("rows", Tensor::out, tokens, heads, 0, 1);
    const BufferId lse = work.kernel == KernelWork::Kernel::merge
                             ? input("lse", Tensor::lse, tokens, heads, 0, 1)
                             : BufferId();
    const std::int64_t bytes = work.rows * problem_.q_heads * problem_.head_dim * 4 * 2;
    Prepared p{.copies = {}, .times = times_in_sample};
    for (int i = copies_of(bytes, p.times); i > 0; --i) {
      p.copies.push_back(kernel(work.kernel, tokens, numbers, lse));
    }
    return p;
  }

  OpBody kernel(KernelWork::Kernel kernel, const TokenSet& tokens, BufferId numbers, BufferId lse) {
    const std::int64_t n = tokens.count();
    const int heads = problem_.q_heads;
    const auto room = [&](Tensor tensor, DType dtype) {
      return builder_.scratch("to", tensor, n, heads, dtype);
    };
    const auto rows = [&](DType dtype) { return copied(numbers, Tensor::out, n, heads, dtype); };
    switch (kernel) {
      case KernelWork::Kernel::merge: {
        Merge merge{.out = room(Tensor::out, DType::fp32),
                    .lse = room(Tensor::lse, DType::fp32),
                    .part_out = rows(problem_.dtype),
                    .part_lse = copied(lse, Tensor::lse, n, heads, DType::fp32),
                    .tokens = tokens,
                    .initial = true};
        emit(merge);
        merge.initial = false;
        return merge;
      }
      case KernelWork::Kernel::accumulate: {
        Accumulate accumulate{.sum = room(Tensor::out, DType::fp32),
                              .part = rows(problem_.dtype),
                              .tokens = tokens,
                              .initial = true};
        emit(accumulate);
        accumulate.initial = false;
        return accumulate;
      }
      case KernelWork::Kernel::cast:
        return Copy{.kind = CopyKind::cast,
                    .from = rows(DType::fp32),
                    .to = room(Tensor::out, problem_.dtype)};
      case KernelWork::Kernel::copy:
        return Copy{.kind = CopyKind::cast,
                    .from = rows(problem_.dtype),
                    .to = room(Tensor::out, problem_.dtype)};
      case KernelWork::Kernel::row_dot:
        return RowDot{.out = rows(problem_.dtype),
                      .d_out = rows(problem_.dtype),
                      .delta = room(Tensor::delta, DType::fp32)};
    }
    throw InternalError("an unknown kernel");
  }

  Prepared prepare(const GemmBlock& gemm) {
    return prepare(kernel_of(gemm), times_of(gemm.shape.flops()));
  }
  Prepared prepare(const RowWork& work) {
    return prepare(kernel_of(work, problem_), times_in_sample);
  }
  Prepared prepare(const LayerKernel& kernel, int times) {
    BufferList sources;
    for (const LayerOperand& operand : kernel.reads) {
      sources.push_back(operand_buffer(operand, BufferRole::input));
      inputs_.push_back(
          {.buffer = *std::prev(sources.end()), .middle = operand.middle, .reach = operand.reach});
    }
    Prepared p{.copies = {}, .times = times};
    for (int i = copies_of(kernel.touched(), p.times); i > 0; --i) {
      BufferList reads;
      BufferList writes;
      for (std::size_t k = 0; k < kernel.reads.size(); ++k) {
        reads.push_back(operand_buffer(kernel.reads[k], BufferRole::scratch));
        emit(Copy{.kind = CopyKind::cast, .from = sources.ids()[k], .to = reads.ids()[k]});
      }
      for (const LayerOperand& operand : kernel.writes) {
        writes.push_back(operand.in_place >= 0
                             ? reads.ids()[static_cast<std::size_t>(operand.in_place)]
                             : operand_buffer(operand, BufferRole::scratch));
      }
      p.copies.push_back(kernel.on(reads, writes, place_.definition));
    }
    return p;
  }
  BufferId operand_buffer(const LayerOperand& operand, BufferRole role) {
    Buffer buffer = operand.buffer(role);
    buffer.label = placed(operand.ref, place_).label;
    return builder_.push(std::move(buffer));
  }

  /// What an op takes that does next to nothing: on the host, and on devices where the host is
  /// ahead.
  Prepared prepare(const EmptyOpWork&) {
    return {.copies = {Fill{
                .buffer = numbers("one", 1), .tokens = first_tokens(1), .heads = first_heads(1)}},
            .times = empty_ops,
            .cold = false};
  }

  const ProbeSetting& setting_;
  Problem problem_;
  const ProbeGraph& graph_;
  GraphPlace place_;  // of the probe that is added
  Rank rank_;
  ProgramBuilder builder_;
  StreamId stream_;
  OpList ops_;
  std::vector<ProbeInput> inputs_;
  BufferId flushed_;
};

/// That all of them are part of.
Problem problem_of(std::span<const Probe> probes, const ProbeSetting& setting) {
  Problem problem = setting.shape;
  problem.seq = 1;
  problem.batch = 1;
  for (const Probe& probe : probes) {
    if (probe.series.block) {
      const std::int64_t seq = problem.seq;
      problem = runtime::problem_of(*probe.series.block);
      problem.seq = std::max(problem.seq, seq);
    }
  }
  return problem;
}

}  // namespace

Problem problem_of(const AttentionBlock& block) {
  return {.seq = std::max(end_of(block.q), end_of(block.k)),
          .batch = block.batch,
          .q_heads = block.q_heads,
          .kv_heads = block.kv_heads,
          .head_dim = block.head_dim,
          .value_dim = block.value_dim,
          .mask = block.mask,
          .dtype = block.dtype};
}

int times_of(FlopCount flops) {
  return flops.value() < 1e10 ? times_in_sample : flops.value() < 1e12 ? times_in_sample / 2 : 1;
}

ProbeSchedule schedule_of(std::span<const Probe> probes, const ProbeSetting& setting) {
  ProbeSchedule result;
  Schedule& schedule = result.schedule;
  schedule.contract.attention = schedule.contract.requested = problem_of(probes, setting);
  schedule.mesh = Mesh({{.name = "ranks", .size = setting.ranks}});
  schedule.streams = {"compute", "messages"};
  const ProbeGraph graph = graph_of(probes, schedule.contract.attention);
  schedule.contract.graph = graph.graph;
  std::vector<Program> programs;
  for (int r = 0; r < setting.ranks; ++r) {
    RankProgram program(setting, schedule.contract.attention, graph, Rank(r));
    auto& timed = result.timed.emplace_back();
    for (std::size_t i = 0; i < probes.size(); ++i) {
      timed.push_back(program.add(probes[i], i));
    }
    result.inputs.push_back(program.inputs());
    programs.push_back(program.finish());
  }
  schedule.program = [programs = std::move(programs)](Rank rank) { return programs[rank.index()]; };
  return result;
}

ProbeMemory memory_of(const Probe& probe, const ProbeSetting& setting) {
  const auto works = std::ranges::find_if_not(probe.work, is_quiet);
  ensure(works != probe.work.end(), "a probe of nobody");
  const Problem problem = problem_of({&probe, 1}, setting);
  const ProbeGraph graph = graph_of({&probe, 1}, problem);
  RankProgram program(setting, problem, graph, Rank(static_cast<int>(works - probe.work.begin())));
  (void)program.add(probe, 0);
  ProbeMemory memory;
  for (const Buffer& buffer : program.finish().buffers) {
    (buffer.role == BufferRole::input ? memory.inputs : memory.scratch) += bytes_of(buffer);
  }
  return memory;
}

}  // namespace spp::runtime
