#include "parallel/layer/streams.hpp"

#include "parallel/layer/schedule.hpp"

#include <fmt/format.h>

#include <utility>

namespace spp {

LayerStreams::LayerStreams(const LayerPlan& plan) : names{"tensor", "weights"} {
  const auto add = [&](std::string name) {
    names.push_back(std::move(name));
    return StreamId(first + names.size() - 1);
  };
  if (plan.zero == 3) {
    parameters = add("parameters");
  }
  if (plan.shard_ranks() < plan.stage_ranks()) {
    copies = add("copies");
  }
  if (plan.expert > 1) {
    experts = add("experts");
  }
  const bool apart = plan.pipeline.stages > 1 && plan.messages_overlap;
  for (const auto& [direction, called] : {std::pair(0, "activations"), std::pair(1, "gradients")}) {
    for (const int odd : {0, 1}) {
      messages[direction][odd] =
          apart ? add(fmt::format("{}_{}", called, odd == 0 ? "even" : "odd")) : compute;
    }
  }
}

}  // namespace spp
