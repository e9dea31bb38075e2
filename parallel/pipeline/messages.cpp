#include "parallel/pipeline/messages.hpp"

#include "base/error.hpp"
#include "parallel/pipeline/walk.hpp"

#include <algorithm>
#include <tuple>

namespace spp {
namespace {

struct TimedStep {
  double time = 0;   // when work begins, or a message is there
  bool work = true;  // messages come first
  int sender = 0;    // of messages at the same time
  StageStep step;
  [[nodiscard]] std::tuple<double, bool, int> key() const { return {time, work, sender}; }
};

}  // namespace

std::string to_string(const StageStep& step, int chunks) {
  std::string op = to_string(step.op, chunks);
  switch (step.kind) {
    case StageStepKind::work:
      return op;
    case StageStepKind::send:
      return fmt::format("send {} to {}", op, step.peer);
    case StageStepKind::receive:
      return fmt::format("receive {} from {}", op, step.peer);
  }
  throw InternalError("no such StageStepKind");
}

std::vector<std::vector<StageStep>> with_messages(const Pipeline& pipeline,
                                                  const PipelineShape& shape) {
  const PipelineTimes equal{
      .stages = std::vector<StageTimes>(static_cast<std::size_t>(shape.virtual_stages())),
      .messages = std::vector<double>(static_cast<std::size_t>(shape.stages)),
      .overlap = true};
  const PipelineWalk walked = walk(pipeline, shape, equal);
  ensure(walked.stuck.empty(), "a pipeline that deadlocks");
  std::vector<std::vector<TimedStep>> timed(walked.ranks.size());
  for (int rank = 0; rank < shape.stages; ++rank) {
    for (const StageInterval& interval : walked.ranks[static_cast<std::size_t>(rank)].ops) {
      const StageOp& op = interval.op;
      timed[static_cast<std::size_t>(rank)].push_back(
          {.time = interval.begin, .step = {.kind = StageStepKind::work, .op = op}});
      if (!sends(shape, op, rank)) {
        continue;
      }
      const int to = receiver_of(shape, op, rank);
      const auto message = [&](int at, StageStepKind kind, int peer) {
        timed[static_cast<std::size_t>(at)].push_back(
            {.time = interval.end,
             .work = false,
             .sender = rank,
             .step = {.kind = kind, .op = op, .peer = peer}});
      };
      message(rank, StageStepKind::send, to);
      message(to, StageStepKind::receive, rank);
    }
  }
  std::vector<std::vector<StageStep>> result;
  for (std::vector<TimedStep>& steps : timed) {
    std::ranges::stable_sort(steps, {}, &TimedStep::key);
    std::vector<StageStep>& program = result.emplace_back();
    for (const TimedStep& step : steps) {
      program.push_back(step.step);
    }
  }
  return result;
}

}  // namespace spp
