#include "runtime/calibrate/engine_suites.hpp"

#include "base/error.hpp"
#include "runtime/calibrate/probe_schedule.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <map>
#include <sstream>

namespace spp::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int least_samples = 7;

/// Memory that each rank may use.
struct Room {
  Bytes device, host;
};

/// What `demands` leaves of every pool, equally shared by those who share it; the least of all
/// ranks. Some is kept back for workspaces of libraries.
Room room_of(const EngineBench& bench) {
  constexpr double device_part = 0.6;
  constexpr double host_part = 0.5;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  std::vector<MemoryDemand> mine = bench.engines.demands(bench.transport, Bytes(0));
  const std::size_t devices = mine.size();
  mine.push_back({.pool = fmt::format("host {}", name.data()),
                  .needed = Bytes(0),
                  .available = memory_available()});
  std::string pools;
  for (const MemoryDemand& pool : mine) {
    pools += pool.pool + "\n";
  }
  std::map<std::string, int> sharing;
  for (const std::string& text : bench.transport.all_gather_text(pools)) {
    std::istringstream in(text);
    for (std::string pool; std::getline(in, pool);) {
      ++sharing[pool];
    }
  }
  constexpr double unknown = 1e18;       // bytes
  std::vector<double> room(2, unknown);  // device, host
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (const double bytes = mine[i].available.as_double(); bytes > 0) {
      double& least = room[i < devices ? 0 : 1];
      least =
          std::min(least, bytes / sharing[mine[i].pool] * (i < devices ? device_part : host_part));
    }
  }
  for (const auto& theirs : all_gather_numbers(bench.transport, room)) {
    room[0] = std::min(room[0], theirs[0]);
    room[1] = std::min(room[1], theirs[1]);
  }
  return {.device = Bytes(static_cast<std::int64_t>(room[0])),
          .host = Bytes(static_cast<std::int64_t>(room[1]))};
}

/// How long executions went on.
struct Course {
  Seconds setup{};  // the engine and its first execution
  Seconds once{};   // each further execution
};

class Instrument {
 public:
  explicit Instrument(const EngineBench& bench)
      : bench_(bench),
        setting_{.shape = bench.shape,
                 .ranks = bench.layout.ranks,
                 .ranks_per_device = bench.ranks_per_device,
                 .cold = bench.cold},
        room_(room_of(bench)) {}

  /// Ranks that are at work when `active` ranks of every device are.
  [[nodiscard]] Crew crew(int active) const {
    Crew crew{.works = {}, .active = active};
    for (int r = 0; r < setting_.ranks; ++r) {
      crew.works.push_back(r % setting_.ranks_per_device < active);
    }
    return crew;
  }
  [[nodiscard]] Crew everybody() const { return crew(setting_.ranks_per_device); }

  /// On rank 0's clock, which all go by.
  Seconds left() {
    const Seconds mine = Clock::now() - start_;
    return bench_.budget - Seconds(all_gather_numbers(bench_.transport, {mine.count()})[0][0]);
  }

  /// Whether all of them find room at the same time.
  [[nodiscard]] bool fits(std::span<const Probe> probes) const {
    Bytes inputs{};
    Bytes scratch{};
    for (const Probe& probe : probes) {
      const ProbeMemory memory = memory_of(probe, setting_);
      inputs += memory.inputs;
      scratch = std::max(scratch, memory.scratch);
    }
    const bool on_host = bench_.engines.host_part() == MemoryPart::all;
    return inputs + scratch <= room_.device &&
           inputs + (on_host ? scratch : Bytes(0)) <= room_.host;
  }

  /// Adds samples to all of `probes`, about as long as `budget`.
  Course time(std::span<Probe> probes, Samples samples, Seconds budget) {
    const auto begin = Clock::now();
    const ProbeSchedule planned = schedule_of(probes, setting_);
    const std::vector<StoredProgram> programs = store(planned.schedule);
    const std::vector<StoredProgram> none;
    const std::size_t self = bench_.transport.rank().index();
    HostMemory memory(programs[self], planned.schedule.problem, bench_.engines.host_part());
    for (const ProbeInput& input : planned.inputs[self]) {
      fill_numbers(memory.all(input.buffer), input.middle, input.reach);
    }
    const ExecuteOptions options;
    const EngineParts parts{
        .transport = bench_.transport,
        .forward = {.schedule = planned.schedule, .program = programs[self], .memory = memory},
        .backward = nullptr,
        .options = options,
        .forward_of_all = programs,
        .backward_of_all = none};
    const std::unique_ptr<Engine> engine = bench_.engines.make(parts);
    Course course;
    abort_on_throw(bench_.transport, [&] {
      engine->load(Phase::forward);
      (void)execute(*engine, planned.timed[self]);
      course = repeat(*engine, planned.timed[self], probes, samples, budget);
      course.setup = Clock::now() - begin - course.setup;
    });
    return course;
  }

