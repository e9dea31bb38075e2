#include "runtime/device/cuda/workspaces.hpp"

#include "runtime/device/cuda/layer_kernels.hpp"
#include "runtime/device/cuda/nccl_plan.hpp"
#include "runtime/device/cuda/product_kernels.hpp"
#include "runtime/ops.hpp"
#include "schedule/measure.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace spp::runtime::cuda {
namespace {

Rows rows_of(const Problem& problem, Tensor tensor, const TokenSet& tokens, HeadRange heads) {
  return {.data = nullptr,
          .dtype = problem.dtype,
          .count = tokens.count(),
          .batch = problem.batch,
          .heads = heads.count(),
          .width = static_cast<int>(shape_of(tensor, problem).width)};
}

Bytes sum_of(const std::map<StreamId, Bytes>& by_stream) {
  Bytes sum{};
  for (const auto& [stream, bytes] : by_stream) {
    sum += bytes;
  }
  return sum;
}

/// What NCCL takes for the channels to a peer, or from one. An all-to-all of 8 H100 took 3.28 GB of
/// each (NVIDIA/nccl issue 1685): 32 channels to each of 7 peers (twice the NVLinks of the path, up
/// to a power of two), and for a channel both ways a buffer of 10 MiB and two of 2 MiB. Over PCIe
/// and networks channels are 2, so there it is too much.
constexpr Bytes of_channels{std::int64_t{32} * 7 << 20};

/// Of a rank in one communicator.
struct Peers {
  std::set<int> to, from;
  void add_all(const RankGroup& group, Rank self) {
    for (int i = 0; i < group.size; ++i) {
      if (group.rank(i) != self) {
        to.insert(group.rank(i).value);
        from.insert(group.rank(i).value);
      }
    }
  }
  /// As in NCCL's rings; its trees have as many channels, to others.
  void add_neighbours(const RankGroup& group, Rank self) {
    const int me = group.index_of(self);
    to.insert(group.rank((me + 1) % group.size).value);
    from.insert(group.rank((me + group.size - 1) % group.size).value);
  }
};

/// By stream and group, as communicators are.
using PeersOfAll = std::map<std::tuple<int, int, int, int>, Peers>;
Peers& of(PeersOfAll& all, StreamId stream, const RankGroup& group) {
  return all[{stream.value, group.first, group.stride, group.size}];
}

/// NCCL does not add up numbers of one type into numbers of another (nccl.hpp).
bool sums_itself(const Collective& op, const StoredProgram& program) {
  return program.buffers[op.from.index()].dtype == program.buffers[op.to.index()].dtype;
}

/// Where parts of a collective do not lie together it is sends and receives, too, which is rare
/// and not foreseen here.
void add_peers(PeersOfAll& all, const StoredOp& stored, const StoredProgram& program, int ranks) {
  const Rank self = program.rank;
  const StreamId stream = stored.op.stream;
  if (const auto* exchange = op_if<Exchange>(stored.op.body)) {
    Peers& peers = of(all, stream, {.first = 0, .stride = 1, .size = ranks});
    if (exchange->to.valid() && exchange->to != self) {
      peers.to.insert(exchange->to.value);
    }
    if (exchange->from.valid() && exchange->from != self) {
      peers.from.insert(exchange->from.value);
    }
    return;
  }
  const auto* op = op_if<Collective>(stored.op.body);
  if (op == nullptr || op->group.size < 2) {
    return;
  }
  Peers& peers = of(all, stream, op->group);
  switch (op->kind) {
    case CollectiveKind::all_to_all:
      return peers.add_all(op->group, self);
    case CollectiveKind::reduce_scatter:
      return sums_itself(*op, program) ? peers.add_neighbours(op->group, self)
                                       : peers.add_all(op->group, self);
    case CollectiveKind::all_gather:
    case CollectiveKind::all_reduce:
      return peers.add_neighbours(op->group, self);
  }
}

Bytes channels(Rank rank, PhasesOfAll phases, int ranks) {
  PeersOfAll all;
  for (const std::vector<StoredProgram>* programs : phases) {
    if (!programs->empty()) {
      for (const StoredOp& stored : (*programs)[rank.index()].ops) {
        add_peers(all, stored, (*programs)[rank.index()], ranks);
      }
    }
  }
  if (const auto layers = communicator_layers(phases, ranks); !layers.empty()) {
    const CommunicatorKey& place = meeting_place(layers, ranks);
    of(all, place.stream, place.group).add_neighbours(place.group, rank);
  }
  std::int64_t ways = 0;
  for (const auto& [communicator, peers] : all) {
    ways += std::ssize(peers.to) + std::ssize(peers.from);
  }
  return of_channels * ways;
}

/// Parts of all members.
Bytes sums_workspace(const StoredOp& stored, const Buffer& from) {
  std::int64_t cells = 0;
  for (const CellSpan& part : stored.sends) {
    cells += part.count;
  }
  return Bytes(cells * from.width * size_of(from.dtype));
}

/// Of a norm's backward, also of heads; 0 of other functions.
Bytes norm_room(const RowKernel& op, const Schedule& schedule, std::span<const Buffer> buffers) {
  const Definition& d = schedule.contract.graph.definition(op.definition);
  const bool of_heads = d.function == LayerFunction::split_heads && d.param >= 0;
  if (!of_heads && d.function != LayerFunction::rms_norm &&
      d.function != LayerFunction::layer_norm) {
    return Bytes(0);
  }
  const auto rows = [&](BufferId id, std::int64_t count) {
    const Buffer& buffer = buffers[id.index()];
    return Rows{.dtype = buffer.dtype,
                .count = count,
                .batch = buffer.batch,
                .heads = buffer.heads,
                .width = static_cast<int>(buffer.width)};
  };
  if (of_heads) {
    return Bytes(join_heads_bytes(rows(op.reads.ids()[0], op.tokens.count()),
                                  rows(op.reads.ids()[1], op.tokens.count())));
  }
  const BufferId x = op.reads.ids()[0];
  const BufferId weight = op.reads.ids()[1];
  return Bytes(norm_backward_bytes(
      rows(x, op.tokens.count()),
      norm_weights(rows(weight, buffers[weight.index()].tokens), buffers[x.index()].width)));
}

}  // namespace

