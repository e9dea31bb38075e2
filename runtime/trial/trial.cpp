// One class, hence one file.
#include "runtime/trial/trial.hpp"

#include "base/available_memory.hpp"
#include "base/host_name.hpp"
#include "base/median.hpp"
#include "runtime/calibrate/hosts.hpp"
#include "runtime/calibrate/pace.hpp"
#include "runtime/comm/packed.hpp"
#include "runtime/host_engine.hpp"
#include "runtime/trial/layer_check.hpp"
#include "runtime/trial/redistribute.hpp"
#include "samples/statistics.hpp"
#include "schedule/text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <utility>

namespace spp::runtime {
namespace {

/// By rank, the tile of the first buffer that is wanted; empty where a program has none.
template <class Wanted>
std::vector<Tile> tiles_of(const std::vector<StoredProgram>& programs, Wanted wanted) {
  std::vector<Tile> tiles;
  for (const StoredProgram& program : programs) {
    const auto at = std::ranges::find_if(program.buffers, wanted);
    tiles.push_back(at != program.buffers.end() ? Tile{.tokens = at->tile, .heads = at->head_range}
                                                : Tile());
  }
  return tiles;
}

/// Of an even number the lower of the two in the middle, of equal ones the first.
std::size_t middle_of(const std::vector<Seconds>& samples) {
  ensure(!samples.empty(), "the middle of nothing");
  std::vector<std::size_t> order(samples.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return samples[i]; });
  return order[(order.size() - 1) / 2];
}

/// An event as it travels between ranks.
using PackedEvent = std::array<std::int64_t, 10>;

std::vector<PackedEvent> packed(const std::vector<TimelineEvent>& events) {
  const auto bits = [](double value) { return std::bit_cast<std::int64_t>(value); };
  std::vector<PackedEvent> list;
  list.reserve(events.size());
  for (const TimelineEvent& e : events) {
    list.push_back({e.rank.value, e.op, e.stream.value, static_cast<std::int64_t>(e.kind),
                    bits(e.begin.count()), bits(e.end.count()), e.bytes, bits(e.flops),
                    e.waited_for, e.waited_for_rank.value});
  }
  return list;
}

TimelineEvent unpacked(const PackedEvent& e) {
  const auto number = [&](std::size_t i) { return std::bit_cast<double>(e[i]); };
  const auto id = [&](std::size_t i) { return static_cast<std::int32_t>(e[i]); };
  return {.rank = Rank(id(0)),
          .op = e[1],
          .stream = StreamId(id(2)),
          .kind = static_cast<OpKind>(e[3]),
          .begin = Seconds(number(4)),
          .end = Seconds(number(5)),
          .bytes = e[6],
          .flops = number(7),
          .waited_for = e[8],
          .waited_for_rank = Rank(id(9))};
}

/// What one phase has measured on one rank.
struct PhaseRun {
  std::vector<Execution> runs;  // by iteration
  std::optional<CheckReport> check;
};

/// A phase with the host memory of one rank.
struct PhaseOfRank {
  PhaseOfRank(const Schedule& s, const std::vector<StoredProgram>& all, Rank rank, MemoryPart part)
      : schedule(s), program(all[rank.index()]), memory(program, part) {}
  const Schedule& schedule;
  const StoredProgram& program;
  HostMemory memory;

  /// All inputs but what the forward hands over.
  void load(const InputData& data, const std::set<TensorRef>& handed_over) {
    for (std::size_t i = 0; i < program.buffers.size(); ++i) {
      const Buffer& buffer = program.buffers[i];
      if (is_given(buffer.role) && !handed_over.contains(buffer.ref())) {
        data.fill_ref(buffer.ref(), buffer.tile, buffer.head_range,
                      memory.rows({.buffer = BufferId(i), .count = buffer.tile.count()}));
      }
    }
  }

  /// Running it changes what it starts from.
  [[nodiscard]] bool replaces() const {
    return std::ranges::find(program.buffers, BufferRole::state, &Buffer::role) !=
           program.buffers.end();
  }

  [[nodiscard]] PhaseParts parts() {
    return {.schedule = schedule, .program = program, .memory = memory};
  }
};

class Trial {
 public:
  explicit Trial(const TrialRequest& request)
      : request_(request),
        host_(request.kernels),
        engines_(request.engines != nullptr ? *request.engines : host_),
        oracles_(request.transport->launched_ranks() > 0 ? request.transport->launched_ranks()
                                                         : 1) {
    ensure(request.forward.has_value(), "a trial needs a forward");
    forward_ = store(*request.forward);
    if (request.backward) {
      backward_ = store(*request.backward);
    }
  }

