#include "step/sparse_attention.hpp"

#include "base/error.hpp"
#include "machine/sparse_cost.hpp"
#include "parallel/attention/strategy.hpp"
#include "schedule/balanced.hpp"
#include "sim/lowering.hpp"

#include <algorithm>

namespace spp {
namespace {

/// Of one sequence.
struct Pairs {
  double visible = 0, picked = 0;
};

class SparseClock {
 public:
  SparseClock(const Model& model, const SparseWork& work, const StepPlan& plan,
              const KernelCost& kernels, const sim::Cluster& cluster)
      : model_(model),
        problem_(work.problem),
        kind_(work.kind),
        batch_(plan.micro_batch),
        tensor_(plan.tensor),
        ranks_(plan.sequence()),
        kernels_(kernels),
        placement_(cluster, ranks_, plan.attention.rank_order) {
    count_pairs(plan.attention.layout);
  }

  SparseCost cost() {
    SparseCost found{.cost = {.forward = pass(Phase::forward)}, .spread = spread(Phase::forward)};
    if (kind_ == StepKind::train) {
      found.cost.backward = pass(Phase::backward);
      found.spread = std::max(found.spread, spread(Phase::backward));
    }
    found.cost.buffers = buffers();
    return found;
  }

 private:
  /// Of the rank whose forward takes longest: those that queries see, and of these as many as a
  /// window of the picked keys' number has.
  void count_pairs(Layout layout) {
    Seconds longest{};
    const TokenSet keys({.begin = 0, .count = problem_.end()});
    const Mask window{.kind = MaskKind::window, .window = model_.indexer->keys};
    for (const TokenSet& chunk : chunks_of(problem_, layout, ranks_)) {
      const TokenSet queries = chunk.shifted(problem_.cached);
      const Pairs pairs{.visible = static_cast<double>(allowed_pairs(queries, keys, problem_.mask)),
                        .picked = static_cast<double>(allowed_pairs(queries, keys, window))};
      const Seconds takes =
          picked_attention_time(kernels_.gpu(), work(pairs, Phase::forward), problem_.dtype);
      if (takes > longest) {
        longest = takes;
        pairs_ = pairs;
      }
    }
  }

  [[nodiscard]] PickedWork work(const Pairs& pairs, Phase phase) const {
    const auto batch = static_cast<double>(batch_);
    const Latent& latent = model_.latent;
    return {.visible = pairs.visible * batch,
            .picked = pairs.picked * batch,
            .q_heads = (model_.q_heads + tensor_ - 1) / tensor_,
            .head_dim = static_cast<int>(latent.kv_rank) + latent.rope_dim,
            .value_dim = static_cast<int>(latent.kv_rank),
            .index_heads = model_.indexer->heads,
            .index_dim = model_.indexer->dim,
            .phase = phase};
  }
  [[nodiscard]] double spread(Phase phase) const {
    return picked_attention_spread(kernels_.gpu(), work(pairs_, phase), problem_.dtype);
  }

  [[nodiscard]] AttentionCost::Pass pass(Phase phase) const {
    AttentionCost::Pass pass{
        .kernels = picked_attention_time(kernels_.gpu(), work(pairs_, phase), problem_.dtype)};
    if (ranks_ > 1) {
      collective(pass, CommKind::all_gather, gathered());
      if (phase == Phase::backward) {
        collective(pass, CommKind::reduce_scatter, gathered());
      }
    }
    return pass;
  }
  void collective(AttentionCost::Pass& pass, CommKind kind, Bytes all) const {
    const Bytes sent = all * (ranks_ - 1) / ranks_;
    pass.exposed +=
        sim::collective_time(kind, {.first = 0, .stride = 1, .size = ranks_}, sent, placement_);
    pass.sent.at(StepAxis::ring, kind) += sent;
  }
  /// Latents, positions and the indexer's keys, of all tokens.
  [[nodiscard]] Bytes gathered() const {
    const std::int64_t a_token =
        model_.latent.kv_rank + model_.latent.rope_dim + model_.indexer->dim;
    return Bytes(problem_.end() * a_token * size_of(problem_.dtype)) * batch_;
  }
  /// What was gathered, scores in pieces (at most 512 MiB, vLLM's default: GitHub vllm-project/vllm
  /// #36178); backward the keys' gradients, added up in fp32.
  [[nodiscard]] Bytes buffers() const {
    constexpr Bytes most(std::int64_t{512} << 20);
    const std::int64_t queries = problem_.seq / ranks_;
    const Bytes scores = std::min(most, Bytes(4 * queries) * problem_.end() * batch_);
    const Bytes keys = ranks_ > 1 ? gathered() : Bytes(0);
    const Bytes gradients =
        kind_ == StepKind::train
            ? Bytes(4 * problem_.end() * (model_.latent.kv_rank + model_.latent.rope_dim)) * batch_
            : Bytes(0);
    return keys + std::max(scores, gradients);
  }

  const Model& model_;
  const Problem& problem_;
  StepKind kind_;
  std::int64_t batch_;
  int tensor_, ranks_;
  const KernelCost& kernels_;
  sim::Placement placement_;
  Pairs pairs_;
};

}  // namespace

StepRule why_not_sparse(const Model& model, const StepPlan& plan) {
  if (!model.indexer) {
    return {};
  }
  WhyNot reason = why_not_picked(plan.attention);
  return {.rule = std::move(reason.rule), .detail = std::move(reason.detail)};
}

SparseCost sparse_attention_cost(const Model& model, const SparseWork& work, const StepPlan& plan,
                                 const KernelCost& kernels, const sim::Cluster& cluster) {
  ensure(model.indexer.has_value(), "a model with an indexer");
  return SparseClock(model, work, plan, kernels, cluster).cost();
}

}  // namespace spp
