#include "step/linear_attention.hpp"

#include "base/error.hpp"
#include "machine/linear_cost.hpp"
#include "sim/lowering.hpp"

#include <algorithm>
#include <vector>

namespace spp {
namespace {

constexpr std::int64_t fp32 = 4;

/// Of one tensor rank.
StateScan scan_of(const Model& model, int tensor) {
  StateScan scan = model.linear->scan;
  scan.key_heads /= tensor;
  scan.value_heads /= tensor;
  return scan;
}

/// Tokens of each rank stand together.
bool in_one_piece(const StepPlan& plan) {
  return plan.sequence() == 1 || plan.attention.layout == Layout::contiguous;
}

std::vector<LinearSplit> ways(const Model& model, const StepPlan& plan) {
  std::vector<LinearSplit> ways;
  if (splits_linear_heads(model, plan.tensor, plan.sequence())) {
    ways.push_back(LinearSplit::heads);
  }
  if (in_one_piece(plan)) {
    ways.push_back(LinearSplit::states);
  }
  return ways;
}

class LinearClock {
 public:
  LinearClock(const Model& model, const LinearWork& work, const StepPlan& plan,
              const KernelCost& kernels, const sim::Cluster& cluster)
      : linear_(*model.linear),
        scan_(scan_of(model, plan.tensor)),
        work_(work),
        batch_(plan.micro_batch),
        ranks_(plan.sequence()),
        rows_(work.seq / ranks_ * batch_),
        axis_(plan.attention.ring > 1 ? StepAxis::ring : StepAxis::ulysses),
        kernels_(kernels),
        cluster_(cluster),
        placement_(cluster, ranks_, plan.attention.rank_order) {}

  AttentionCost by(LinearSplit split) {
    const auto pass = [&](Phase phase) {
      return ranks_ == 1                   ? alone(phase)
             : split == LinearSplit::heads ? by_heads(phase)
                                           : by_states(phase);
    };
    AttentionCost cost{.forward = pass(Phase::forward)};
    if (work_.kind == StepKind::train) {
      cost.backward = pass(Phase::backward);
    }
    cost.buffers = between_kernels() + moved(split);
    return cost;
  }

  [[nodiscard]] double spread() const {
    return scan_spread(kernels_.gpu(), scanned(scan_, work_.seq, last_phase()));
  }

 private:
  [[nodiscard]] Phase last_phase() const {
    return work_.kind == StepKind::train ? Phase::backward : Phase::forward;
  }
  /// Servers have a fused kernel for prefills; training keeps what chunked ones give.
  [[nodiscard]] ScanWork scanned(const StateScan& scan, std::int64_t seq, Phase phase) const {
    return {.scan = scan,
            .seq = seq,
            .batch = batch_,
            .fused = work_.kind == StepKind::prefill,
            .phase = phase};
  }
  [[nodiscard]] Seconds time_of(const StateScan& scan, std::int64_t seq, Phase phase) const {
    return scan_time(kernels_.gpu(), scanned(scan, seq, phase), work_.dtype);
  }

  [[nodiscard]] AttentionCost::Pass alone(Phase phase) const {
    return {.kernels = time_of(scan_, work_.seq, phase)};
  }

  [[nodiscard]] AttentionCost::Pass by_heads(Phase phase) const {
    AttentionCost::Pass pass{.kernels = time_of(part(), work_.seq, phase)};
    for (const Bytes tensor : {to_heads(), from_heads()}) {
      pass.small += kernels_.memory_bound(tensor * 2);
      collective(pass, CommKind::all_to_all, tensor);
    }
    return pass;
  }
  /// What a rank has of the heads.
  [[nodiscard]] StateScan part() const {
    StateScan scan = scan_;
    scan.value_heads /= ranks_;
    scan.key_heads = std::max(1, scan.key_heads / ranks_);
    return scan;
  }
  /// Of a rank's tokens: queries and keys (of groups as often as ranks share them), values, the
  /// output's gate, the state's gates.
  [[nodiscard]] Bytes to_heads() const {
    const std::int64_t copies = std::max(1, ranks_ / scan_.key_heads);
    const std::int64_t gates = scan_.rule == StateRule::mamba2 ? 1 : 2;
    return numbers(2 * copies * scan_.key_width() + 2 * scan_.value_width() +
                   gates * scan_.value_heads);
  }
  [[nodiscard]] Bytes from_heads() const { return numbers(scan_.value_width()); }
  [[nodiscard]] Bytes numbers(std::int64_t a_token) const {
    return Bytes(rows_ * a_token * size_of(work_.dtype));
  }

  [[nodiscard]] AttentionCost::Pass by_states(Phase phase) const {
    const std::int64_t tokens = work_.seq / ranks_;
    AttentionCost::Pass pass{.kernels = time_of(scan_, tokens, phase) +
                                        summary_time(kernels_.gpu(), scanned(scan_, tokens, phase)),
                             .small = kernels_.memory_bound(summaries())};
    collective(pass, CommKind::all_gather, summaries());
    const std::int64_t channels = 2 * scan_.key_width() + scan_.value_width();
    const Bytes edge((linear_.conv_kernel - 1) * channels * batch_ * size_of(work_.dtype));
    const sim::Scope scope = cluster_.nodes() > 1 ? sim::Scope::inter : sim::Scope::intra;
    pass.exposed +=
        cluster_.transport(scope).time(CommKind::send_recv, edge, cluster_.nominal_rate(scope));
    pass.sent.at(axis_, CommKind::send_recv) = edge;
    return pass;
  }
  /// Of all ranks; of Mamba2 the decay of a head is a number, and not counted.
  [[nodiscard]] Bytes summaries() const {
    const std::int64_t matrix =
        scan_.rule == StateRule::gated_delta
            ? std::int64_t{scan_.value_heads} * scan_.key_dim * scan_.key_dim
            : 0;
    return Bytes(ranks_ * batch_ * fp32 * (scan_.state() + matrix));
  }