 private:
  /// A number that no sample is: this rank was quiet.
  static constexpr double absent = -1;

  /// Seconds of each probe on this rank.
  std::vector<double> execute(Engine& engine, const std::vector<TimedOps>& timed) {
    bench_.transport.barrier();
    const Execution execution = engine.execute(Phase::forward);
    std::vector<const TimelineEvent*> ops(execution.timeline.events.size());
    for (const TimelineEvent& event : execution.timeline.events) {
      ops[static_cast<std::size_t>(event.op)] = &event;
    }
    std::vector<double> seconds;
    for (const TimedOps& t : timed) {
      if (t.times == 0) {
        seconds.push_back(absent);
        continue;
      }
      const auto first = static_cast<std::size_t>(t.first);
      const TimelineEvent& last = *ops[first + static_cast<std::size_t>(t.times) - 1];
      seconds.push_back((last.end - ops[first]->begin).count() / t.times);
    }
    return seconds;
  }

  /// Until all series agree. `setup` of the result is the time that this took.
  Course repeat(Engine& engine, const std::vector<TimedOps>& timed, std::span<Probe> probes,
                Samples samples, Seconds budget) {
    const Patient patient{.least = least_samples, .budget = budget};
    const auto begin = Clock::now();
    Course course;
    for (int taken = 1;; ++taken) {
      std::vector<double> mine = execute(engine, timed);
      mine.push_back(Seconds(Clock::now() - begin).count());
      const auto numbers = all_gather_numbers(bench_.transport, mine);
      for (std::size_t i = 0; i < probes.size(); ++i) {
        collect(numbers, i, samples, probes[i].series.seconds);
      }
      const Seconds elapsed(numbers.front().back());
      course = {.setup = elapsed, .once = elapsed / taken};
      const auto all_have = [&](int count) {
        return std::ranges::all_of(
            probes, [&](const Probe& p) { return std::ssize(p.series.seconds) >= count; });
      };
      const auto agrees = [&](const Probe& probe) {
        return spread_of(probe.series.seconds) < patient.spread;
      };
      if (all_have(patient.most) ||
          (all_have(patient.least) &&
           (elapsed > patient.budget || std::ranges::all_of(probes, agrees)))) {
        return course;
      }
    }
  }

  static void collect(const std::vector<std::vector<double>>& numbers, std::size_t probe,
                      Samples samples, std::vector<double>& seconds) {
    double most = absent;
    for (const auto& of_rank : numbers) {
      most = std::max(most, of_rank[probe]);
      if (samples == Samples::each && of_rank[probe] != absent) {
        seconds.push_back(of_rank[probe]);
      }
    }
    if (samples == Samples::slowest) {
      seconds.push_back(most);
    }
  }

  const EngineBench& bench_;
  ProbeSetting setting_;
  Room room_;
  Clock::time_point start_ = Clock::now();
};

std::vector<Series> series_of(std::span<const Probe> probes) {
  std::vector<Series> series;
  for (const Probe& probe : probes) {
    series.push_back(probe.series);
  }
  return series;
}

/// In one schedule; those that alone are too large for memory are left out.
std::vector<Series> together(Instrument& instrument, std::vector<Probe> probes, Samples samples) {
  std::erase_if(probes, [&](const Probe& probe) { return !instrument.fits({&probe, 1}); });
  while (!probes.empty() && !instrument.fits(probes)) {
    probes.pop_back();
  }
  if (!probes.empty()) {
    (void)instrument.time(probes, samples, instrument.left());
  }
  return series_of(probes);
}

