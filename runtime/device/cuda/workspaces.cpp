#include "runtime/device/cuda/workspaces.hpp"

#include "runtime/device/cuda/nccl_plan.hpp"

#include <algorithm>
#include <map>

namespace spp::runtime::cuda {
namespace {

Rows rows_of(const Problem& problem, const TokenSet& tokens, HeadRange heads) {
  return {.data = nullptr,
          .dtype = problem.dtype,
          .count = tokens.count(),
          .batch = problem.batch,
          .heads = heads.count(),
          .width = problem.head_dim};
}

Bytes sum_of(const std::map<StreamId, Bytes>& by_stream) {
  Bytes sum{};
  for (const auto& [stream, bytes] : by_stream) {
    sum += bytes;
  }
  return sum;
}

/// Of one communicator, in the tens of channels that it opens over NVLink, each with buffers of 4
/// MiB and more to its peers. What people see NCCL take is 200 to 400 MB.
constexpr Bytes of_communicator{std::int64_t{256} << 20};

bool contains(const RankGroup& group, Rank rank) {
  const int index = group.index_of(rank);
  return index >= 0 && index < group.size && group.rank(index) == rank;
}

/// Parts of all members.
Bytes sums_workspace(const StoredOp& stored, const Buffer& from, const Problem& problem) {
  std::int64_t cells = 0;
  for (const CellSpan& part : stored.sends) {
    cells += part.count;
  }
  const bool numbers = from.tensor == Tensor::lse || from.tensor == Tensor::delta;
  return Bytes(cells * (numbers ? 1 : problem.head_dim) * size_of(from.dtype));
}

}  // namespace

Bytes attention_workspaces(const DeviceAttentionBackend& attention, Rank rank,
                           const Schedule& schedule, PhasesOfAll phases) {
  Bytes sum{};
  for (const std::vector<StoredProgram>* programs : phases) {
    if (programs->empty()) {
      continue;
    }
    std::map<StreamId, Bytes> most;
    for (const StoredOp& stored : (*programs)[rank.index()].ops) {
      const auto block = [&](const auto& op, Phase phase) {
        const Visibility visible{.q_tokens = op.q_tokens,
                                 .k_tokens = op.k_tokens,
                                 .mask = schedule.problem.mask,
                                 .seq = schedule.requested.seq};
        Bytes& of_stream = most[stored.op.stream];
        of_stream = std::max(
            of_stream, attention.workspace(rows_of(schedule.problem, op.q_tokens, op.heads),
                                           rows_of(schedule.problem, op.k_tokens, op.kv_heads),
                                           visible, phase));
      };
      if (const auto* forward = op_if<AttentionForward>(stored.op.body)) {
        block(*forward, Phase::forward);
      } else if (const auto* backward = op_if<AttentionBackward>(stored.op.body)) {
        block(*backward, Phase::backward);
      }
    }
    sum += sum_of(most);
  }
  return sum;
}

Bytes nccl_workspaces(Rank rank, const Schedule& schedule, PhasesOfAll phases) {
  std::map<StreamId, Bytes> sums;
  for (const std::vector<StoredProgram>* programs : phases) {
    if (programs->empty()) {
      continue;
    }
    const StoredProgram& program = (*programs)[rank.index()];
    for (const StoredOp& stored : program.ops) {
      const auto* op = op_if<Collective>(stored.op.body);
      if (op != nullptr && op->kind == CollectiveKind::reduce_scatter) {
        const Buffer& from = program.buffers[op->from.index()];
        if (op->group.size > 1 && from.dtype != program.buffers[op->to.index()].dtype) {
          Bytes& most = sums[stored.op.stream];
          most = std::max(most, sums_workspace(stored, from, schedule.problem));
        }
      }
    }
  }
  std::int64_t communicators = 0;
  for (const CommunicatorLayer& layer : communicator_layers(phases, schedule.mesh.size())) {
    communicators += std::ranges::any_of(
        layer, [&](const CommunicatorKey& key) { return contains(key.group, rank); });
  }
  return sum_of(sums) + of_communicator * communicators;
}

}  // namespace spp::runtime::cuda
