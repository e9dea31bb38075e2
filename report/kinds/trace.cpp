// A Chrome trace, as 'simulate --trace' and 'run --trace' write it: the timeline, lane by lane.
#include "report/candidate.hpp"
#include "report/kind.hpp"
#include "report/lanes.hpp"
#include "report/markup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace spp::report::kinds::trace {
namespace {

constexpr std::size_t most_ranks_drawn = 8;
constexpr std::size_t most_stages_drawn = 16;
constexpr std::size_t most_lanes_of_a_rank = 16;
constexpr double most_microseconds = 1e15;

enum Shown : std::uint8_t { attention, gemm, transfer, other };
/// Of a whole step: in place of attention, GEMMs, transfers and the rest.
enum ShownOfStep : std::uint8_t { forward, backward, traffic, end };

/// By the category of an event of a whole step (step/timeline.hpp); nothing: another trace's.
std::optional<int> kind_in_step(std::string_view category) {
  constexpr std::array<std::pair<std::string_view, int>, 9> kinds{{{"forward", forward},
                                                                   {"backward", backward},
                                                                   {"input_gradient", backward},
                                                                   {"weight_gradient", backward},
                                                                   {"message", traffic},
                                                                   {"gradients", traffic},
                                                                   {"parameters", traffic},
                                                                   {"optimizer", end},
                                                                   {"host", end}}};
  const auto* const at =
      std::ranges::find(kinds, category, &std::pair<std::string_view, int>::first);
  return at != kinds.end() ? std::optional(at->second) : std::nullopt;
}

int kind_of(std::string_view name) {
  constexpr std::array<std::string_view, 9> transfers{"all_to_all", "all_gather", "reduce_scatter",
                                                      "all_reduce", "send_recv",  "send",
                                                      "recv",       "exchange",   "broadcast"};
  if (name.find("attention") != std::string_view::npos) {
    return attention;
  }
  if (name.find("gemm") != std::string_view::npos) {
    return gemm;
  }
  const bool moves = std::ranges::any_of(
      transfers, [&](std::string_view t) { return name.find(t) != std::string_view::npos; });
  return moves ? transfer : other;
}

/// A number of an event; the events are too many to be looked at through a JsonView each.
double number_of(const Json& event, const char* key, const JsonView& list, std::size_t index) {
  const auto at = event.find(key);
  const bool fine =
      at != event.end() && at->is_number() && std::abs(at->get<double>()) <= most_microseconds;
  if (!fine) {
    list.fail(fmt::format("event {} has no '{}', or none that can be", index, key));
  }
  return at->get<double>();
}

std::string text_of(const Json& event, const char* key) {
  const auto at = event.find(key);
  return at != event.end() && at->is_string() ? at->get<std::string>() : "";
}

struct Timeline {
  std::map<std::int64_t, std::string> ranks;
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> streams;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Stretch>> lanes;
  double begin = INFINITY, end = 0;
  std::size_t events = 0;
  bool of_step = false;
};

Timeline read(const JsonView& document) {
  const JsonView list = document.at("traceEvents");
  if (!list.value().is_array()) {
    list.fail("is not a list of events");
  }
  Timeline t;
  std::size_t index = 0;
  for (const Json& event : list.value()) {
    ++index;
    if (!event.is_object()) {
      list.fail(fmt::format("event {} is not an object", index));
    }
    const std::string phase = text_of(event, "ph");
    if (phase != "X" && phase != "M") {
      continue;
    }
    const auto rank = static_cast<std::int64_t>(number_of(event, "pid", list, index));
    if (phase == "M") {
      const auto args = event.find("args");
      const std::string name =
          args != event.end() && args->is_object() ? text_of(*args, "name") : "";
      if (text_of(event, "name") == "process_name") {
        t.ranks[rank] = name;
      } else if (text_of(event, "name") == "thread_name") {
        t.streams[{rank, static_cast<std::int64_t>(number_of(event, "tid", list, index))}] = name;
      }
      continue;
    }
    const std::string category = text_of(event, "cat");
    if (category == "part") {
      continue;  // of a pass, which is drawn
    }
    const std::optional<int> kind = kind_in_step(category);
    t.of_step = t.of_step || kind.has_value();
    const auto stream = static_cast<std::int64_t>(number_of(event, "tid", list, index));
    const double from = number_of(event, "ts", list, index);
    const double duration = number_of(event, "dur", list, index);
    if (duration < 0) {
      list.fail(fmt::format("event {} ends before it begins", index));
    }
    t.lanes[{rank, stream}].push_back({.from = from,
                                       .to = from + duration,
                                       .kind = kind ? *kind : kind_of(text_of(event, "name"))});
    t.begin = std::min(t.begin, from);
    t.end = std::max(t.end, from + duration);
    ++t.events;
  }
  return t;
}

std::string subject(const JsonView& document) {
  const auto data = document.find("otherData");
  const auto title = data && data->value().is_object() ? data->find("title") : std::nullopt;
  return title ? title->string() : "a trace";
}

std::string microseconds_text(double us) { return seconds_text(us * 1e-6); }

void add(const JsonView& document, Sheet& sheet) {
  Timeline t = read(document);
  if (t.events == 0) {
    document.at("traceEvents").fail("has no event that takes time (\"ph\": \"X\")");
  }
  LaneChart chart{.title = "Timeline",
                  .description =
                      "A lane for each stream of each rank; what is drawn one above the other "
                      "runs at the same time.",
                  .note = "",
                  .kinds = {{"k-attention", "attention"},
                            {"k-gemm", "GEMMs"},
                            {"k-cp", "transfers"},
                            {"k-elementwise", "small kernels"}},
                  .end = t.end - t.begin,
                  .text = microseconds_text,
                  .lanes = {}};
  if (t.of_step) {
    chart.description =
        "Three lanes a stage of the pipeline: passes of micro-batches, messages to other stages, "
        "gradients and parameters on their way; what is drawn one above the other runs at the same "
        "time.";
    chart.kinds = {{"k-gemm", "forward"},
                   {"k-attention", "backward"},
                   {"k-dp", "messages, gradients, parameters"},
                   {"k-optimizer", "optimizer, host"}};
  }
  std::map<std::int64_t, std::size_t> drawn;
  std::size_t lanes_of_drawn = 0;
  for (auto& [place, stretches] : t.lanes) {
    if (!drawn.contains(place.first) &&
        drawn.size() == (t.of_step ? most_stages_drawn : most_ranks_drawn)) {
      continue;
    }
    ++lanes_of_drawn;
    if (++drawn[place.first] > most_lanes_of_a_rank) {
      continue;
    }
    std::ranges::stable_sort(stretches, {}, &Stretch::from);
    for (Stretch& s : stretches) {
      s.from -= t.begin;
      s.to -= t.begin;
    }
    const auto rank = t.ranks.find(place.first);
    const auto stream = t.streams.find(place);
    chart.lanes.push_back(
        {.group = rank != t.ranks.end() ? rank->second : fmt::format("process {}", place.first),
         .label = stream != t.streams.end() ? stream->second : fmt::format("{}", place.second),
         .stretches = std::move(stretches)});
  }
  std::set<std::int64_t> all;
  for (const auto& [place, stretches] : t.lanes) {
    all.insert(place.first);
  }
  const auto left_out = [&](std::size_t shown, std::size_t of, std::string_view what) {
    if (shown < of) {
      chart.note += fmt::format("{}{} of {} {}", chart.note.empty() ? "" : ", ", shown, of, what);
    }
  };
  left_out(drawn.size(), all.size(), t.of_step ? "stages" : "ranks");
  left_out(chart.lanes.size(), lanes_of_drawn, "lanes of these");
  if (!chart.note.empty()) {
    chart.note += " are drawn; chrome://tracing or Perfetto show all.";
  }
  sheet.stats({{"takes", microseconds_text(t.end - t.begin), ""},
               {t.of_step ? "stages" : "ranks", fmt::format("{}", all.size()), ""},
               {t.of_step ? "bars" : "ops", fmt::format("{}", t.events), ""}});
  add(sheet, chart);
}

}  // namespace

extern const Kind entry{.format = "", .name = "Timeline", .subject = subject, .add = add};

}  // namespace spp::report::kinds::trace
