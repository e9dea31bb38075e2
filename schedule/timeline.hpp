// What happened when: the common result of simulating a schedule (predicted) and running it
// (measured), op by op, so that the difference of the two is one function.
#pragma once

#include "base/id.hpp"
#include "base/units.hpp"
#include "schedule/op.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

/// One op of one rank. Times count from the start of the run.
struct TimelineEvent {
  Rank rank;
  std::int64_t op = 0;  // position in the rank's program, from 0
  StreamId stream;
  OpKind kind = OpKind::attention_fwd;
  Seconds begin{};
  Seconds end{};
  std::int64_t bytes = 0;  // sent to other ranks, or touched by a kernel
  double flops = 0;
  /// The op of the same rank whose end let this one begin; -1 if it was the stream, or nothing.
  std::int64_t waited_for = -1;
  /// The peer that came last to a rendezvous; invalid if nobody was waited for.
  Rank waited_for_rank;
  friend bool operator==(const TimelineEvent&, const TimelineEvent&) = default;
};

struct Timeline {
  std::vector<std::string> streams;  // as in the schedule
  std::vector<TimelineEvent> events;

  /// When the last op ends, after the clock's start, from which the host launches the first one; 0
  /// without events.
  [[nodiscard]] Seconds end() const;
};

/// `second` begins where `first` ends; its ops are numbered on from those of `first`.
Timeline joined(const Timeline& first, const Timeline& second);

/// The Trace Event Format of Chrome and Perfetto (ui.perfetto.dev): one process a rank, one thread
/// a stream, one complete event ("ph": "X") an op, times in microseconds.
std::string to_chrome_trace(const Timeline& timeline, std::string_view title);

/// Reads what to_chrome_trace wrote. InputError(file, key) on anything else.
struct Trace {
  std::string title;
  Timeline timeline;
};
Trace parse_chrome_trace(std::string_view text, std::string_view file);

}  // namespace spp