  TrialResult run() {
    const RunSettings settings{
        .deadlines = {.timeout = request_.execution.timeout},
        .request = [this] { return asked(); },
        .warn = [this](const std::string& text) { warnings_.push_back(text); }};
    if (request_.check) {
      // Every process finds the same, and says so before they meet.
      expect_checkable(*request_.forward, forward_);
      if (request_.backward) {
        expect_checkable(*request_.backward, backward_);
      }
    }
    request_.transport->run(
        request_.forward->mesh.size(), [this](Transport& t) { rank(t); }, settings);
    result_.warnings = std::move(warnings_);
    return std::move(result_);
  }

 private:
  void expect_checkable(const Schedule& schedule,
                        const std::vector<StoredProgram>& programs) const {
    if (!schedule.contract.graph.empty()) {
      runtime::expect_checkable(schedule, programs, request_.checking, oracles_);
    }
  }

  /// All that ranks must have been asked for alike; of kernels they say more (rank()).
  [[nodiscard]] std::string asked() const {
    const std::array first{Rank(0)};
    std::string text =
        fmt::format("run {} {} {} {} {} {}\n", request_.time_forward, request_.warmup,
                    request_.iterations, request_.check, request_.pace, request_.seed);
    text += to_text(*request_.forward, first);
    return request_.backward ? text + to_text(*request_.backward, first) : text;
  }

  void rank(Transport& transport) {
    expect_same_kernels(transport, engines_.kernels());
    if (const std::string refused = memory_refused(transport); !refused.empty()) {
      if (transport.rank().value == 0) {
        result_ = {.complete = true, .refused = refused};
      }
      return;
    }
    transport.working();
    const InputData data{.requested = request_.forward->contract.requested,
                         .seed = request_.seed,
                         .graph = request_.forward->contract.graph};
    const MemoryPart part = engines_.host_part();
    PhaseOfRank forward(*request_.forward, forward_, transport.rank(), part);
    forward.load(data, {});
    std::optional<PhaseOfRank> backward;
    if (request_.backward) {
      backward.emplace(*request_.backward, backward_, transport.rank(), part);
      backward->load(data, handed_over());
    }
    const std::optional<PhaseParts> backward_parts =
        backward ? std::optional(backward->parts()) : std::nullopt;
    const EngineParts parts{.transport = transport,
                            .forward = forward.parts(),
                            .backward = backward_parts ? &*backward_parts : nullptr,
                            .options = request_.execution,
                            .forward_of_all = forward_,
                            .backward_of_all = backward_};
    const std::unique_ptr<Engine> engine = engines_.make(parts);
    // What messages point to is declared by now.
    abort_on_throw(transport, [&] {
      iterate(transport, *engine, data, forward, backward ? &*backward : nullptr);
    });
  }

  void iterate(Transport& transport, Engine& engine, const InputData& data, PhaseOfRank& forward,
               PhaseOfRank* backward) {
    PhaseRun forward_run;
    PhaseRun backward_run;
    const std::unique_ptr<AttentionKernels> kernels =
        request_.pace ? request_.kernels->make() : nullptr;
    std::optional<Pace> pace;
    if (request_.pace) {
      pace.emplace(transport, *kernels, request_.forward->contract.attention.dtype,
                   has_own_core(transport));
    }
    const auto execute_phase = [&](Phase phase, PhaseRun& run, bool keep) {
      transport.barrier();
      Execution e = engine.execute(phase);
      if (keep) {
        run.runs.push_back(std::move(e));
      }
    };
    engine.load(Phase::forward);
    for (int i = -request_.warmup; i < request_.iterations; ++i) {
      if (pace) {
        keep_pace(transport, pace->sample(), i);
      }
      if (request_.time_forward || i == -request_.warmup) {
        execute_phase(Phase::forward, forward_run, i >= 0);
      }
      if (backward != nullptr) {
        if (i == -request_.warmup) {
          engine.fetch(Phase::forward);
          hand_over(transport, forward, *backward);
          engine.load(Phase::backward);
        }
        execute_phase(Phase::backward, backward_run, i >= 0);
      }
      if (transport.rank().value == 0 && request_.progress) {
        request_.progress(i + 1);
      }
    }
    if (request_.check) {
      if (forward.replaces()) {  // iterations went on from each other's: one more from the inputs
        forward.load(data, {});
        engine.load(Phase::forward);
        execute_phase(Phase::forward, forward_run, false);
      }
      engine.fetch(Phase::forward);
      forward_run.check = check_forward(transport, forward.schedule, forward.program,
                                        forward.memory, data, request_.checking, oracles_);
      if (backward != nullptr) {
        engine.fetch(Phase::backward);
        backward_run.check = check_backward(transport, backward->schedule, backward->program,
                                            backward->memory, data, request_.checking, oracles_);
      }
    }
    if (pace) {
      keep_pace(transport, pace->sample(), request_.iterations);
    }
    collect(transport, forward_run, backward_run);
  }

