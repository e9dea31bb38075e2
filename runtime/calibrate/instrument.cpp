#include "runtime/calibrate/instrument.hpp"

#include "base/available_memory.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <string>

namespace spp::runtime {
namespace {

/// Before the op with which what is timed begins at the same time everywhere.
std::vector<std::int32_t> pauses_before(const std::vector<TimedOps>& timed) {
  std::vector<std::int32_t> pauses;
  for (const TimedOps& t : timed) {
    if (t.times > 0) {
      pauses.push_back(std::max(0, t.first - 1));
    }
  }
  return pauses;
}

}  // namespace

/// What `demands` leaves of every pool, equally shared by those who share it; the least of all
/// ranks. Some is kept back for workspaces of libraries.
Instrument::Room Instrument::room_of(const EngineBench& bench) {
  constexpr double device_part = 0.6;
  constexpr double host_part = 0.5;
  std::vector<MemoryDemand> mine = bench.engines.demands(bench.transport, Bytes(0));
  const std::size_t devices = mine.size();
  mine.push_back({.pool = fmt::format("host {}", host_name()),
                  .needed = Bytes(0),
                  .available = available_memory()});
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

Instrument::Instrument(const EngineBench& bench)
    : bench_(bench),
      setting_{.shape = bench.shape,
               .ranks = bench.layout.ranks,
               .ranks_per_device = bench.ranks_per_device,
               .cold = bench.cold},
      room_(room_of(bench)),
      clock_(bench.transport) {}

Crew Instrument::crew(int active) const {
  Crew crew{.works = {}, .active = active};
  for (int r = 0; r < setting_.ranks; ++r) {
    crew.works.push_back(r % setting_.ranks_per_device < active);
  }
  return crew;
}

Seconds Instrument::left() const { return bench_.budget - clock_.elapsed(); }

bool Instrument::fits(std::span<const Probe> probes) const {
  Bytes inputs{};
  Bytes scratch{};
  for (const Probe& probe : probes) {
    const ProbeMemory memory = memory_of(probe, setting_);
    inputs += memory.inputs;
    scratch = std::max(scratch, memory.scratch);
  }
  const bool on_host = bench_.engines.host_part() == MemoryPart::all;
  return inputs + scratch <= room_.device && inputs + (on_host ? scratch : Bytes(0)) <= room_.host;
}

Course Instrument::time(std::span<Probe> probes, Samples samples, Seconds budget) const {
  const auto begin = Clock::now();
  const ProbeSchedule planned = schedule_of(probes, setting_);
  const std::vector<StoredProgram> programs = store(planned.schedule);
  const std::vector<StoredProgram> none;
  const std::size_t self = bench_.transport.rank().index();
  HostMemory memory(programs[self], bench_.engines.host_part());
  for (const ProbeInput& input : planned.inputs[self]) {
    fill_numbers(memory.all(input.buffer), input.middle, input.reach);
  }
  const ExecuteOptions options{.timeout = bench_.transport.deadlines().timeout,
                               .pauses = pauses_before(planned.timed[self])};
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
    settle(*engine, planned.timed[self], budget);
    course.setup = Clock::now() - begin;
    course.once = repeat(*engine, planned.timed[self], probes, samples, budget);
  });
  return course;
}

std::vector<double> Instrument::execute(Engine& engine, const std::vector<TimedOps>& timed) const {
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

void Instrument::settle(Engine& engine, const std::vector<TimedOps>& timed, Seconds budget) const {
  constexpr Seconds settling{0.25};
  constexpr double part = 0.5;  // of the budget
  const CommonClock clock(bench_.transport);
  while (clock.elapsed() < std::min(settling, budget * part)) {
    (void)execute(engine, timed);
  }
}

Seconds Instrument::repeat(Engine& engine, const std::vector<TimedOps>& timed,
                           std::span<Probe> probes, Samples samples, Seconds budget) const {
  const Patient patient{.budget = budget};
  const auto begin = Clock::now();
  for (int taken = 1;; ++taken) {
    std::vector<double> mine = execute(engine, timed);
    mine.push_back(Seconds(Clock::now() - begin).count());
    const auto numbers = all_gather_numbers(bench_.transport, mine);
    for (std::size_t i = 0; i < probes.size(); ++i) {
      add_sample(numbers, i, samples, probes[i].series.seconds);
    }
    const Seconds elapsed(numbers.front().back());
    const auto all_have = [&](int count) {
      return std::ranges::all_of(
          probes, [&](const Probe& p) { return std::ssize(p.series.seconds) >= count; });
    };
    const auto agrees = [&](const Probe& probe) {
      return patient.satisfied_with(probe.series.seconds);
    };
    if (all_have(patient.most) ||
        (all_have(patient.least) &&
         (elapsed > patient.budget || std::ranges::all_of(probes, agrees)))) {
      return elapsed / taken;
    }
  }
}

}  // namespace spp::runtime
