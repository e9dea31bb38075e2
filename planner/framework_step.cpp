#include "planner/framework_step.hpp"

#include "planner/step.hpp"
#include "transformer/diffusion_family.hpp"
#include "transformer/layer.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace spp {
namespace {

std::string_view words_of(ModelKind kind) {
  return kind == ModelKind::llm ? "language models" : "diffusion transformers";
}

const FrameworkFamily* family_of(const Framework& f, const Model& model) {
  const DiffusionFamily* const own = model.diffusion.family;
  const auto at = std::ranges::find_if(f.families, [&](const FrameworkFamily& one) {
    return own != nullptr && one.name == own->name;
  });
  return at == f.families.end() ? nullptr : &*at;
}

}  // namespace

Cannot because(std::string_view rule, std::string what, std::string_view source) {
  return {.rule = std::string(rule), .what = std::move(what), .source = std::string(source)};
}

std::optional<Cannot> cannot_zero(const Framework& f, const Request& request, int zero) {
  const FrameworkFamily* const family = request.model ? family_of(f, *request.model) : nullptr;
  const bool whole = zero > 0 && family != nullptr && !family->shards;
  if (f.has_zero(zero, request.phase) && !whole) {
    return std::nullopt;
  }
  if (whole || f.zero.values.empty()) {
    return because("zero",
                   fmt::format("{} has whole weights{} on every GPU, not ZeRO {}", f.name,
                               family != nullptr ? fmt::format(" of {}", family->name) : "", zero),
                   f.checked);
  }
  return because(
      "zero",
      fmt::format("{} has no ZeRO {} here, but {}", f.name, zero, fmt::join(f.zero.values, ", ")),
      f.zero.source);
}

std::optional<Cannot> cannot_recompute(const Framework& f, const Recomputation& how) {
  if (f.recomputes(how)) {
    return std::nullopt;
  }
  if (f.recompute.has(how.kind)) {  // not of these modules
    return because("recompute",
                   fmt::format("{} cannot compute {} again, but {}", f.name, to_string(how.modules),
                               to_string(f.modules)),
                   f.recompute.source);
  }
  return because("recompute",
                 fmt::format("{} has no {} recomputation as planned here, but {}", f.name,
                             to_string(how.kind), names_of(f.recompute.values)),
                 f.recompute.source);
}

void add_model(const Framework& f, const Model& m, std::vector<Cannot>& reasons) {
  const auto refuse = [&](std::string_view rule, std::string what) {
    reasons.push_back(because(rule, std::move(what), f.checked));
  };
  if (f.models && m.kind != *f.models) {
    refuse(
        "model",
        fmt::format("what is written for {} is for {}, and {} is a {}", f.name, words_of(*f.models),
                    m.name, m.kind == ModelKind::llm ? "language model" : "diffusion transformer"));
  } else if (m.kind == ModelKind::dit && !f.families.empty() && family_of(f, m) == nullptr) {
    std::vector<std::string_view> names;
    std::ranges::transform(f.families, std::back_inserter(names), &FrameworkFamily::name);
    refuse("model", fmt::format("{} has no {}, but {}", f.name, m.name, fmt::join(names, ", ")));
  }
  if (!f.loads_models && (m.linear || m.indexer)) {
    refuse(m.linear ? "linear" : "sparse",
           fmt::format("the text written for {} has no layers of {} attention, and {} has them",
                       f.name, m.linear ? "linear" : "sparse", m.name));
  }
  if (!f.loads_models && m.narrow_mask.chunk > 0) {
    refuse("window", fmt::format("the text written for {} has no layers that attend in chunks, and "
                                 "{} has them",
                                 f.name, m.name));
  }
  if (f.writes_heads && m.narrow_heads) {
    refuse("heads", fmt::format("the text written for {} says one shape of heads, and {} has two",
                                f.name, m.name));
  }
}

void add_nodes(const Framework& f, const sim::Cluster& cluster, std::vector<Cannot>& reasons) {
  const int last = cluster.gpus() - (cluster.nodes() - 1) * cluster.gpus_per_node();
  if (!f.one_node.empty() && cluster.nodes() > 1) {
    reasons.push_back(
        because("nodes",
                fmt::format("{} starts all processes on one node, not {}", f.name, cluster.nodes()),
                f.one_node));
  }
  if (!f.even_nodes.empty() && cluster.nodes() > 1 && last != cluster.gpus_per_node()) {
    reasons.push_back(because(
        "nodes",
        fmt::format("{} starts as many processes on every node, and of {} the last has {}, not {}",
                    f.name, cluster.nodes(), last, cluster.gpus_per_node()),
        f.even_nodes));
  }
}