  /// `samples`: by rank, before an iteration; those of the warm-up are negative.
  void keep_pace(const Transport& transport, const std::vector<double>& samples, int iteration) {
    if (transport.rank().value == 0 && iteration >= 0 && !samples.empty()) {
      result_.pace.emplace_back(*std::ranges::max_element(samples));
    }
  }

  /// Tensors that the forward computes and the backward reads.
  [[nodiscard]] std::set<TensorRef> handed_over() const {
    std::set<TensorRef> results;
    for (const StoredProgram& program : forward_) {
      for (const Buffer& buffer : program.buffers) {
        if (buffer.role == BufferRole::output) {
          results.insert(buffer.ref());
        }
      }
    }
    return results;
  }
  /// The backward reads what the forward has kept. A rank may want a tensor in two tiles, in
  /// buffers of different names.
  void hand_over(Transport& transport, const PhaseOfRank& from, const PhaseOfRank& to) const {
    const std::set<TensorRef> kept = handed_over();
    std::set<std::pair<TensorRef, std::string>> wanted;
    for (const StoredProgram& program : backward_) {
      for (const Buffer& buffer : program.buffers) {
        if (buffer.role == BufferRole::input && kept.contains(buffer.ref())) {
          wanted.emplace(buffer.ref(), buffer.name);
        }
      }
    }
    for (const auto& [ref, name] : wanted) {
      const auto held = [&](const Buffer& b) {
        return b.ref() == ref && b.role == BufferRole::output;
      };
      const auto called = [&](const Buffer& b) {
        return b.ref() == ref && b.role == BufferRole::input && b.name == name;
      };
      redistribute(transport, tiles_of(forward_, held), tiles_of(backward_, called),
                   rows_of(from, held), rows_of(to, called));
    }
  }
  /// Empty where the program has no such buffer.
  template <class Wanted>
  static Rows rows_of(const PhaseOfRank& phase, Wanted wanted) {
    const auto at = std::ranges::find_if(phase.program.buffers, wanted);
    return at == phase.program.buffers.end()
               ? Rows{.count = 0, .batch = phase.schedule.contract.attention.batch}
               : phase.memory.all(
                     BufferId(static_cast<std::size_t>(at - phase.program.buffers.begin())));
  }

  /// Of one rank, for all phases.
  [[nodiscard]] Bytes needed(Rank rank, MemoryPart part) const {
    Bytes sum = memory_needed(forward_[rank.index()], part);
    if (request_.backward) {
      sum += memory_needed(backward_[rank.index()], part);
    }
    return sum;
  }

  /// Ranks of one host share its memory, ranks of one device the device's. Asked before anything is
  /// allocated.
  std::string memory_refused(Transport& transport) const {
    const std::array phases{&forward_, &backward_};
    const Bytes beside = engines_.beside_buffers(transport.rank(), *request_.forward, phases);
    std::vector<MemoryDemand> mine =
        engines_.demands(transport, needed(transport.rank(), MemoryPart::all) + beside);
    for (MemoryDemand& d : mine) {
      d.estimated = beside;
    }
    mine.push_back({.pool = fmt::format("host {}", host_name()),
                    .needed = needed(transport.rank(), engines_.host_part()),
                    .available = available_memory()});
    std::string lines;
    for (const MemoryDemand& d : mine) {
      lines += fmt::format("{} {} {} {}\n", d.needed.value(), d.estimated.value(),
                           d.available.value(), d.pool);
    }
    std::map<std::string, MemoryDemand> pools;  // of all their ranks
    for (const std::string& text : transport.all_gather_text(lines)) {
      std::istringstream in(text);
      std::int64_t wanted = 0;
      std::int64_t estimated = 0;
      std::int64_t left = 0;
      for (std::string pool;
           in >> wanted >> estimated >> left && std::getline(in >> std::ws, pool);) {
        MemoryDemand& of_pool = pools[pool];
        of_pool.needed += Bytes(wanted);
        of_pool.estimated += Bytes(estimated);
        of_pool.available = Bytes(left);
      }
    }
    for (const auto& [pool, memory] : pools) {
      if (memory.available.value() > 0 && memory.needed > memory.available) {
        return fmt::format("{} has {:.2f} GB of memory left, its ranks need {:.2f} GB{}", pool,
                           memory.available.as_double() * 1e-9, memory.needed.as_double() * 1e-9,
                           memory.estimated.value() == 0
                               ? ""
                               : fmt::format(" ({:.2f} GB of it for workspaces and libraries, "
                                             "estimated)",
                                             memory.estimated.as_double() * 1e-9));
      }
    }
    return "";
  }

