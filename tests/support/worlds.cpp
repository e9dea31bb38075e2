#include "tests/support/worlds.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace spp::test {
namespace {

/// The same latency for all kinds of communication, and all of the nominal rate.
TransportSpec transport(std::string medium, Seconds latency, Seconds hop) {
  TransportSpec spec{.name = "plain " + medium, .medium = medium};
  for (auto& segments : spec.segments) {
    segments.push_back({.up_to = Bytes(std::numeric_limits<std::int64_t>::max()),
                        .latency = {.value = latency},
                        .fraction = {.value = 1}});
  }
  spec.hop_latency.value = hop;
  return spec;
}

int index_of(const std::vector<int>& order, int rank) {
  return static_cast<int>(std::ranges::find(order, rank) - order.begin());
}

/// The rank at a place of the ring.
Rank at(const RingOfSteps& ring, int place) {
  const int wrapped = place % ring.ranks;
  return Rank(ring.order.empty() ? wrapped : ring.order.at(static_cast<std::size_t>(wrapped)));
}

constexpr std::int64_t bytes_per_token = 4000;
constexpr int head_dim = 1000;

}  // namespace

MachineSpec machine(const PlainMachine& plain) {
  MachineSpec m{.name = "plain machine"};
  m.gpus_per_node.value = plain.gpus_per_node;
  const bool cpu = plain.cpu_share > 0;
  m.intra = transport(plain.sockets > 0 ? "pcie"
                      : cpu             ? "host"
                                        : "nvlink",
                      plain.latency, plain.hop);
  m.intra_rate = plain.port;
  m.sockets.value = std::max(1, plain.sockets);
  if (plain.sockets > 0) {
    m.host_bridge = Sourced<Bandwidth>{.value = plain.bridge};
    m.socket_link = Sourced<Bandwidth>{.value = plain.socket_link};
  }
  InterSpec inter{.transport = transport("network", plain.nic_latency, plain.nic_hop)};
  inter.nics.value = plain.gpus_per_node / plain.gpus_per_nic;
  inter.rate_per_nic.value = plain.nic;
  inter.gpus_per_nic.value = plain.gpus_per_nic;
  if (cpu) {
    const double across = plain.network_cpu_share;
    m.intra.cpu_share = Sourced<double>{.value = plain.cpu_share};
    inter.transport.cpu_share = Sourced<double>{.value = across > 0 ? across : plain.cpu_share};
  }
  if (plain.cores > 0) {
    m.host = HostSpec{.cores = {.value = plain.cores}, .nodes = plain.nodes_on_cores};
  }
  if (plain.ranks_per_device > 0) {
    m.intra.medium = "device";
    m.device = SharedDeviceSpec{.ranks = {.value = plain.ranks_per_device},
                                .split = plain.split,
                                .memory_bandwidth = {.value = plain.device_memory},
                                .l2 = Sourced<Bytes>{.value = plain.l2}};
  }
  m.inter = std::move(inter);
  if (plain.nodes_per_leaf > 0) {
    m.fabric.kind = "fat-tree";
    m.fabric.nodes_per_leaf = Sourced<std::int64_t>{.value = plain.nodes_per_leaf};
    m.fabric.oversubscription.value = plain.oversubscription;
  }
  return m;
}

PlainMachine oracle_machine() { return {.gpus_per_node = 4, .gpus_per_nic = 4}; }

PlainMachine star_machine(Bandwidth port, Seconds latency) {
  return {.gpus_per_node = 1, .port = port, .nic = port, .nic_latency = latency};
}

Problem round_problem(std::int64_t tokens, int heads) {
  return {.seq = tokens,
          .q_heads = heads,
          .kv_heads = heads,
          .head_dim = head_dim,
          .mask = {.kind = MaskKind::full},
          .dtype = DType::fp32};
}

