// A whole step laid out in time: micro-batches on the stages of a pipeline, messages between them,
// gradients, the optimizer, parameters. What step_cost() adds up, of one rank of each stage.
#pragma once

#include "parallel/pipeline/walk.hpp"
#include "step/passes.hpp"
#include "step/weights.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

/// What a rank does at once: kernels (and transfers that its layers wait for), messages to other
/// stages, traffic of weights and gradients.
enum class StepStream : std::uint8_t { compute, messages, weights };
std::string_view to_string(StepStream);

enum class StepEventKind : std::uint8_t {
  forward,
  backward,
  input_gradient,   // the first half of a backward that is cut
  weight_gradient,  // the second
  message,
  gradients,  // of one layer, over data-parallel ranks
  optimizer,
  parameters,  // updated ones, gathered
  host         // once a step
};
std::string_view to_string(StepEventKind);

/// Seconds from the step's begin.
struct StepEvent {
  int stage = 0;  // of the pipeline
  StepStream stream = StepStream::compute;
  StepEventKind kind = StepEventKind::forward;
  int chunk = 0;         // virtual stage of the rank
  int micro_batch = -1;  // -1: of all
  double begin = 0, end = 0;
  StepSeconds parts;  // of a forward or a whole backward; else none
};

/// When all stages have ended what comes behind their passes.
struct StepEnds {
  double reduced = 0, updated = 0, gathered = 0, logged = 0;
};

struct StepTimeline {
  std::vector<StepEvent> events;  // by stage, each in the order of its begin by stream
  [[nodiscard]] double end() const;

  /// A rank's passes, `parts` being those of each, and the messages that they send.
  void add(const PipelineShape& shape, int stage, const PipelineRank& walked,
           const PipelineTimes& times, const std::function<StepSeconds(const StageOp&)>& parts);
  /// Traffic of a rank's gradients, when it moves (move_gradients).
  void add(int stage, std::span<const Reduction> reductions);
  /// The optimizer and what follows it, the same on all stages.
  void add_end(int stages, const StepEnds& ends);
};

/// The Trace Event Format of Chrome and Perfetto: a process a stage, a thread a stream, below each
/// pass its parts. Categories ("cat") are the kinds, and "part".
std::string to_chrome_trace(const StepTimeline& timeline, std::string_view title);

}  // namespace spp