  void collect(Transport& transport, PhaseRun& forward, PhaseRun& backward) {
    std::optional<PhaseResult> f;
    std::optional<PhaseResult> b;
    std::vector<Seconds> both(static_cast<std::size_t>(request_.iterations));
    const auto timed = [&](const PhaseRun& run) {
      PhaseResult phase{.check = run.check};
      phase.samples = samples_of(transport, run);
      for (std::size_t i = 0; i < both.size(); ++i) {
        both[i] += phase.samples[i];
      }
      return phase;
    };
    if (request_.time_forward) {
      f = timed(forward);
    }
    if (request_.backward) {
      b = timed(backward);
    }
    const std::size_t middle = middle_of(both);  // all ranks choose the same
    if (f) {
      add_iteration(transport, forward.runs[middle], request_.forward->streams, forward_, *f);
    }
    if (b) {
      add_iteration(transport, backward.runs[middle], request_.backward->streams, backward_, *b);
    }
    if (transport.rank().value != 0) {
      return;
    }
    result_.complete = true;
    result_.samples = std::move(both);
    result_.middle = middle;
    result_.forward = std::move(f);
    result_.backward = std::move(b);
    if (!request_.time_forward && forward.check && result_.backward) {
      // A forward that only prepared must be right, too.
      auto& tensors = result_.backward->check->tensors;
      tensors.insert(tensors.begin(), forward.check->tensors.begin(), forward.check->tensors.end());
    }
  }

  /// The slowest rank's, of each iteration; on all ranks.
  static std::vector<Seconds> samples_of(Transport& transport, const PhaseRun& run) {
    std::vector<Seconds> samples;
    for (const Execution& e : run.runs) {
      samples.push_back(e.elapsed);
    }
    for (const std::string& text : transport.all_gather_text(bytes_of_vector(samples))) {
      const std::vector<Seconds> theirs = vector_of_bytes<Seconds>(text);
      for (std::size_t i = 0; i < theirs.size(); ++i) {
        samples[i] = std::max(samples[i], theirs[i]);
      }
    }
    return samples;
  }

  /// What all ranks did in an iteration; whole on rank 0 alone.
  static void add_iteration(Transport& transport, const Execution& run,
                            const std::vector<std::string>& streams,
                            const std::vector<StoredProgram>& programs, PhaseResult& result) {
    result.timeline.streams = streams;
    const std::vector<std::string> events =
        transport.all_gather_text(bytes_of_vector(packed(run.timeline.events)));
    const std::vector<std::array<Bytes, comm_kinds>> mine_sent{run.sent};
    const std::vector<std::string> sent = transport.all_gather_text(bytes_of_vector(mine_sent));
    if (transport.rank().value != 0) {
      return;
    }
    for (const std::string& text : events) {
      for (const PackedEvent& event : vector_of_bytes<PackedEvent>(text)) {
        result.timeline.events.push_back(unpacked(event));
      }
    }
    result.breakdown = breakdown_of(result.timeline, programs);
    for (const std::string& text : sent) {
      result.sent.push_back(vector_of_bytes<std::array<Bytes, comm_kinds>>(text).front());
    }
  }

  const TrialRequest& request_;
  HostEngines host_;
  EngineSource& engines_;
  SharedOracles oracles_;
  std::vector<StoredProgram> forward_, backward_;
  TrialResult result_;                 // written by rank 0 only
  std::vector<std::string> warnings_;  // likewise
};

}  // namespace

bool TrialResult::passed() const {
  const auto ok = [](const std::optional<PhaseResult>& phase) {
    return !phase || !phase->check || phase->check->passed();
  };
  return ok(forward) && ok(backward);
}

TrialResult run_trial(const TrialRequest& request) { return Trial(request).run(); }

Seconds percentile_95(std::vector<Seconds> samples) {
  ensure(!samples.empty(), "a percentile of nothing");
  std::ranges::sort(samples);
  const auto rank = static_cast<std::size_t>(std::ceil(0.95 * static_cast<double>(samples.size())));
  return samples[std::max<std::size_t>(rank, 1) - 1];
}

double relative_spread(const std::vector<Seconds>& samples) {
  std::vector<double> seconds;
  std::ranges::transform(samples, std::back_inserter(seconds), &Seconds::count);
  return spread_of(seconds);
}

}  // namespace spp::runtime
