// A rank's parameters in a layer, or a step: where kernels find them, where their gradients are
// summed up, and the updates.
#pragma once

#include "parallel/layer/parts.hpp"
#include "schedule/builder.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace spp {

class RankWeights {
 public:
  RankWeights(const LayerParts& parts, const LayerRank& at, ProgramBuilder& program)
      : parts_(parts), graph_(parts.layer.graph), at_(at), b_(program) {}

  /// Work on a unit begins, on the way `step` (1 forward, -1 backward): its parameters are there,
  /// those of the next unit begin to travel, those of the last one are let go. Under a pipeline
  /// nothing is let go: each stage gathers its parameters once.
  void enter(int unit, int step);
  /// As a kernel reads it.
  BufferId parameter(int label) {
    return is_gathered(label) ? full_.at(label) : held_parameter(label);
  }

  /// Where a kernel writes what a micro-batch gives to a parameter's gradient.
  struct Room {
    BufferId buffer;
    bool initial = true;  // else it is added to what others have given
  };
  /// `adds`: the kernel can add.
  Room open(int label, bool adds);
  /// The kernel has written: sums it up, over the ranks that have other tokens when all uses of all
  /// micro-batches have given, or of each micro-batch where they keep shards of the sums (ZeRO
  /// stage 2): FSDP, too, adds what both uses of a table give before it reduces.
  void close(int label, const Room& room);

  /// Sums up what several stages give: the gradient of an embedding's table that is the loss head,
  /// too, all-reduced between the first stage and the last one once each has its own
  /// (_allreduce_word_embedding_grads in Megatron-Core's distributed/finalize_model_grads.py). Then
  /// all that the rank has an update of.
  void update();

  /// What a step of a micro-batch did here that another micro-batch's does again.
  struct Journal {
    struct Named {
      BufferId buffer;
      const std::string* name = nullptr;  // that several have, numbered
    };
    struct Event {
      int label = 0;
      bool gave = false;  // a micro-batch gave to its gradient; else what waited was added
      BufferId waiting;   // before it was added, or since it was given; else none
    };
    std::vector<Named> named;  // by buffer, rising
    std::vector<Event> events;
  };
  /// Since this was asked last.
  [[nodiscard]] Journal take_journal() { return std::exchange(journal_, {}); }
  /// The name of the next buffer that has this one.
  [[nodiscard]] std::string next_name(const std::string& name);
  /// A shard that waits is added; gives it.
  BufferId add_again(int label) {
    std::erase(on_their_way_, label);
    return std::exchange(gradients_[label].waiting, {});
  }
  /// A micro-batch that is neither the first nor the last gives once more.
  void give_again(int label, BufferId waiting) {
    ++gradients_[label].given;
    gradients_[label].waiting = waiting;
    if (waiting.valid()) {
      on_their_way_.push_back(label);
    }
  }

 private:
  struct Gradient {
    BufferId sum;       // of this rank's tokens; a shard of all ranks' where each time is reduced
    BufferId own;       // of this rank's tokens and a micro-batch, where each time is reduced
    BufferId waiting;   // such a shard that is on its way, to be added
    bool empty = true;  // nothing has been added to `sum` where shards are
    BufferId of_stage;  // the sum of this stage's, where another stage has one, too
    int given = 0;      // by micro-batches, once for each use
  };

  /// What the rank keeps of it: all that its tensor index has, or a shard.
  BufferId held_parameter(int label);
  [[nodiscard]] TokenSet rows_of(int label) const;
  [[nodiscard]] HeadRange columns_of(int label) const;
  /// Rows whose update is this rank's.
  [[nodiscard]] TokenSet shard_of(int label) const;
  /// Gathered from all ranks' shards for each use (ZeRO stage 3; FSDP).
  [[nodiscard]] bool is_gathered(int label) const {
    return parts_.plan.zero == 3 && shards(label).size > 1;
  }
  [[nodiscard]] bool is_reduced_each_time(int label) const {
    return parts_.plan.zero >= 2 && parts_.plan.pipeline.stages == 1 && shards(label).size > 1;
  }
  /// Where what all uses give is added, before it is summed over ranks.
  BufferId& own_sum(int label) {
    Gradient& gradient = gradients_[label];
    return is_reduced_each_time(label) ? gradient.own : gradient.sum;
  }
  [[nodiscard]] bool is_updated(int label) const {
    return parts_.is_step() && parts_.index.update_of(label) >= 0;
  }
  /// Who sums its gradient up: ranks that have other tokens.
  [[nodiscard]] const RankGroup& summed_over(int label) const {
    return use_of(label).of_experts ? at_.same_experts
           : use_of(label).of_norm  ? at_.of_stage
                                    : at_.same_tensor;
  }
  /// Of these, who keeps a shard each of what this rank keeps one of: this rank alone if it keeps
  /// all of it. And those that keep the same.
  [[nodiscard]] RankGroup shards(int label) const;
  [[nodiscard]] RankGroup copies(int label) const;
  [[nodiscard]] const ParamUse& use_of(int label) const {
    return parts_.uses[static_cast<std::size_t>(label)];
  }
  [[nodiscard]] bool holds(int unit) const;
  /// Of those that use it, how many this rank works on.
  [[nodiscard]] int uses_here(int label) const;
  /// This rank and the one that does the same at the other stage that uses it; of one: 1.
  [[nodiscard]] RankGroup between_stages(int label) const;
  [[nodiscard]] int stage_of(int unit) const;

  /// The shard is copied to where it is sent from in between the kernels, as FSDP does; so it does
  /// not travel earlier.
  void gather(int label);
  /// The kernel that adds a shard waits for its transfer.
  void add_waiting(int label);
  /// Adds shards on their way, but for as many as a unit has: kernels then are no further than one
  /// unit ahead of the transfers, and what is whole of gradients no more than two units' (PyTorch's
  /// fully_shard waits for the last group's reduce-scatter before the next one's).
  void keep_up(int label);
  /// Where the sum over this stage's ranks goes.
  BufferId sum_of_stage(int label, const TokenSet& rows);
  /// An update reads it here; else it is what the program is for.
  BufferId finished_gradient(int label, const TokenSet& rows);
  void reduce(int label, BufferId from, BufferId to);
  void sum_over_stages(int label);
  void update(int number, int label);
  [[nodiscard]] BufferId scratch(const std::string& name, Tensor tensor, int label,
                                 const TokenSet& rows);

  const LayerParts& parts_;
  const Graph& graph_;
  const LayerRank& at_;
  ProgramBuilder& b_;
  std::map<int, BufferId> held_, full_, finished_;  // by parameter; gathered now; its gradient
  std::map<int, Gradient> gradients_;
  std::vector<int> on_their_way_;     // shards, in order
  std::map<std::string, int> named_;  // how often
  Journal journal_;
  int unit_ = -1, way_ = 0;
};

}  // namespace spp
