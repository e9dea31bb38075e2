#include "step/links.hpp"

#include "sim/all_reduce.hpp"
#include "sim/lowering.hpp"

#include <algorithm>

namespace spp {

StepLinks::StepLinks(const sim::Cluster& cluster, const StepPlan& plan) {
  struct Shape {
    StepAxis axis;
    int stride, size;
  };
  const int experts = plan.expert * plan.expert_tensor;
  const std::array<Shape, step_axes> shapes{{
      {StepAxis::tensor, 1, plan.tensor},
      {StepAxis::expert, plan.expert_tensor, plan.expert},
      {StepAxis::expert_tensor, 1, plan.expert_tensor},
      {StepAxis::weights, plan.tensor, plan.shards()},
      {StepAxis::replicas, plan.tensor * plan.shards(), plan.replicas() / plan.shards()},
      {StepAxis::expert_weights, experts, std::max(1, plan.stage_ranks() / experts)},
      {StepAxis::stages, plan.stage_ranks(), plan.pipeline},
  }};
  clusters_.reserve(shapes.size());
  for (const Shape& shape : shapes) {
    Group& group = axes_[index(shape.axis)];
    group.size = shape.size;
    if (shape.size > 1) {
      clusters_.push_back(sim::thinned(cluster, shape.stride, shape.size));
      group.cluster = clusters_.size() - 1;
    }
  }
}

Bytes StepLinks::sent(StepAxis axis, CommKind kind, Bytes tensor) const {
  const std::int64_t n = size(axis);
  const std::int64_t times = kind == CommKind::all_reduce ? 2 : 1;
  return Bytes(static_cast<std::int64_t>(tensor.as_double() * static_cast<double>(times * (n - 1)) /
                                         static_cast<double>(n)));
}

Seconds StepLinks::collective(StepAxis axis, CommKind kind, Bytes tensor) {
  const int n = size(axis);
  if (n == 1 || tensor <= Bytes(0)) {
    return Seconds(0);
  }
  auto [at, fresh] = times_.try_emplace({axis, kind, tensor.value()});
  if (fresh) {
    const sim::Cluster& cluster = clusters_[axes_[index(axis)].cluster];
    const sim::Placement placement(cluster, n, RankOrder::block);
    const RankGroup group{.first = 0, .stride = 1, .size = n};
    at->second = kind == CommKind::all_reduce
                     ? sim::all_reduce_cost(tensor, group, placement).time
                     : sim::collective_time(kind, group, sent(axis, kind, tensor), placement);
  }
  return at->second;
}

Seconds StepLinks::message(Bytes bytes) const {
  if (size(StepAxis::stages) == 1) {
    return Seconds(0);
  }
  const sim::Cluster& cluster = clusters_[axes_[index(StepAxis::stages)].cluster];
  const sim::Scope scope = cluster.scope(0, 1);
  const double shared = scope == sim::Scope::inter ? cluster.gpus_per_nic() : 1;
  return cluster.transport(scope).time(CommKind::send_recv, bytes, cluster.nominal_rate(scope)) *
         shared;
}

int StepLinks::nodes(StepAxis axis) const {
  return size(axis) > 1 ? clusters_[axes_[index(axis)].cluster].nodes() : 1;
}

}  // namespace spp
