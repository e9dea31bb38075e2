// The programs of a pipeline's ranks: their work, and between it the messages of what it gives, in
// an order in which every message may block both of its ends and still nobody waits for ever.
#pragma once

#include "parallel/pipeline/pipeline.hpp"

#include <cstdint>
#include <vector>

namespace spp {

enum class StageStepKind : std::uint8_t { work, send, receive };

struct StageStep {
  StageStepKind kind = StageStepKind::work;
  StageOp op;     // the work; of a message: the work, the sender's, that gave what travels
  int peer = -1;  // of a message: the other rank
  friend bool operator==(const StageStep&, const StageStep&) = default;
};
/// "F3", "send F3 to 1".
std::string to_string(const StageStep& step, int chunks);

/// By rank. Messages stand where they would if forwards, and the halves of backwards, took equally
/// long: right behind the work that gives them, and at the receiver behind the work that it has
/// begun by then. All of them follow one order, that of time, so none waits in a circle. The
/// pipeline must be legal, and proven (walk.hpp), as tests do of every order.
std::vector<std::vector<StageStep>> with_messages(const Pipeline& pipeline,
                                                  const PipelineShape& shape);

}  // namespace spp
