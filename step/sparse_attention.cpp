#include "step/sparse_attention.hpp"

#include "base/error.hpp"
#include "machine/sparse_cost.hpp"
#include "parallel/attention/strategy.hpp"
#include "schedule/balanced.hpp"
#include "sim/lowering.hpp"
#include "transformer/met_pairs.hpp"

#include <algorithm>

namespace spp {
namespace {

class SparseClock {
 public:
  SparseClock(const Model& model, const SparseWork& work, const StepPlan& plan,
              const KernelCost& kernels, const sim::Cluster& cluster)
      : model_(model),
        problem_(work.problem),
        kind_(work.kind),
        call_(work.call),
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
  /// Of the rank whose forward takes longest.
  void count_pairs(Layout layout) {
    Seconds longest{};
    for (const TokenSet& chunk : chunks_of(problem_, layout, ranks_)) {
      const MetPairs pairs = met_pairs(call_.meets, chunk.shifted(problem_.cached));
      const Seconds takes =
          picked_attention_time(kernels_.gpu(), work(pairs, Phase::forward), problem_.dtype);
      if (takes > longest) {
        longest = takes;
        pairs_ = pairs;
        pieces_ = std::ssize(chunk.ranges());
      }
    }
  }

  [[nodiscard]] bool picks() const { return call_.meets.picked > 0; }
  [[nodiscard]] PickedWork work(const MetPairs& pairs, Phase phase) const {
    const auto of_batch = [&](std::int64_t count) {
      return static_cast<double>(count) * static_cast<double>(batch_);
    };
    return {.visible = of_batch(pairs.seen),
            .picked = of_batch(picks() ? pairs.entries : 0),
            .beside = of_batch(picks() ? pairs.window : pairs.met()),
            .q_heads = (call_.q_heads + tensor_ - 1) / tensor_,
            .head_dim = call_.head_dim,
            .value_dim = call_.v_dim(),
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
    if (ranks_ > 1 && gathered().value() > 0) {
      collective(pass, CommKind::all_gather, gathered());
      if (phase == Phase::backward) {
        collective(pass, CommKind::reduce_scatter, gathered());
      }
    }
    if (ranks_ > 1 && call_.meets.window > 0) {
      halo(pass, phase == Phase::backward ? 2 : 1);  // again, and the gradient back
    }
    return pass;
  }
  void halo(AttentionCost::Pass& pass, std::int64_t times) const {
    const Bytes one = keys_of(call_.meets.window);
    const sim::Cluster& cluster = placement_.cluster();
    const sim::Scope scope = cluster.nodes() > 1 ? sim::Scope::inter : sim::Scope::intra;
    const std::int64_t messages = times * pieces_;
    pass.exposed +=
        static_cast<double>(messages) *
        cluster.transport(scope).time(CommKind::send_recv, one, cluster.nominal_rate(scope));
    pass.sent.at(StepAxis::ring, CommKind::send_recv) += messages * one;
  }
  void collective(AttentionCost::Pass& pass, CommKind kind, Bytes all) const {
    const Bytes sent = all * (ranks_ - 1) / ranks_;
    const RankGroup ranks{.first = 0, .stride = 1, .size = ranks_};
    pass.exposed += sim::collective_time(kind, ranks, sent, placement_);
    pass.links += sim::links_taken(kind, ranks, sent, placement_);
    pass.sent.at(StepAxis::ring, kind) += sent;
  }
  /// Of the whole sequence; those of one token are its key.
  [[nodiscard]] std::int64_t entries() const {
    return call_.meets.entry > 0 ? problem_.end() / call_.meets.entry : 0;
  }
  [[nodiscard]] Bytes keys_of(std::int64_t tokens) const {
    return Bytes(tokens * call_.head_dim * size_of(problem_.dtype)) * batch_;
  }
  /// Entries and the indexer's keys of all tokens.
  [[nodiscard]] Bytes gathered() const {
    const std::int64_t index = picks() ? model_.indexer->dim : 0;
    return Bytes(entries() * (call_.head_dim + index) * size_of(problem_.dtype)) * batch_;
  }
  /// What was gathered, scores in pieces (at most 512 MiB, vLLM's default: GitHub vllm-project/vllm
  /// #36178); backward the gradients of keys and entries, added up in fp32.
  [[nodiscard]] Bytes buffers() const {
    constexpr Bytes most(std::int64_t{512} << 20);
    const std::int64_t queries = problem_.seq / ranks_;
    const Bytes scores =
        picks() ? std::min(most, Bytes(4 * queries) * entries() * batch_) : Bytes(0);
    const Bytes received =
        ranks_ > 1 ? gathered() + pieces_ * keys_of(call_.meets.window) : Bytes(0);
    const std::int64_t own = call_.meets.window > 0 ? queries + pieces_ * call_.meets.window : 0;
    const Bytes gradients = kind_ == StepKind::train
                                ? Bytes(4 * (entries() + own) * call_.head_dim) * batch_
                                : Bytes(0);
    return received + std::max(scores, gradients);
  }

  const Model& model_;
  const Problem& problem_;
  StepKind kind_;
  const AttentionCall& call_;
  std::int64_t batch_;
  int tensor_, ranks_;
  const KernelCost& kernels_;
  sim::Placement placement_;
  MetPairs pairs_;
  std::int64_t pieces_ = 1;  // of the sequence that a rank has
};

}  // namespace

WhyNot why_not_sparse(const Model& model, const StepPlan& plan) {
  return model.indexer ? why_not_picked(plan.attention) : WhyNot{};
}

const AttentionCall& sparse_call(const TensorOps& layer) {
  for (const TensorOp& op : layer.ops) {
    const auto* call = std::get_if<AttentionCall>(&op.work);
    if (call != nullptr && call->meets.any()) {
      return *call;
    }
  }
  throw InternalError("a layer without sparse attention");
}

SparseCost sparse_attention_cost(const Model& model, const SparseWork& work, const StepPlan& plan,
                                 const KernelCost& kernels, const sim::Cluster& cluster) {
  ensure(model.indexer.has_value(), "a model with an indexer");
  return SparseClock(model, work, plan, kernels, cluster).cost();
}

}  // namespace spp