void add_axes(const Framework& f, const Request& request, const StepPlan& plan,
              std::vector<Cannot>& reasons) {
  const auto refuse = [&](std::string_view rule, std::string_view what, int degree) {
    reasons.push_back(because(
        rule, fmt::format("plans of {} have no {} here: {}", f.name, what, degree), f.checked));
  };
  if (plan.tensor > 1 && !f.axes.tensor) {
    refuse("tensor", "tensor parallelism", plan.tensor);
  }
  if (plan.pipeline > 1 && !f.axes.pipeline) {
    refuse("pipeline", "pipeline parallelism", plan.pipeline);
  }
  if (!plan.guided && plan.data > 1 && !f.axes.data) {
    refuse("data", "data parallelism", plan.data);
  }
  const FrameworkFamily* const family = request.model ? family_of(f, *request.model) : nullptr;
  const bool apart = f.axes.guidance && (family == nullptr || family->guidance);
  if (plan.guided && plan.data > 1 && !apart) {
    reasons.push_back(
        because("guidance",
                fmt::format("{} computes both branches of {}guidance on the same GPUs", f.name,
                            f.axes.guidance ? fmt::format("{}'s ", family->name) : ""),
                f.checked));
  }
  if (plan.expert > 1 && !f.axes.expert) {
    refuse("expert", "expert parallelism", plan.expert);
  }
  if (plan.expert_tensor > 1 && !f.axes.expert) {
    refuse("expert", "tensor parallelism of experts", plan.expert_tensor);
  }
  if (request.phase == StepPhase::train && plan.pipeline > 1 && f.axes.pipeline &&
      !f.axes.has_order(plan.order)) {
    reasons.push_back(because("pipeline",
                              fmt::format("{} has no {} pipeline, but {}", f.name, plan.order,
                                          fmt::join(f.axes.orders, ", ")),
                              f.checked));
  }
  if (request.model && f.axes.pipeline &&
      !f.axes.deals_out(request.model->layers, plan.pipeline, plan.virtual_stages)) {
    reasons.push_back(because(
        "pipeline",
        fmt::format("{} deals out layers evenly, {}, and {} has {}: not {} stages x {}", f.name,
                    f.axes.layers == DealtLayers::even_stages
                        ? "as many to every virtual stage"
                        : "as many to every chunk of stages and one at least to each",
                    request.model->name, request.model->layers, plan.pipeline, plan.virtual_stages),
        f.checked));
  }
}

void add_experts(const Framework& f, const Request& request, const StepPlan& plan,
                 std::vector<Cannot>& reasons) {
  const int ranks = f.axes.expert_ranks_of(plan.tensor, plan.sequence(), plan.data);
  if (request.model && request.model->experts.count > 0 && ranks > 0 &&
      plan.expert * plan.expert_tensor != ranks) {
    reasons.push_back(because(
        "expert",
        fmt::format("{} splits experts over tensor x sequence{} ranks, {} here, not over {}",
                    f.name, f.axes.expert_ranks == ExpertRanks::stage ? " x data" : "", ranks,
                    plan.expert * plan.expert_tensor),
        f.checked));
  } else if (f.axes.expert_ranks == ExpertRanks::stage && plan.expert > 1 &&
             plan.expert_tensor > 1) {
    reasons.push_back(
        because("expert", fmt::format("{} splits experts whole or each of them, not both", f.name),
                f.checked));
  }
  if (f.axes.expert_ranks == ExpertRanks::whole_groups && request.model &&
      request.model->experts.count > 0) {
    const bool parts = plan.expert_tensor == plan.tensor;
    const int group = plan.sequence() * (parts ? 1 : plan.tensor);
    const bool whole = plan.expert == 1
                           ? parts
                           : (parts || plan.expert_tensor == 1) && plan.expert % group == 0 &&
                                 group * plan.data % plan.expert == 0;
    if (!whole) {
      reasons.push_back(because(
          "expert",
          fmt::format("{} splits experts over groups of all {} sequence ranks, each over the {} "
                      "tensor ranks, or whole over these, too: not EP {}, ETP {}",
                      f.name, plan.sequence(), plan.tensor, plan.expert, plan.expert_tensor),
          f.axes.expert_source));
    }
  }
  const std::span<const Dispatcher> known = f.axes.dispatchers;
  if (plan.sends_to_experts() && !known.empty() &&
      std::ranges::find(known, plan.to_experts) == known.end()) {
    reasons.push_back(because(
        "dispatcher",
        fmt::format("{} has no {} dispatcher of its own", f.name, to_string(plan.to_experts)),
        f.checked));
  }
}

