// A layer and a step as schedules, and in one place all that keeps them from being one.
#include "parallel/layer/schedule.hpp"

#include "parallel/attention/compose.hpp"
#include "parallel/layer/program.hpp"
#include "parallel/layer/repeats.hpp"
#include "parallel/pipeline/walk.hpp"
#include "schedule/balanced.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <vector>

namespace spp {
namespace {

/// Attention of one tensor rank's heads by one of the masks, in one micro-batch.
Problem local_problem(const Problem& all, const LayerPlan& plan, int mask) {
  Problem local = all;
  local.mask = all.mask_of(mask);
  local.other_masks.clear();
  local.q_heads /= plan.tensor;
  local.kv_heads /= plan.tensor;
  local.micro_batches = 1;
  return local;
}

/// Tokens of a sequence rank are cut once more between the tensor ranks.
Problem padded_layer(const Problem& requested, const LayerPlan& plan) {
  Problem padded = requested;
  const std::int64_t unit = unit_of(plan.attention) * plan.tensor;
  padded.seq = (requested.seq + unit - 1) / unit * unit;
  padded.cached = dealt(requested, plan.attention).cached;
  padded.micro_batches = plan.replicas * plan.micro_batches();
  return padded;
}

std::string why_not_reduced(const LayerGraph& layer, const LayerPlan& plan) {
  const std::vector<ParamUse> uses = param_uses(layer);
  for (std::size_t label = 0; label < uses.size(); ++label) {
    const Param& param = layer.graph.params[label];
    const int shards = shards_of(uses[label], param.part_rows(), plan);
    const int ranks = ranks_that_sum(uses[label], plan) / shards;
    const std::int64_t summed = param.part_rows() / shards;
    if (sum_sizes(summed, ranks).empty()) {
      return fmt::format(
          "the {} rows of {}{} divide neither over the {} ranks that sum up its gradient nor over "
          "groups of them",
          summed, shards > 1 ? "a shard of " : "", param.name, ranks);
    }
    if (uses[label].units.size() > 1 && plan.pipeline.stages > 1 && summed % 2 != 0) {
      return fmt::format("{} rows of {} do not divide over the two stages that have it", summed,
                         param.name);
    }
  }
  return "";
}

/// Own tokens of all ranks of a replica, in one micro-batch.
std::vector<TokenSet> own_tokens(const std::vector<TokenSet>& homes, int tensor) {
  std::vector<TokenSet> own;
  for (const TokenSet& home : homes) {
    for (int index = 0; index < tensor; ++index) {
      own.push_back(home.part(index, tensor));
    }
  }
  return own;
}

/// Of which tokens in a row some experts of a slot would get more than others, and lengths of which
/// none do: where each chunk of a rank has as many for every expert.
std::string uneven_among_experts(const std::vector<TokenSet>& own, int classes,
                                 const Problem& problem, const LayerPlan& plan) {
  std::int64_t in_a_row = own.front().count();
  for (const TokenSet& tokens : own) {
    const auto uneven = std::ranges::find_if(
        tokens.ranges(), [&](const TokenRange& range) { return range.count % classes != 0; });
    if (uneven != tokens.ranges().end()) {
      in_a_row = uneven->count;
      break;
    }
  }
  const std::int64_t all = own.front().count();
  const std::string obstacle = fmt::format(
      "a rank's {} tokens {}do not divide among {} experts of a slot", all,
      in_a_row < all ? fmt::format("lie in chunks, of which those of {} ", in_a_row) : "", classes);
  const Layout layout = chunk_layout(plan.attention.layout);
  if (layout == Layout::whole_documents) {
    return obstacle + ": documents are as long as they are";
  }
  const std::int64_t chunks = layout == Layout::zigzag     ? 2
                              : layout == Layout::balanced ? chunks_of_rank
                                                           : 1;
  const std::int64_t unit = classes * chunks * plan.model_ranks();
  const std::int64_t above = (problem.seq + unit - 1) / unit * unit;
  return fmt::format("{}; those of sequences of {}{} tokens do", obstacle,
                     above > unit ? fmt::format("{} or ", above - unit) : "", above);
}

/// "" if all groups of experts get as many tokens of every rank.
std::string why_not_routed(const LayerGraph& layer, const Problem& problem, const LayerPlan& plan) {
  const Routing& routing = layer.graph.routing;
  if (routing.empty()) {
    return plan.expert > 1 ? "an expert degree of a model without experts" : "";
  }
  if (plan.stage_ranks() % plan.expert != 0 || routing.experts % plan.expert != 0) {
    return fmt::format("an expert degree of {} does not divide {} ranks of a stage and {} experts",
                       plan.expert, plan.stage_ranks(), routing.experts);
  }
  if (routing.chosen % plan.expert != 0 && plan.expert % routing.chosen != 0) {
    return fmt::format("of an expert degree of {} and {} experts a token none divides the other",
                       plan.expert, routing.chosen);
  }
  const Strategy& strategy = strategies::by_name(plan.attention.strategy, "--strategy");
  const Schedule attention = strategy.build(local_problem(padded_layer(problem, plan), plan, 0),
                                            plan.attention, Phase::forward, {});
  const std::vector<TokenSet> own = own_tokens(homes_of(attention), plan.tensor);
  if (period_of(own, routing.classes()) == 0) {
    return uneven_among_experts(own, routing.classes(), problem, plan);
  }
  const bool is_strided = std::ranges::any_of(
      own, [](const TokenSet& tokens) { return tokens.ranges().front().stride > 1; });
  return is_strided && plan.expert > routing.chosen
             ? fmt::format("tokens of the {} layout are not cut between groups of experts",
                           to_string(plan.attention.layout))
             : "";
}

void add_cuts(const std::vector<std::int64_t>& more, std::vector<std::int64_t>& cuts) {
  cuts.insert(cuts.end(), more.begin(), more.end());
  std::ranges::sort(cuts);
  const auto again = std::ranges::unique(cuts);
  cuts.erase(again.begin(), again.end());
}

/// Axes that are symmetric for others, too, under moves that both allow.
void keep_common(const std::vector<SymmetricAxis>& others, std::vector<SymmetricAxis>& axes) {
  std::erase_if(axes, [&](const SymmetricAxis& axis) {
    return std::ranges::find(others, axis) == others.end();
  });
}

/// Where tokens of one group of experts end, in one micro-batch.
void cut_by_experts(const Routing& routing, std::int64_t seq, std::vector<std::int64_t>& cuts) {
  const int runs = routing.groups / std::min(routing.groups, routing.chosen);
  const std::int64_t run = routing.period / runs;
  std::vector<std::int64_t> more;
  for (std::int64_t at = run; runs > 1 && at < seq; at += run) {
    more.push_back(at);
  }
  add_cuts(more, cuts);
}

/// Data-parallel replicas behind the axes of one: those that shards are cut over, and copies of
/// these, where such a group has whole replicas.
std::vector<MeshAxis> data_axes(const LayerPlan& plan) {
  const int copies =
      plan.shard_ranks() % plan.model_ranks() == 0 ? plan.stage_ranks() / plan.shard_ranks() : 1;
  std::vector<MeshAxis> axes{{.name = "data", .size = plan.replicas / copies},
                             {.name = "copies", .size = copies}};
  std::erase_if(axes, [](const MeshAxis& axis) { return axis.size == 1; });
  return axes;
}

/// Rings that sum parameters' gradients up go through all axes: only the outermost one's rotations
/// turn them onto themselves; those of shards and of their copies by themselves, unless a group of
/// shards ends within a replica, or experts are there, which are cut over all. Tensor ranks do the
/// same with other heads, but for the turns of the rings for norms, which carry little.
std::vector<SymmetricAxis> symmetry_of(const Schedule& attention, const LayerPlan& plan,
                                       bool has_experts) {
  std::vector<SymmetricAxis> symmetry;
  const std::vector<MeshAxis> data = data_axes(plan);
  const bool turns =
      plan.shard_ranks() % plan.model_ranks() == 0 || plan.model_ranks() % plan.shard_ranks() == 0;
  const bool by_replicas = !data.empty() && turns;
  if (plan.expert > 1) {  // a group's ranks do not lie alike on the axes that it goes through
    if (by_replicas && plan.stage_ranks() / data.back().size % plan.expert == 0) {
      symmetry.push_back({.axis = data.back().name, .under = AxisMoves::rotations});
    }
    return symmetry;
  }
  if (by_replicas) {
    for (const MeshAxis& axis : std::span(data).subspan(has_experts ? data.size() - 1 : 0)) {
      symmetry.push_back({.axis = axis.name, .under = AxisMoves::rotations});
    }
  } else if (plan.shard_ranks() == plan.stage_ranks()) {
    const auto axes = attention.mesh.axes();
    const auto outermost = std::ranges::find_if(std::views::reverse(axes),
                                                [](const MeshAxis& axis) { return axis.size > 1; });
    for (SymmetricAxis axis : attention.symmetry) {
      if (outermost != std::views::reverse(axes).end() && axis.axis == outermost->name) {
        axis.under = axis.under == AxisMoves::alike ? AxisMoves::alike : AxisMoves::rotations;
        symmetry.push_back(std::move(axis));
      }
    }
  }
  symmetry.push_back({.axis = "tensor", .under = AxisMoves::equal});
  return symmetry;
}

/// Groups within others are not turned onto each other: but shards of copies are, whose groups are
/// axes.
bool sums_in_groups(const LayerParts& parts) {
  for (std::size_t label = 0; label < parts.uses.size(); ++label) {
    const std::int64_t rows = parts.layer.graph.params[label].part_rows();
    const int all = ranks_that_sum(parts.uses[label], parts.plan);
    const int shards = shards_of(parts.uses[label], rows, parts.plan);
    const bool has_group = shards > 1 || parts.plan.shard_ranks() == parts.plan.stage_ranks();
    if (!has_group || sum_sizes(rows / shards, all / shards).size() > 1) {
      return true;
    }
  }
  return false;
}

/// Where one micro-batch's tokens are cut, every one's are.
std::vector<std::int64_t> cuts_of_all(const std::vector<std::int64_t>& of_one, const Problem& all) {
  std::vector<std::int64_t> cuts;
  for (int m = 0; m < all.micro_batches; ++m) {
    for (const std::int64_t cut : of_one) {
      cuts.push_back(m * all.seq + cut);
    }
  }
  return cuts;
}

/// Of a step whose micro-batches repeat each other.
Turns turns_of(const LayerGraph& layer, const Problem& problem, const LayerPlan& plan,
               const BuildOptions& options) {
  const int repeats = plan.pipeline.stages;
  const int beside = plan.micro_batches() % repeats;
  return {.count = plan.micro_batches() / repeats, .repeats = repeats, .of = [=](int turns) {
            LayerPlan shorter = plan;
            shorter.pipeline.micro_batches = turns * repeats + beside;
            return layer_schedule(layer, problem, shorter, Phase::step, options);
          }};
}

}  // namespace

std::string why_not_layer(const LayerGraph& layer, const Problem& problem, const LayerPlan& plan) {
  if (!layer.why_not.empty()) {
    return "no schedule of a layer holds " + layer.why_not;
  }
  if (problem.kv_heads % plan.tensor != 0) {
    return fmt::format("a tensor degree of {} does not divide {} KV heads", plan.tensor,
                       problem.kv_heads);
  }
  const HeadPolicy heads = plan.attention.heads;
  if (heads == HeadPolicy::pad || (heads == HeadPolicy::uneven && plan.tensor > 1)) {
    return fmt::format("heads are dealt out {}, which the layer's matrices are not",
                       to_string(heads));
  }
  if (deals_documents(plan.attention.layout)) {
    return fmt::format("the {} layout pads documents, and a layer's tokens are not padded so",
                       to_string(plan.attention.layout));
  }
  const Problem padded = padded_layer(problem, plan);
  if (padded.micro_batches > 1 && padded.seq != problem.seq) {
    return fmt::format(
        "sequences of {} tokens are padded over {} ranks, which only one micro-batch may be",
        problem.seq, plan.model_ranks());
  }
  const Strategy& strategy = strategies::by_name(plan.attention.strategy, "--strategy");
  if (strategy.function != AttentionFunction::softmax) {
    return "its attention is a softmax";
  }
  for (const Definition& d : layer.graph.definitions) {
    for (const TensorRef ref : d.writes) {
      if (is_value(ref.tensor) &&
          layer.graph.value(ref.label).width % layer.graph.value(ref.label).parts != 0) {
        return fmt::format("a tensor degree of {} does not divide the {} columns of {}",
                           plan.tensor, layer.graph.value(ref.label).width,
                           layer.graph.value(ref.label).name);
      }
    }
  }
  for (int mask = 0; mask < padded.masks(); ++mask) {
    const WhyNot attention = why_not(strategy, local_problem(padded, plan, mask), plan.attention);
    if (!attention.legal()) {
      return attention.detail;
    }
  }
  if (padded.masks() > 1 && by_work(plan.attention.layout)) {
    return why_not_by_work(plan.attention.layout).detail;
  }
  std::string routed = why_not_routed(layer, problem, plan);
  return routed.empty() ? why_not_reduced(layer, plan) : routed;
}

std::string why_not_step(const LayerGraph& step, const Problem& problem, const LayerPlan& plan,
                         const BuildOptions& options) {
  std::string reason = why_not_layer(step, problem, plan);
  if (!reason.empty()) {
    return reason;
  }
  if (problem.cached > 0) {
    return "keys that are cached have no gradient";
  }
  const Strategy& strategy = strategies::by_name(plan.attention.strategy, "--strategy");
  if (!strategy.backward) {
    return fmt::format("{} has no backward", plan.attention.strategy);
  }
  if (std::string order = why_not(pipelines::by_name(plan.order, "--pipeline"), plan.pipeline);
      !order.empty()) {
    return order;
  }
  const Problem padded = padded_layer(problem, plan);
  for (int mask = 0; mask < padded.masks(); ++mask) {
    const Problem local = local_problem(padded, plan, mask);
    const Schedule forward = strategy.build(local, plan.attention, Phase::forward, options);
    const Schedule backward = strategy.build(local, plan.attention, Phase::backward, options);
    std::string lacking;
    (void)kept_by(forward, backward, lacking);
    if (!lacking.empty()) {
      return fmt::format("the backward of {} reads {} elsewhere than its forward leaves it",
                         plan.attention.strategy, lacking);
    }
  }
  return "";
}

Schedule layer_schedule(const LayerGraph& layer, const Problem& problem, const LayerPlan& plan,
                        Phase phase, const BuildOptions& options) {
  const Strategy& strategy = strategies::by_name(plan.attention.strategy, "--strategy");
  const Problem all = padded_layer(problem, plan);
  const auto attention = [&](int mask, Phase of) -> std::optional<Schedule> {
    if (phase != Phase::step && phase != of) {
      return std::nullopt;
    }
    return strategy.build(local_problem(all, plan, mask), plan.attention, of, options);
  };
  auto parts = std::make_shared<LayerParts>(LayerParts{
      .layer = layer,
      .index = GraphIndex(layer.graph),
      .uses = param_uses(layer),
      .params = params_of_units(layer),
      .plan = plan,
      .phase = phase,
      .problem = all,
      .attentions = {},
      .split = HeadSplit(all, plan.tensor * plan.attention.ulysses, plan.attention.heads),
      .stages = stage_parts(layer, plan),
      .computed_again = computed_again(layer, plan),
      .steps = {},
      .homes = {},
      .streams = {}});
  for (int mask = 0; mask < all.masks(); ++mask) {
    parts->attentions.push_back({.forward = attention(mask, Phase::forward),
                                 .backward = attention(mask, Phase::backward),
                                 .kept = {}});
  }
  const Schedule& inner = parts->attentions.front().any();
  Routing& routing = parts->layer.graph.routing;
  if (!routing.empty()) {
    parts->homes = homes_of(inner);
    routing.period = period_of(own_tokens(parts->homes, plan.tensor), routing.classes());
    ensure(phase == Phase::step, "a layer with experts by itself");
    ensure(routing.period > 0 && routing.groups == plan.expert, "a routing of another plan");
  }
  if (phase == Phase::step) {
    for (AttentionParts& of : parts->attentions) {
      std::string lacking;
      of.kept = kept_by(*of.forward, *of.backward, lacking);
      ensure(lacking.empty(), "attention's backward lacks what its forward had");
    }
    parts->steps = with_messages(pipelines::by_name(plan.order, "--pipeline"), plan.pipeline);
  }
  Grain grain = inner.grain;
  grain.cuts.clear();
  std::vector<SymmetricAxis> symmetry = symmetry_of(inner, plan, !routing.empty());
  for (int mask = 0; mask < all.masks(); ++mask) {
    for (const auto* of : {&parts->attentions[static_cast<std::size_t>(mask)].forward,
                           &parts->attentions[static_cast<std::size_t>(mask)].backward}) {
      if (*of) {
        ensure((*of)->contract.attention == local_problem(all, plan, mask),
               "attention pads what is padded");
        ensure((*of)->grain.tokens == grain.tokens && (*of)->grain.slots == grain.slots &&
                   (*of)->grain.heads == grain.heads && (*of)->streams == inner.streams,
               "attentions of a layer are cut in different ways");
        add_cuts((*of)->grain.cuts, grain.cuts);
        keep_common(symmetry_of(**of, plan, !routing.empty()), symmetry);
      }
    }
  }
  if (phase != Phase::forward && sums_in_groups(*parts)) {
    std::erase_if(symmetry, [](const SymmetricAxis& axis) { return axis.axis != "tensor"; });
  }
  Schedule s;
  s.contract.attention = all;
  s.contract.requested = problem;
  s.contract.requested.micro_batches = all.micro_batches;
  s.contract.requested.cached = all.cached;
  s.contract.graph = parts->layer.graph;
  s.contract.phase = phase;
  s.contract.recomputes =
      phase == Phase::step &&
      std::ranges::any_of(parts->computed_again, [&](const std::vector<int>& again) {
        return std::ranges::any_of(again, [&](int i) {
          return layer.graph.definition(i).function == LayerFunction::split_heads;
        });
      });
  std::vector<MeshAxis> axes{{.name = "tensor", .size = plan.tensor}};
  const auto of_attention = inner.mesh.axes();
  axes.insert(axes.end(), of_attention.begin(), of_attention.end());
  std::ranges::copy(data_axes(plan), std::back_inserter(axes));
  if (plan.pipeline.stages > 1) {
    axes.push_back({.name = "pipeline", .size = plan.pipeline.stages});
  }
  s.mesh = Mesh(std::move(axes));
  s.symmetry = std::move(symmetry);
  s.grain = grain;
  s.grain.heads = parts->split;
  if (!routing.empty()) {
    cut_by_experts(routing, all.seq, grain.cuts);
  }
  s.grain.cuts = cuts_of_all(grain.cuts, all);
  s.streams = inner.streams;
  ensure(s.streams.size() == LayerStreams::first, "attention's streams are others");
  parts->streams = LayerStreams(plan);
  if (micro_batches_repeat(*parts) && pipelines::by_name(plan.order, "--pipeline").repeats) {
    s.turns = turns_of(layer, problem, plan, options);
  }
  std::ranges::copy(parts->streams.names, std::back_inserter(s.streams));
  s.program = [parts = std::shared_ptr<const LayerParts>(std::move(parts))](Rank rank) {
    return layer_program(*parts, rank);
  };
  return s;
}

}  // namespace spp
