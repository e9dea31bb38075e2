#include "schedule/timeline.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "schedule/text.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace spp {
namespace {

std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

double microseconds(Seconds s) { return s.count() * 1e6; }

}  // namespace

Seconds Timeline::makespan() const {
  if (events.empty()) {
    return Seconds(0);
  }
  const Seconds begin = std::ranges::min(events, {}, &TimelineEvent::begin).begin;
  const Seconds end = std::ranges::max(events, {}, &TimelineEvent::end).end;
  return end - begin;
}

std::string_view kind_name(std::uint8_t kind) {
  ensure(kind < op_names().size(), "an event of a kind that is no op");
  return op_names()[kind];
}

std::string to_chrome_trace(const Timeline& timeline, std::string_view title) {
  fmt::memory_buffer text;
  const auto append = [&text]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
  };
  append("{{\"displayTimeUnit\": \"ms\", \"otherData\": {{\"title\": {}}},\n\"traceEvents\": [",
         json_string(title));
  std::string_view separator = "\n";

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
      append(
          "{}{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": {}, \"args\": {{\"name\": "
          "\"rank {}\"}}}}",
          separator, rank.value, rank.value);
      separator = ",\n";
    }
    append(
        "{}{{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": {}, \"tid\": {}, \"args\": "
        "{{\"name\": {}}}}}",
        separator, rank.value, stream.value, json_string(timeline.streams[stream.index()]));
  }
  for (const TimelineEvent& e : timeline.events) {
    append(
        "{}{{\"name\": \"{}\", \"ph\": \"X\", \"pid\": {}, \"tid\": {}, \"ts\": {}, \"dur\": {}, "
        "\"args\": {{\"op\": {}, \"bytes\": {}, \"flops\": {}, \"waited_for\": {}, "
        "\"waited_for_rank\": {}}}}}",
        separator, kind_name(e.kind), e.rank.value, e.stream.value, microseconds(e.begin),
        microseconds(e.end - e.begin), e.op, e.bytes, e.flops, e.waited_for,
        e.waited_for_rank.value);
    separator = ",\n";
  }
  append("\n]}}\n");
  return fmt::to_string(text);
}

}  // namespace spp