Schedule hand_made(int ranks, const Problem& problem, WriteProgram write) {
  Schedule s;
  s.contract.attention = s.contract.requested = problem;
  s.mesh = Mesh({{.name = "ring", .size = ranks}});
  s.streams = {"compute", "first", "second"};
  s.program = [problem, write = std::move(write)](Rank rank) {
    ProgramBuilder b(problem, rank);
    write(b);
    return b.finish();
  };
  return s;
}

Schedule ring_of_steps(const RingOfSteps& ring) {
  const Problem problem = round_problem(ring.tokens * ring.ranks);
  Schedule s = hand_made(ring.ranks, problem, [ring](ProgramBuilder& b) {
    const TokenSet block({.begin = 0, .count = ring.tokens});
    const HeadRange head{0, 1};
    const BufferId q = b.input("q", Tensor::q, block, head);
    const BufferId k[2] = {b.input("k0", Tensor::k, block, head),
                           b.scratch("k1", Tensor::k, ring.tokens, 1)};
    const BufferId out = b.scratch("out", Tensor::out, ring.tokens, 1);
    const BufferId lse = b.scratch("lse", Tensor::lse, ring.tokens, 1);
    const int place = ring.order.empty() ? b.rank().value : index_of(ring.order, b.rank().value);
    const Rank right = at(ring, place + 1);
    const Rank left = at(ring, place + ring.ranks - 1);
    b.loop(ring.steps, [=](std::int64_t step, OpList& ops) {
      const BufferId held = k[step % 2];
      ops.push_back(
          {first_stream,
           Exchange{.to = right, .from = left, .send = {held}, .receive = {k[1 - step % 2]}}});
      if (ring.compute) {
        ops.push_back({compute_stream, AttentionForward{.q = q,
                                                        .k = held,
                                                        .v = held,
                                                        .out = out,
                                                        .lse = lse,
                                                        .q_tokens = block,
                                                        .k_tokens = block,
                                                        .heads = head,
                                                        .kv_heads = head}});
      }
    });
  });
  if (ring.order.empty()) {
    s.symmetry = {{.axis = "ring", .under = AxisMoves::rotations}};
  }
  return s;
}

Schedule one_all_to_all(int ranks, std::int64_t tokens) {
  const Problem problem = round_problem(tokens * ranks, ranks);
  Schedule s;
  s.contract.attention = s.contract.requested = problem;
  s.mesh = Mesh({{.name = "ulysses", .size = ranks}});
  s.streams = {"compute", "ulysses"};
  s.symmetry = {{.axis = "ulysses", .under = AxisMoves::permutations}};
  s.program = [problem, tokens, mesh = s.mesh,
               split = HeadSplit(problem, ranks, HeadPolicy::divide)](Rank rank) {
    ProgramBuilder b(problem, rank);
    const TokenSet home({.begin = rank.value * tokens, .count = tokens});
    const TokenSet all({.begin = 0, .count = problem.seq});
    const HeadRange mine{rank.value, rank.value + 1};
    const BufferId from = b.input("q", Tensor::q, home, {0, problem.q_heads});
    const BufferId to = b.scratch("gathered", Tensor::q, problem.seq, 1);
    b.op(first_stream, Collective{.kind = CollectiveKind::all_to_all,
                                  .group = mesh.group(rank, 0),
                                  .from = from,
                                  .to = to,
                                  .deal = HeadDeal{.direction = HeadDirection::scatter_heads,
                                                   .split = split,
                                                   .tokens = tokens},
                                  .to_tokens = all,
                                  .to_heads = mine});
    return b.finish();
  };
  return s;
}

sim::SimulationCosts every_kernel(Seconds seconds) {
  return {.kernel = [seconds](const Kernel&, const Shapes&) { return seconds; }};
}

sim::SimulationCosts by_rank(std::vector<Seconds> seconds) {
  return {.kernel = [seconds = std::move(seconds)](const Kernel&, const Shapes& shapes) {
    return seconds.at(shapes.rank.index());
  }};
}

static_assert(bytes_per_token == head_dim * 4);

}  // namespace spp::test
