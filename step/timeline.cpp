#include "step/timeline.hpp"

#include "base/chrome_trace.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace spp {
namespace {

constexpr std::array<std::string_view, 3> stream_names{"compute", "messages", "weights"};
constexpr std::array<std::string_view, 9> kind_names{
    "forward",         "backward",   "input_gradient",
    "weight_gradient", "message",    "gradients",
    "optimizer",       "parameters", "host"};

StepEventKind kind_of(StageWork work) {
  switch (work) {
    case StageWork::forward:
      return StepEventKind::forward;
    case StageWork::backward:
      return StepEventKind::backward;
    case StageWork::input_gradient:
      return StepEventKind::input_gradient;
    case StageWork::weight_gradient:
      return StepEventKind::weight_gradient;
  }
  throw InternalError("no such StageWork");
}

}  // namespace

std::string_view to_string(StepStream stream) {
  return stream_names.at(static_cast<std::size_t>(stream));
}
std::string_view to_string(StepEventKind kind) {
  return kind_names.at(static_cast<std::size_t>(kind));
}

double StepTimeline::end() const {
  double last = 0;
  for (const StepEvent& e : events) {
    last = std::max(last, e.end);
  }
  return last;
}

void StepTimeline::add(const PipelineShape& shape, int stage, const PipelineRank& walked,
                       const PipelineTimes& times,
                       const std::function<StepSeconds(const StageOp&)>& parts) {
  for (const StageInterval& interval : walked.ops) {
    const StageOp& op = interval.op;
    events.push_back({.stage = stage,
                      .kind = kind_of(op.work),
                      .chunk = op.chunk,
                      .micro_batch = op.micro_batch,
                      .begin = interval.begin,
                      .end = interval.end,
                      .parts = parts(op)});
  }
  for (const StageInterval& interval : walked.ops) {
    if (sends(shape, interval.op, stage)) {
      events.push_back({.stage = stage,
                        .stream = StepStream::messages,
                        .kind = StepEventKind::message,
                        .chunk = interval.op.chunk,
                        .micro_batch = interval.op.micro_batch,
                        .begin = interval.arrives - times.message_of(shape, interval.op, stage),
                        .end = interval.arrives,
                        .parts = {}});
    }
  }
}

void StepTimeline::add(int stage, std::span<const Reduction> reductions) {
  for (const Reduction& r : reductions) {
    if (r.end > r.begin) {
      events.push_back({.stage = stage,
                        .stream = StepStream::weights,
                        .kind = StepEventKind::gradients,
                        .begin = r.begin,
                        .end = r.end,
                        .parts = {}});
    }
  }
}

void StepTimeline::add_end(int stages, const StepEnds& ends) {
  for (int r = 0; r < stages; ++r) {
    const auto bar = [&](StepStream stream, StepEventKind kind, double from, double to) {
      if (to > from) {
        events.push_back(
            {.stage = r, .stream = stream, .kind = kind, .begin = from, .end = to, .parts = {}});
      }
    };
    bar(StepStream::compute, StepEventKind::optimizer, ends.reduced, ends.updated);
    bar(StepStream::weights, StepEventKind::parameters, ends.updated, ends.gathered);
    bar(StepStream::compute, StepEventKind::host, ends.gathered, ends.logged);
  }
}

std::string to_chrome_trace(const StepTimeline& timeline, std::string_view title) {
  ChromeTrace trace(title);
  std::set<std::pair<int, StepStream>> threads;
  for (const StepEvent& e : timeline.events) {
    threads.emplace(e.stage, e.stream);
  }
  int named = -1;
  for (const auto& [stage, stream] : threads) {
    if (stage != named) {
      named = stage;
      trace.name_process(stage, fmt::format("stage {}", stage));
    }
    trace.name_thread(stage, static_cast<int>(stream), to_string(stream));
  }
  for (const StepEvent& e : timeline.events) {
    const std::string args =
        fmt::format("\"micro_batch\": {}, \"chunk\": {}", e.micro_batch, e.chunk);
    const auto add = [&](std::string_view name, std::string_view category, double begin,
                         double end) {
      trace.add({.name = name,
                 .category = category,
                 .process = e.stage,
                 .thread = static_cast<int>(e.stream),
                 .begin = begin,
                 .end = end,
                 .args = args});
    };
    const std::string_view kind = to_string(e.kind);
    add(e.micro_batch >= 0 ? fmt::format("{} {}", kind, e.micro_batch) : std::string(kind), kind,
        e.begin, e.end);
    double at = e.begin;
    for (std::size_t i = 0; i < step_parts; ++i) {
      const auto part = static_cast<StepPart>(i);
      if (const double takes = e.parts[part]; takes > 0) {
        add(to_string(part), "part", at, at + takes);
        at += takes;
      }
    }
  }
  return trace.take();
}

}  // namespace spp
