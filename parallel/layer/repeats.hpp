// Which steps of a stage a rank need not think about again. But for the first micro-batches, which
// find sums of gradients empty, and the last one, which completes them, it does for each what it
// did for the one before, on buffers and tokens of its own: one of them is written, the others are
// that one's ops once more (schedule/repeat.hpp).
#pragma once

#include "parallel/layer/weights.hpp"
#include "schedule/repeat.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace spp {

/// Whether micro-batches repeat each other wherever the order of the pipeline lets them.
bool micro_batches_repeat(const LayerParts& parts);

class StepRepeats {
 public:
  StepRepeats(const LayerParts& parts, const LayerRank& at, RankWeights& weights,
              ProgramBuilder& program);

  /// Writes the step if its micro-batch repeats another; else says false.
  bool repeat(const StageStep& wanted);
  /// `write` writes it.
  template <class Write>
  void write(const StageStep& step, Write write) {
    if (steps_of_each_ == 0 || step.op.micro_batch != pattern) {
      write();
      (void)weights_.take_journal();
      return;
    }
    const ProgramBuilder::Place begin = b_.place();
    write();
    keep(begin, b_.place());
  }

 private:
  /// The micro-batch that others repeat. Under ZeRO stage 2 a shard of the second one's is the
  /// first that waits to be added to the sum of all ranks', which the third one does.
  static constexpr int pattern = 2;

  /// A step of the pattern.
  struct Step {
    ProgramBuilder::Place begin, end;
    RankWeights::Journal journal;
    std::vector<std::size_t> added;  // by event: the number of the distance of what it added
  };

  void keep(ProgramBuilder::Place begin, ProgramBuilder::Place end);
  [[nodiscard]] std::size_t buffers_of_each() const;
  void declare(const Step& step, int micro_batch);
  [[nodiscard]] std::int64_t tokens_behind(int micro_batch) const {
    return (micro_batch - pattern) * parts_.problem.seq;
  }

  const LayerParts& parts_;
  RankWeights& weights_;
  ProgramBuilder& b_;
  std::size_t steps_of_each_;  // micro-batch; 0: all are written
  std::size_t distances_;  // that have a number: none, one for each step, those of what is added
  std::vector<Step> steps_;
  std::vector<std::vector<std::size_t>> begins_;  // by micro-batch: first buffers of its steps
  std::shared_ptr<std::vector<RepeatedBuffer>> buffers_;
};

}  // namespace spp