std::vector<Probe> elementwise_probes(const Instrument& instrument, const EngineBench& bench) {
  const Crew everybody = instrument.everybody();
  // First, since later ones leave work behind on the device, which hides what the host does.
  std::vector<Probe> probes{empty_op_probe(everybody)};
  const auto add = [&](std::vector<Probe> more) {
    std::ranges::move(more, std::back_inserter(probes));
  };
  add(kernel_probes(bench.shape, everybody, bench.largest));
  if (everybody.active > 1) {
    add(kernel_probes(bench.shape, instrument.crew(1), bench.largest));
  }
  return probes;
}

/// Blocks of attention, by rising FLOPs, as many as go into the budget.
class Attention {
 public:
  Attention(const EngineBench& bench, Instrument& instrument)
      : bench_(bench), instrument_(instrument) {}

  void peak() {
    struct Size {
      std::int64_t tokens;
      int heads;
    };
    constexpr std::array sizes{Size{32, 1},    Size{256, 2},   Size{1024, 4},
                               Size{2048, 16}, Size{4096, 16}, Size{8192, 16}};
    for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
      std::vector<AttentionBlock> blocks;
      for (const auto& [count, heads] : sizes) {
        const TokenSet tokens(TokenRange{.begin = 0, .count = count});
        blocks.push_back({.q = tokens,
                          .k = tokens,
                          .q_heads = heads,
                          .kv_heads = heads,
                          .mask = {.kind = MaskKind::full},
                          .dtype = dtype});
      }
      std::vector<Probe> probes = attention_probes(blocks, "peak", instrument_.everybody());
      std::erase_if(probes, [&](const Probe& probe) { return !possible(probe); });
      if (!probes.empty()) {
        climb(std::move(probes));
      }
    }
  }

  void blocks(const std::vector<AttentionBlock>& blocks) {
    std::vector<Probe> probes = attention_probes(blocks, "attention", instrument_.everybody());
    std::erase_if(probes, [&](const Probe& probe) { return !possible(probe); });
    cost_ = {};
    for (std::size_t at = 0; at < probes.size();) {
      const Seconds left = instrument_.left();
      if (at > 0) {
        thin(probes, at, left);
      }
      const std::size_t end = end_of_group(probes, at, left);
      if (end == at) {
        break;
      }
      const double part = likely(probes, at, end) / likely(probes, at, probes.size());
      time({probes.data() + at, end - at},
           left * part - Seconds(cost_.setup * static_cast<double>(end - at)));
      at = end;
    }
  }

  std::vector<Series> series() { return std::move(series_); }

 private:
  static constexpr double peak_part = 0.1;  // of the time that is left
  static constexpr std::size_t most_together = 8;
  static constexpr double most_growth = 64;  // of FLOPs in a group: costs are known about so far

  /// In seconds; 0: not known yet.
  struct Cost {
    double setup = 0;    // of a block that was measured last: compiled kernels, operands
    double of_flop = 0;  // of the same, with all that is around it
  };

  [[nodiscard]] bool possible(const Probe& probe) const {
    const AttentionBlock& block = *probe.series.block;
    return bench_.engines.why_not(problem_of(block), block.q, block.k).empty() &&
           instrument_.fits({&probe, 1});
  }

  /// Straight to the largest block that is likely to fit, and again from there while larger ones
  /// do: small ones say little, and every block may have to be compiled.
  void climb(std::vector<Probe> probes) {
    for (std::size_t at = 0, measured = probes.size();;) {
      const Seconds left = instrument_.left() * peak_part;
      for (std::size_t i = at; best_of_flop_ > 0 && i < probes.size(); ++i) {
        at = run_time(probes[i]) <= left ? i : at;
      }
      if (at == measured) {
        return;
      }
      if (measured < probes.size()) {
        series_.pop_back();
      }
      time({&probes[at], 1}, left / 2);
      measured = at;
    }
  }

  /// FLOPs of all executions that a block needs.
  static double work_of(const Probe& probe) {
    const int executions =
        1 + std::max(2, (least_samples + probe.series.active - 1) / probe.series.active);
    return flops_of(*probe.series.block).value() * times_of(*probe.series.block) * executions;
  }
  /// All that it takes to measure a block, if it goes as the last ones did. Larger ones go faster
  /// by FLOP, so rather too much.
  [[nodiscard]] Seconds expected(const Probe& probe) const {
    return Seconds(cost_.setup + cost_.of_flop * work_of(probe));
  }
  /// Without what is around it, if it goes as blocks that are not small usually do.
  [[nodiscard]] Seconds run_time(const Probe& probe) const {
    constexpr double usual = 3;  // times the best
    return Seconds(usual * best_of_flop_ * work_of(probe));
  }
  /// All that it takes to measure blocks [from, to).
  [[nodiscard]] Seconds likely(const std::vector<Probe>& probes, std::size_t from,
                               std::size_t to) const {
    Seconds sum{1e-9};
    for (std::size_t i = from; i < to; ++i) {
      sum += Seconds(cost_.setup) + run_time(probes[i]);
    }
    return sum;
  }

  /// If not all can be measured, then evenly spaced ones.
  void thin(std::vector<Probe>& probes, std::size_t from, Seconds left) const {
    const double part = left / likely(probes, from, probes.size());
    if (part >= 1) {
      return;
    }
    std::vector<Probe> kept(probes.begin(), probes.begin() + static_cast<std::ptrdiff_t>(from));
    double due = 0;
    for (std::size_t i = from; i < probes.size(); ++i) {
      due += part;
      if (due >= 1) {
        due -= 1;
        kept.push_back(std::move(probes[i]));
      }
    }
    probes = std::move(kept);
  }

  /// Of those from `at` on that go into one schedule; `at`: no time is left for any. The smallest
  /// one is measured whatever it takes: a profile without any is no profile.
  [[nodiscard]] std::size_t end_of_group(const std::vector<Probe>& probes, std::size_t at,
                                         Seconds left) const {
    const AttentionBlock& first = *probes[at].series.block;
    Seconds sum{};
    std::size_t end = at;
    while (end < probes.size() && end - at < most_together) {
      const AttentionBlock& block = *probes[end].series.block;
      const bool alike = block.batch == first.batch && block.head_dim == first.head_dim &&
                         block.mask == first.mask && block.dtype == first.dtype &&
                         flops_of(block).value() <= most_growth * flops_of(first).value();
      sum += expected(probes[end]);
      if (end > 0 && (sum > left || (end > at && (at == 0 || !alike)) ||
                      !instrument_.fits({probes.data() + at, end + 1 - at}))) {
        break;
      }
      ++end;
    }
    return end;
  }

  void time(std::span<Probe> probes, Seconds budget) {
    const Course course = instrument_.time(probes, Samples::each, std::max(budget, Seconds(0.0)));
    double flops = 0;
    for (const Probe& probe : probes) {
      const AttentionBlock& block = *probe.series.block;
      const double own = std::max(1.0, flops_of(block).value());  // 0 if the mask hides all keys
      flops += own * times_of(block);
      const double seconds = median_of(probe.series.seconds) / own;
      best_of_flop_ = best_of_flop_ > 0 ? std::min(best_of_flop_, seconds) : seconds;
      series_.push_back(probe.series);
    }
    // On rank 0's clock, since all must come to the same decisions.
    const auto cost = all_gather_numbers(
        bench_.transport,
        {course.setup.count() / static_cast<double>(probes.size()), course.once.count() / flops});
    cost_ = {.setup = cost[0][0], .of_flop = cost[0][1]};
  }

  const EngineBench& bench_;
  Instrument& instrument_;
  Cost cost_;
  double best_of_flop_ = 0;  // seconds, of all that was measured
  std::vector<Series> series_;
};

}  // namespace

std::vector<Series> engine_suite(const std::string& suite, const EngineBench& bench,
                                 const std::vector<AttentionBlock>& blocks) {
  Instrument instrument(bench);
  if (suite == "links") {
    return together(instrument, link_probes(bench.layout, bench.largest), Samples::slowest);
  }
  if (suite == "collectives") {
    return together(instrument, collective_probes(bench.layout, bench.largest), Samples::slowest);
  }
  if (suite == "elementwise") {
    return together(instrument, elementwise_probes(instrument, bench), Samples::each);
  }
  ensure(suite == "attention", "an unknown suite");
  Attention attention(bench, instrument);
  attention.peak();
  attention.blocks(blocks);
  return attention.series();
}

}  // namespace spp::runtime
