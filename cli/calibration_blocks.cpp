// Which attention blocks a calibration measures: those that legal plans produce.
#include "cli/calibration_blocks.hpp"

#include "calibrate/fit.hpp"
#include "planner/plan.hpp"

#include <set>

namespace spp::cli {

namespace {

/// Any machine of one node: which plans are legal does not depend on more.
sim::Cluster one_node(int ranks) {
  MachineSpec machine;
  machine.name = "calibration";
  machine.gpus_per_node.value = ranks;
  machine.sockets.value = 1;
  machine.intra.medium = "host";
  machine.intra.cpu_share = Sourced<double>{.value = 1, .spread = 0, .source = ""};
  machine.intra_rate = Bandwidth(1e9);
  return {std::move(machine), 1, ranks};
}

}  // namespace

std::vector<AttentionBlock> blocks_of_plans(const Problem& problem, int ranks) {
  const sim::Cluster cluster = one_node(ranks);
  std::vector<AttentionBlock> blocks;
  std::set<AttentionKey> seen;
  Request request;
  request.problem = problem;
  request.gpus = ranks;
  request.cluster = &cluster;
  for (const SequencePlan& plan : legal_plans(request, nullptr)) {
    const Strategy& strategy = strategies::by_name(plan.strategy, "strategy");
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      const Schedule schedule = strategy.build(problem, plan, phase, request.build);
      const Problem& padded = schedule.contract.attention;
      const auto add = [&](const auto& op) {
        const AttentionBlock block{.phase = phase,
                                   .q = op.q_tokens,
                                   .k = op.k_tokens,
                                   .q_heads = op.heads.count(),
                                   .kv_heads = op.kv_heads.count(),
                                   .head_dim = padded.head_dim,
                                   .value_dim = padded.value_dim,
                                   .batch = padded.batch,
                                   .mask = padded.mask,
                                   .dtype = padded.dtype};
        if (seen.insert(key_of(calibrate::shape_of(block))).second) {
          blocks.push_back(block);
        }
      };
      for (int r = 0; r < schedule.mesh.size(); ++r) {
        ProgramCursor cursor(schedule.program(Rank(r)));
        while (const Op* op = cursor.next()) {
          if (const auto* forward = op_if<AttentionForward>(op->body)) {
            add(*forward);
          } else if (const auto* backward = op_if<AttentionBackward>(op->body)) {
            add(*backward);
          }
        }
      }
    }
  }
  return blocks;
}

}  // namespace spp::cli