Bytes room_of(const OpBody& body, const Schedule& schedule, std::span<const Buffer> buffers) {
  const Problem& problem = schedule.contract.attention;
  const auto states = [&](const auto& op) {
    return Bytes(linear_bytes(rows_of(problem, Tensor::k, op.tokens, op.kv_heads), linear_chunk));
  };
  if (const auto* softmax = op_if<Softmax>(body)) {
    return Bytes(softmax->tokens.count() * static_cast<std::int64_t>(sizeof(SeenKeyRows)));
  }
  if (const auto* forward = op_if<LinearForward>(body)) {
    return states(*forward);
  }
  if (const auto* row = op_if<RowKernel>(body); row != nullptr && row->backward) {
    return norm_room(*row, schedule, buffers);
  }
  const auto* backward = op_if<LinearBackward>(body);
  return backward != nullptr ? states(*backward) : Bytes(0);
}

Bytes attention_workspaces(const DeviceAttentionBackend& attention, Rank rank,
                           const Schedule& schedule, PhasesOfAll phases) {
  Bytes sum{};
  for (const std::vector<StoredProgram>* programs : phases) {
    if (programs->empty()) {
      continue;
    }
    const StoredProgram& program = (*programs)[rank.index()];
    std::map<StreamId, Bytes> most;  // one block needs
    std::map<StreamId, Bytes> of_gemms;
    for (const StoredOp& stored : program.ops) {
      const auto block = [&](const auto& op, Phase phase) {
        const Visibility visible{.q_tokens = schedule.contract.attention.local(op.q_tokens),
                                 .k_tokens = schedule.contract.attention.local(op.k_tokens),
                                 .mask = schedule.contract.attention.mask_of(op.mask),
                                 .seq = schedule.contract.requested.end()};
        const Problem& problem = schedule.contract.attention;
        const BlockRows rows{.q = rows_of(problem, Tensor::q, op.q_tokens, op.heads),
                             .k = rows_of(problem, Tensor::k, op.k_tokens, op.kv_heads),
                             .v = rows_of(problem, Tensor::v, op.k_tokens, op.kv_heads)};
        // A larger one is taken beside those that calls may still use.
        const Bytes needed = attention.workspace(rows, visible, phase);
        if (Bytes& of_stream = most[stored.op.stream]; needed > of_stream) {
          of_stream = needed;
          sum += needed;
        }
      };
      if (const auto* forward = op_if<AttentionForward>(stored.op.body)) {
        block(*forward, Phase::forward);
      } else if (const auto* backward = op_if<AttentionBackward>(stored.op.body)) {
        block(*backward, Phase::backward);
      } else if (op_if<Gemm>(stored.op.body) != nullptr) {
        of_gemms[stored.op.stream] = attention.gemm_workspace;
      } else {
        sum += room_of(stored.op.body, schedule, program.buffers);
      }
    }
    sum += sum_of(of_gemms);
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
        if (op->group.size > 1 && !sums_itself(*op, program)) {
          Bytes& most = sums[stored.op.stream];
          most = std::max(most, sums_workspace(stored, program.buffers[op->from.index()]));
        }
      }
    }
  }
  return sum_of(sums) + channels(rank, phases, schedule.mesh.size());
}

}  // namespace spp::runtime::cuda
