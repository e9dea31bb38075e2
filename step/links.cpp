#include "step/links.hpp"

#include "base/error.hpp"
#include "sim/all_reduce.hpp"
#include "sim/lowering.hpp"

#include <algorithm>
#include <numeric>

namespace spp {

RankGroup first_group(const StepPlan& plan, StepAxis axis) {
  const auto every = [](int stride, int size) {
    return RankGroup{.first = 0, .stride = stride, .size = size};
  };
  const int experts = plan.expert * plan.expert_tensor;
  switch (axis) {
    case StepAxis::tensor:
      return every(1, plan.tensor);
    case StepAxis::expert:
      return every(plan.expert_tensor, plan.expert);
    case StepAxis::expert_tensor:
      return every(1, plan.expert_tensor);
    case StepAxis::weights:
      return every(plan.tensor, plan.shards());
    case StepAxis::replicas:
      return every(plan.tensor * plan.shards(), plan.replicas() / plan.shards());
    case StepAxis::expert_weights:
      return every(experts, plan.expert_replicas());
    case StepAxis::stages:
      return every(plan.stage_ranks(), plan.pipeline);
    case StepAxis::ulysses:
    case StepAxis::team:
    case StepAxis::ring:
      break;
  }
  throw InternalError("attention's groups are its mesh's");
}

GroupTimes::View& GroupTimes::of(int stride, int size) {
  const std::pair key(stride, size);
  const auto at = views_.find(key);
  return at != views_.end()
             ? at->second
             : views_.try_emplace(key, sim::thinned(cluster_, stride, size)).first->second;
}

namespace {

/// A group that lies on as many nodes, with as many members on each, in block order.
RankGroup in_blocks(RankGroup group, const StepPlan& plan, const sim::Cluster& cluster) {
  const int nodes = cluster.nodes();
  if (plan.attention.rank_order == RankOrder::block || nodes == 1 || group.size == 1) {
    return group;
  }
  const int met = std::min(group.size, nodes / std::gcd(group.stride, nodes));
  const int of_one = group.size / met;
  group.stride = met == 1 ? group.stride / nodes : std::max(1, cluster.gpus_per_node() / of_one);
  return group;
}

}  // namespace

StepLinks::StepLinks(GroupTimes& groups, const StepPlan& plan) {
  for (std::size_t i = 0; i < step_axes; ++i) {
    const auto axis = static_cast<StepAxis>(i);
    if (is_of_attention(axis)) {
      continue;
    }
    const RankGroup shape = in_blocks(first_group(plan, axis), plan, groups.cluster());
    Group& group = axes_[i];
    group.size = shape.size;
    if (shape.size > 1) {
      group.view = &groups.of(shape.stride, shape.size);
    }
  }
}

Bytes StepLinks::sent(StepAxis axis, CommKind kind, Bytes tensor) const {
  const std::int64_t n = size(axis);
  const std::int64_t times = kind == CommKind::all_reduce ? 2 : 1;
  return Bytes(static_cast<std::int64_t>(tensor.as_double() * static_cast<double>(times * (n - 1)) /
                                         static_cast<double>(n)));
}

Seconds StepLinks::collective(StepAxis axis, CommKind kind, Bytes tensor) const {
  const int n = size(axis);
  if (n == 1 || tensor <= Bytes(0)) {
    return Seconds(0);
  }
  GroupTimes::View& view = *axes_[index(axis)].view;
  const auto [at, fresh] = view.times.try_emplace({kind, tensor.value()});
  if (fresh) {
    const sim::Placement placement(view.cluster, n, RankOrder::block);
    const RankGroup group{.first = 0, .stride = 1, .size = n};
    at->second = kind == CommKind::all_reduce
                     ? sim::all_reduce_cost(tensor, group, placement).time
                     : sim::collective_time(kind, group, sent(axis, kind, tensor), placement);
  }
  return at->second;
}

sim::LinkSeconds StepLinks::taken(StepAxis axis, CommKind kind, Bytes tensor) const {
  const int n = size(axis);
  if (n == 1) {
    return {};
  }
  GroupTimes::View& view = *axes_[index(axis)].view;
  // Of all-reduces, whatever their algorithm, what rings pass.
  const CommKind passed = kind == CommKind::all_reduce ? CommKind::reduce_scatter : kind;
  const auto [at, fresh] = view.taken.try_emplace(passed);
  if (fresh) {
    constexpr Bytes probe(1LL << 40);
    const sim::Placement placement(view.cluster, n, RankOrder::block);
    at->second = 1 / probe.as_double() *
                 sim::links_taken(passed, {.first = 0, .stride = 1, .size = n}, probe, placement);
  }
  return sent(axis, kind, tensor).as_double() * at->second;
}

Seconds StepLinks::message(Bytes bytes, int stage) const {
  const int stages = size(StepAxis::stages);
  if (stages == 1) {
    return Seconds(0);
  }
  const sim::Cluster& cluster = axes_[index(StepAxis::stages)].view->cluster;
  const int next = (stage + 1) % stages;
  const sim::Scope scope = cluster.scope(stage, next);
  const LinkId leaf = cluster.link(sim::LinkKind::leaf_out, stage);
  const Seconds uplinks = leaf.valid() && leaf != cluster.link(sim::LinkKind::leaf_out, next)
                              ? bytes / cluster.links()[leaf.index()].capacity
                              : Seconds(0);
  // Of a node's stages one has the next on another node: it has their NICs for itself.
  return std::max(uplinks, cluster.transport(scope).time(CommKind::send_recv, bytes,
                                                         cluster.nominal_rate(scope)));
}

bool StepLinks::crosses_nodes(int stage) const {
  const int stages = size(StepAxis::stages);
  return stages > 1 && axes_[index(StepAxis::stages)].view->cluster.scope(
                           stage, (stage + 1) % stages) == sim::Scope::inter;
}

int StepLinks::card(int stage) const {
  const sim::Cluster& cluster = axes_[index(StepAxis::stages)].view->cluster;
  return cluster.machine().inter ? stage / cluster.gpus_per_nic() : stage;
}

int StepLinks::nodes(StepAxis axis) const {
  return size(axis) > 1 ? axes_[index(axis)].view->cluster.nodes() : 1;
}

}  // namespace spp
