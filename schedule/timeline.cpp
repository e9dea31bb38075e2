#include "schedule/timeline.hpp"

#include "base/chrome_trace.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "schedule/text.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

namespace spp {
Seconds Timeline::end() const {
  return events.empty() ? Seconds(0) : std::ranges::max(events, {}, &TimelineEvent::end).end;
}

Timeline joined(const Timeline& first, const Timeline& second) {
  Timeline result = first;
  const Seconds shift = first.end();
  std::map<Rank, std::int64_t> ops;  // of the first, by rank
  for (const TimelineEvent& e : first.events) {
    ops[e.rank] = std::max(ops[e.rank], e.op + 1);
  }
  std::vector<StreamId> names;
  for (const std::string& name : second.streams) {
    const auto at = std::ranges::find(result.streams, name);
    names.emplace_back(static_cast<std::size_t>(at - result.streams.begin()));
    if (at == result.streams.end()) {
      result.streams.push_back(name);
    }
  }
  for (TimelineEvent event : second.events) {
    event.begin += shift;
    event.end += shift;
    event.op += ops[event.rank];
    event.waited_for += event.waited_for < 0 ? 0 : ops[event.rank];
    event.stream = names.at(event.stream.index());
    result.events.push_back(event);
  }
  return result;
}

std::string to_chrome_trace(const Timeline& timeline, std::string_view title) {
  ChromeTrace trace(title);
  std::set<std::pair<Rank, StreamId>> threads;
  for (const TimelineEvent& e : timeline.events) {
    threads.emplace(e.rank, e.stream);
  }
  Rank named;
  for (const auto& [rank, stream] : threads) {
    ensure(stream.valid() && stream.index() < timeline.streams.size(),
           "an event on a stream that its timeline lacks");
    if (rank != named) {
      named = rank;
      trace.name_process(rank.value, fmt::format("rank {}", rank.value));
    }
    trace.name_thread(rank.value, stream.value, timeline.streams[stream.index()]);
  }
  for (const TimelineEvent& e : timeline.events) {
    const std::string args = fmt::format(
        "\"op\": {}, \"bytes\": {}, \"flops\": {}, \"waited_for\": {}, \"waited_for_rank\": {}",
        e.op, e.bytes, e.flops, e.waited_for, e.waited_for_rank.value);
    trace.add({.name = to_string(e.kind),
               .process = e.rank.value,
               .thread = e.stream.value,
               .begin = e.begin.count(),
               .end = e.end.count(),
               .args = args});
  }
  return trace.take();
}

Trace parse_chrome_trace(std::string_view text, std::string_view file) {
  const Json json = parse_json(text, file, trace_limits);
  const JsonView root(json, std::string(file));
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  constexpr double most_us = 1e18;
  constexpr double most_flops = 1e30;
  Trace trace{.title = root.at("otherData").at("title").string(), .timeline = {}};
  std::map<std::int64_t, std::string> streams;
  std::unordered_set<std::int64_t> met;  // ops of ranks
  for (const JsonView& event : root.at("traceEvents").elements()) {
    const std::string phase = event.at("ph").string();
    const JsonView args = event.at("args");
    if (phase == "M") {
      if (event.at("name").string() == "thread_name") {
        streams[event.at("tid").integer(0, 63)] = args.at("name").string();
      }
      continue;
    }
    const std::string name = event.at("name").string();
    const auto kind = std::ranges::find(op_names(), name);
    if (phase != "X" || kind == op_names().end()) {
      event.at("name").fail(fmt::format(
          "'{}' is no op of an attention call, and only traces of such can be read", name));
    }
    const Seconds begin(event.at("ts").number(-most_us, most_us) * 1e-6);
    trace.timeline.events.push_back(
        {.rank = Rank(static_cast<std::int32_t>(event.at("pid").integer(0, most))),
         .op = args.at("op").integer(0, most),
         .stream = StreamId(static_cast<std::int32_t>(event.at("tid").integer(0, 63))),
         .kind = static_cast<OpKind>(kind - op_names().begin()),
         .begin = begin,
         .end = begin + Seconds(event.at("dur").number(0, most_us) * 1e-6),
         .bytes = args.at("bytes").integer(0, std::numeric_limits<std::int64_t>::max()),
         .flops = args.at("flops").number(0, most_flops),
         .waited_for = args.at("waited_for").integer(-1, most),
         .waited_for_rank =
             Rank(static_cast<std::int32_t>(args.at("waited_for_rank").integer(-1, most)))});
    const TimelineEvent& e = trace.timeline.events.back();
    if (!met.insert(e.rank.value * (most + 1) + e.op).second) {
      args.at("op").fail(fmt::format("rank {} has op {} twice", e.rank.value, e.op));
    }
  }
  for (const auto& [id, name] : streams) {
    trace.timeline.streams.resize(static_cast<std::size_t>(id) + 1);
    trace.timeline.streams.back() = name;
  }
  return trace;
}

}  // namespace spp