void add_tensor(const Framework& f, const Way* way, const Request& request, const StepPlan& plan,
                std::vector<Cannot>& reasons) {
  const int kv_heads = request.problem.kv_heads;
  if (f.axes.tensor && !f.axes.kv_copies && kv_heads % plan.tensor != 0) {
    reasons.push_back(because("heads",
                              fmt::format("{} splits whole KV heads over tensor ranks: {} over {}",
                                          f.name, kv_heads, plan.tensor),
                              f.checked));
  }
  if (plan.tensor > 1 && plan.sequence() > 1 && way != nullptr && way->no_tensor) {
    reasons.push_back(because(
        "tensor",
        fmt::format("{} has no tensor parallelism beside {}: {}", f.name, way->name, plan.tensor),
        way->source));
  }
  if (!plan.guided && plan.data > 1 && plan.sequence() > 1 && way != nullptr && way->no_data) {
    reasons.push_back(because(
        "data", fmt::format("{} has no replicas beside {}: {}", f.name, way->name, plan.data),
        way->source));
  }
}

void add_unit(const Framework& f, const Request& request, const StepPlan& plan,
              std::vector<Cannot>& reasons) {
  const int ranks = plan.sequence() * (plan.tensor_sequence ? plan.tensor : 1);
  const Problem& problem = request.problem;
  const std::int64_t tokens =
      deals_documents(plan.attention.layout) ? padded(problem, plan.attention).seq : problem.seq;
  if (f.unit.tokens > 0 && tokens % (std::int64_t{f.unit.tokens} * ranks) != 0 &&
      std::ranges::find(reasons, "sequence", &Cannot::rule) == reasons.end()) {
    reasons.push_back(because("sequence",
                              fmt::format("{} wants sequences of a multiple of {} x {} tokens "
                                          "(tensor x sequence ranks): {}",
                                          f.name, f.unit.tokens, ranks, tokens),
                              f.unit.source));
  }
}

void add_mlp(const Framework& f, const Model& model, const StepPlan& plan,
             std::vector<Cannot>& reasons) {
  const int ranks = plan.tensor * plan.sequence();
  for (const LayerRun& run : layer_runs(model)) {
    const std::int64_t width = run.blocks.feed == Feed::mlp       ? model.ffn
                               : run.blocks.feed == Feed::experts ? model.experts.shared_ffn
                                                                  : 0;
    if (width % ranks != 0) {
      reasons.push_back(because("mlp",
                                fmt::format("{} splits MLPs over all tensor x sequence ranks: one "
                                            "{} wide is not divisible by {}",
                                            f.name, width, ranks),
                                f.mlp_over_all));
      return;
    }
  }
}

void add_shards(const Framework& f, const Way* way, const Request& request, const StepPlan& plan,
                std::vector<Cannot>& reasons) {
  const bool trains = request.phase == StepPhase::train;
  if (trains && !f.axes.cut_weights.empty() && plan.tensor * plan.pipeline > 1 &&
      plan.shards() == 1) {
    reasons.push_back(because("zero",
                              fmt::format("{} wants weights that are cut over sequence x data "
                                          "ranks beside tensor ranks and stages, and here is one",
                                          f.name),
                              f.axes.cut_weights));
  }
  if (plan.zero == 0 || plan.shards() == plan.replicas()) {
    return;
  }
  if (trains && !f.axes.cut_copies.empty() && plan.tensor * plan.sequence() > 1 &&
      plan.shards() == plan.sequence()) {
    reasons.push_back(because("zero-group",
                              fmt::format("{} has copies beside tensor or sequence ranks of shards "
                                          "that are cut over several data ranks alone",
                                          f.name),
                              f.axes.cut_copies));
  }
  const auto refuse = [&](std::string what) {
    reasons.push_back(
        because("zero-group", std::move(what), f.zero.source.empty() ? f.checked : f.zero.source));
  };
  if (!f.axes.shard_copies || (way != nullptr && way->no_shard_copies)) {
    refuse(
        fmt::format("the text written for {} cuts shards over all {} sequence x data ranks, "
                    "not over {}",
                    f.name, plan.replicas(), plan.shards()));
  } else if (plan.shards() % plan.sequence() != 0) {
    refuse(
        fmt::format("{} cuts shards over whole data ranks, and {} ranks are no multiple of the "
                    "sequence's {}",
                    f.name, plan.shards(), plan.sequence()));
  } else if (request.model && request.model->experts.count > 0) {
    refuse(
        fmt::format("{} cuts experts into as many copies as all other weights, and plans cut "
                    "them over all ranks that have them",
                    f.name));
  }
}

}  // namespace spp
