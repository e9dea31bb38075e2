#include "step/plan.hpp"

#include "base/error.hpp"
#include "base/named.hpp"
#include "parallel/attention/strategy.hpp"
#include "parallel/pipeline/pipeline.hpp"
#include "step/linear_attention.hpp"
#include "step/sparse_attention.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace spp {
namespace {

constexpr std::array offload_names{
    Named{Offload::none, "none"}, Named{Offload::activations, "activations"},
    Named{Offload::optimizer, "optimizer"}, Named{Offload::all, "all"}};

/// The divisor of n nearest to what was asked.
std::int64_t nearest_divisor(std::int64_t n, std::int64_t asked) {
  std::int64_t best = 1;
  for (std::int64_t d = 1; d <= n && d <= 2 * asked; ++d) {
    if (n % d == 0 && std::abs(d - asked) < std::abs(best - asked)) {
      best = d;
    }
  }
  return best;
}

WhyNot tensor_rule(const Model& model, const StepPlan& plan) {
  const int t = plan.tensor;
  if (model.q_heads % t != 0) {
    return {"tensor", fmt::format("{} query heads do not split {} ways (nearest: {})",
                                  model.q_heads, t, nearest_divisor(model.q_heads, t))};
  }
  for (const bool narrow : {false, true}) {
    const int kv_heads = model.heads(narrow).count;
    if (kv_heads % t != 0 && t % kv_heads != 0) {
      return {"tensor", fmt::format("{} KV heads neither split {} ways nor can each be copied to "
                                    "equally many ranks",
                                    kv_heads, t)};
    }
  }
  if (model.grouped_output && model.grouped_output->groups % t != 0) {
    const std::int64_t groups = model.grouped_output->groups;
    return {"tensor",
            fmt::format("{} groups of attention's output do not split {} ways (nearest: {})",
                        groups, t, nearest_divisor(groups, t))};
  }
  if (model.ffn % t != 0) {
    return {"tensor", fmt::format("an MLP {} wide does not split {} ways (nearest: {})", model.ffn,
                                  t, nearest_divisor(model.ffn, t))};
  }
  return {};
}

WhyNot expert_rule(const Model& model, const StepPlan& plan) {
  const int experts = model.experts.count;
  if (plan.expert == 1 && plan.expert_tensor == 1) {
    return {};
  }
  if (experts == 0) {
    return {"expert", fmt::format("{} has no experts", model.name)};
  }
  if (experts % plan.expert != 0) {
    return {"expert", fmt::format("{} experts do not split {} ways (nearest: {})", experts,
                                  plan.expert, nearest_divisor(experts, plan.expert))};
  }
  if (model.experts.ffn % plan.expert_tensor != 0) {
    return {"expert-tensor", fmt::format("experts {} wide do not split {} ways (nearest: {})",
                                         model.experts.ffn, plan.expert_tensor,
                                         nearest_divisor(model.experts.ffn, plan.expert_tensor))};
  }
  if (plan.stage_ranks() % (plan.expert * plan.expert_tensor) != 0) {
    return {"expert", fmt::format("{} x {} expert ranks do not divide a stage's {} ranks",
                                  plan.expert, plan.expert_tensor, plan.stage_ranks())};
  }
  return {};
}

WhyNot pipeline_rule(const Model& model, const StepPlan& plan) {
  const std::int64_t stages = std::int64_t{plan.pipeline} * plan.virtual_stages;
  if (stages > model.layers + 2) {  // embedding and head can stand for a layer each
    return {"pipeline", fmt::format("{} layers do not fill {} x {} stages", model.layers,
                                    plan.pipeline, plan.virtual_stages)};
  }
  if (plan.pipeline == 1) {
    return plan.virtual_stages == 1
               ? WhyNot{}
               : WhyNot{"pipeline", "virtual stages need a pipeline of at least two stages"};
  }
  constexpr std::int64_t most = 1 << 20;
  if (plan.micro_batches > most) {
    return {"batch", fmt::format("{} micro-batches are more than {}", plan.micro_batches, most)};
  }
  std::string reason = why_not(plan.pipeline_order(), plan.pipeline_shape());
  return reason.empty() ? WhyNot{} : WhyNot{"pipeline", std::move(reason)};
}

WhyNot rank_order_rule(const StepPlan& plan) {
  if (plan.attention.rank_order == RankOrder::block || plan.sequence() == plan.world()) {
    return {};
  }
  return {"rank-order",
          fmt::format("{} deals out the ranks of a sequence, of which there are {} of {}: block, "
                      "or tp, dp, pp and cfg of 1",
                      to_string(plan.attention.rank_order), plan.sequence(), plan.world())};
}

WhyNot sinks_rule(const Model& model, const StepPlan& plan) {
  if (!model.attention_sinks || plan.attention.ranks() == 1) {
    return {};
  }
  return why_not_sinks(strategies::by_name(plan.attention.strategy, "--strategy"));
}

}  // namespace

std::string_view to_string(Offload offload) { return name_of(offload, offload_names); }
Offload parse_offload(std::string_view text, std::string_view where) {
  return value_of(text, offload_names, where);
}

WhyNot why_not(const Model& model, const StepPlan& plan) {
  if (WhyNot rule = tensor_rule(model, plan); !rule.legal()) {
    return rule;
  }
  if (WhyNot rule = why_not_linear(model, plan); !rule.legal()) {
    return rule;
  }
  if (WhyNot rule = why_not_sparse(model, plan); !rule.legal()) {
    return rule;
  }
  if (WhyNot rule = sinks_rule(model, plan); !rule.legal()) {
    return rule;
  }
  if (WhyNot rule = rank_order_rule(plan); !rule.legal()) {
    return rule;
  }
  if (plan.attention.ranks() > 1 && by_work(plan.attention.layout) &&
      std::ranges::count(model.narrow_layers, true) > 0 &&
      std::ranges::count(model.narrow_layers, false) > 0) {
    return why_not_by_work(plan.attention.layout);
  }
  if (WhyNot rule = expert_rule(model, plan); !rule.legal()) {
    return rule;
  }
  if (WhyNot rule = pipeline_rule(model, plan); !rule.legal()) {
    return rule;
  }
  if (plan.zero < 0 || plan.zero > 3) {
    return {"zero", fmt::format("there is no ZeRO stage {}", plan.zero)};
  }
  if (plan.zero_group > 0 && plan.replicas() % plan.zero_group != 0) {
    return {"zero-group",
            fmt::format("groups of {} do not divide the {} ranks that hold the same weights",
                        plan.zero_group, plan.replicas())};
  }
  return {};
}

}  // namespace spp
