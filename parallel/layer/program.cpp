#include "parallel/layer/program.hpp"

#include "parallel/layer/pass.hpp"
#include "parallel/layer/repeats.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace spp {
namespace {

class LayerProgram {
 public:
  LayerProgram(const LayerParts& parts, Rank rank)
      : parts_(parts),
        at_(parts, rank),
        b_(parts.problem, rank, parts.layer.graph),
        attention_(parts, at_),
        weights_(parts, at_, b_),
        repeats_(parts, at_, weights_, b_) {}

  Program write() {
    if (!parts_.is_step()) {
      work({.work = parts_.phase == Phase::forward ? StageWork::forward : StageWork::backward});
      return b_.finish();
    }
    for (const StageStep& step : parts_.steps[static_cast<std::size_t>(at_.stage)]) {
      if (!repeats_.repeat(step)) {
        repeats_.write(step, [&] {
          return step.kind == StageStepKind::work ? work(step.op) : send_or_receive(step);
        });
      }
    }
    weights_.update();
    return b_.finish();
  }

 private:
  LayerPass& pass(const StageOp& op) {
    return passes_
        .try_emplace(op.micro_batch, parts_, at_, attention_, weights_, b_, op.micro_batch)
        .first->second;
  }

  void work(const StageOp& op) {
    const StagePart& part = parts_.stages[static_cast<std::size_t>(
        parts_.plan.pipeline.virtual_stage(at_.stage, op.chunk))];
    const auto enter = [&](int definition, int step) { weights_.enter(unit_of(definition), step); };
    switch (op.work) {
      case StageWork::forward:
        for (int i = part.first_definition; i < part.end_definition; ++i) {
          enter(i, 1);
          pass(op).forward(i);
        }
        return;
      case StageWork::backward:
      case StageWork::input_gradient:
        for (int i = part.end_definition; i-- > part.first_definition;) {
          enter(i, -1);
          for (const int again : parts_.computed_again[static_cast<std::size_t>(i)]) {
            pass(op).forward_again(again);
          }
          pass(op).backward(i, op.work == StageWork::input_gradient);
        }
        return;
      case StageWork::weight_gradient:
        pass(op).give_weights();
        return;
    }
  }

  [[nodiscard]] int unit_of(int definition) const {
    return parts_.layer.units[static_cast<std::size_t>(definition)];
  }

  /// Values of a forward go to the next virtual stage, gradients of those that came from the stage
  /// before go back to it.
  void send_or_receive(const StageStep& step) {
    const bool sends = step.kind == StageStepKind::send;
    const bool is_forward = step.op.work == StageWork::forward;
    const int from =
        parts_.plan.pipeline.virtual_stage(sends ? at_.stage : step.peer, step.op.chunk);
    const std::vector<TensorRef>& values =
        parts_.stages[static_cast<std::size_t>(is_forward ? from : from - 1)].leaving;
    LayerPass& micro_batch = pass(step.op);
    Exchange exchange;
    (sends ? exchange.to : exchange.from) = at_.at_stage(step.peer);
    for (const TensorRef value : values) {
      const TensorRef ref = is_forward ? value : micro_batch.gradient_ref(value);
      if (sends) {
        exchange.send.push_back(micro_batch.sent(ref));
      } else {
        exchange.receive.push_back(micro_batch.received(ref));
      }
    }
    b_.op(parts_.streams.messages[is_forward ? 0 : 1][from % 2], exchange);
  }

  const LayerParts& parts_;
  LayerRank at_;
  ProgramBuilder b_;
  AttentionPrograms attention_;
  RankWeights weights_;
  StepRepeats repeats_;
  std::map<int, LayerPass> passes_;  // by micro-batch that is written
};

}  // namespace

Program layer_program(const LayerParts& parts, Rank rank) {
  return LayerProgram(parts, rank).write();
}

}  // namespace spp