  void collective(AttentionCost::Pass& pass, CommKind kind, Bytes tensor) const {
    const Bytes sent = tensor * (ranks_ - 1) / ranks_;
    const RankGroup all{.first = 0, .stride = 1, .size = ranks_};
    pass.exposed += sim::collective_time(kind, all, sent, placement_);
    pass.links += sim::links_taken(kind, all, sent, placement_);
    pass.sent.at(axis_, kind) += sent;
  }

  /// Copies that transfers leave beside the layer's tensors.
  [[nodiscard]] Bytes moved(LinearSplit split) const {
    return ranks_ == 1                   ? Bytes(0)
           : split == LinearSplit::heads ? to_heads() + from_heads()
                                         : summaries();
  }
  /// What chunked kernels leave for each other, of all heads and a rank's tokens, or as many of all
  /// tokens. gated_delta: W, U, the new values, and a state a chunk in 16 bits; backward the same
  /// of their gradients besides. mamba2: two states a chunk in fp32, and C B.
  [[nodiscard]] Bytes between_kernels() const {
    const std::int64_t chunk = scan_.chunk;
    const std::int64_t numbers16 = scan_.key_dim + 2 * std::int64_t{scan_.value_dim};
    const std::int64_t state = std::int64_t{scan_.key_dim} * scan_.value_dim;
    const std::int64_t a_token =
        scan_.rule == StateRule::gated_delta
            ? scan_.value_heads * 2 * (numbers16 + state / chunk)
            : scan_.value_heads * 2 * fp32 * state / chunk + scan_.key_heads * fp32 * chunk;
    const std::int64_t passes = work_.kind == StepKind::train ? 2 : 1;
    return Bytes(rows_ * a_token * passes);
  }

  const LinearLayers& linear_;
  StateScan scan_;
  const LinearWork& work_;
  std::int64_t batch_;
  int ranks_;
  std::int64_t rows_;  // tokens of a rank, of all sequences
  StepAxis axis_;
  const KernelCost& kernels_;
  const sim::Cluster& cluster_;
  sim::Placement placement_;
};

Seconds of_both(const AttentionCost& cost) {
  const auto of = [](const AttentionCost::Pass& p) { return p.kernels + p.small + p.exposed; };
  return of(cost.forward) + of(cost.backward);
}

}  // namespace

std::string_view to_string(LinearSplit split) {
  return split == LinearSplit::heads ? "heads" : "states";
}

bool splits_linear_heads(const Model& model, int tensor, int sequence) {
  const StateScan& scan = model.linear->scan;
  const bool values = scan.value_heads % (tensor * sequence) == 0;
  const int keys = scan.key_heads / tensor;
  const bool copied = scan.rule == StateRule::mamba2 && keys > 0 && sequence % keys == 0;
  return values && (keys % sequence == 0 || copied);
}

WhyNot why_not_linear(const Model& model, const StepPlan& plan) {
  if (!model.linear) {
    return {};
  }
  const StateScan& scan = model.linear->scan;
  const std::string_view keys = scan.rule == StateRule::mamba2 ? "groups" : "key heads";
  if (scan.key_heads % plan.tensor != 0 || scan.value_heads % plan.tensor != 0) {
    return {"tensor", fmt::format("linear attention's {} {} and {} heads do not both split {} ways",
                                  scan.key_heads, keys, scan.value_heads, plan.tensor)};
  }
  if (ways(model, plan).empty()) {
    return {"linear",
            fmt::format("linear attention's {} {} and {} heads do not both split over tp {} x {} "
                        "sequence ranks, and states are handed on only between ranks whose tokens "
                        "stand together (layout contiguous, not {})",
                        scan.key_heads, keys, scan.value_heads, plan.tensor, plan.sequence(),
                        to_string(plan.attention.layout))};
  }
  return {};
}

LinearCost linear_attention_cost(const Model& model, const LinearWork& work, const StepPlan& plan,
                                 const KernelCost& kernels, const sim::Cluster& cluster) {
  ensure(model.linear.has_value(), "a model with linear attention");
  LinearClock clock(model, work, plan, kernels, cluster);
  const std::vector<LinearSplit> legal = ways(model, plan);
  ensure(!legal.empty(), "a plan that linear attention can follow");
  LinearCost best{
      .cost = clock.by(legal.front()), .split = legal.front(), .spread = clock.spread()};
  if (plan.sequence() > 1 && legal.size() > 1) {
    if (AttentionCost other = clock.by(legal.back()); of_both(other) < of_both(best.cost)) {
      best.cost = std::move(other);
      best.split = legal.back();
    }
  }
  return best;
}

}  // namespace spp
