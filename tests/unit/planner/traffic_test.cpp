// Where a plan's bytes go: what axes send adds up to the prediction, and links carry what a hand
// counts.
#include "planner/traffic.hpp"

#include "machine/machine.hpp"
#include "planner/step.hpp"
#include "tests/support/catalog.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"

#include <algorithm>

using namespace spp;

namespace {

sim::Cluster nodes_of(const std::string& machine, int nodes) {
  const MachineSpec spec = test::catalog().machine(machine, "test");
  const int gpus = static_cast<int>(spec.gpus_per_node.value) * nodes;
  return {spec, nodes, gpus};
}

Request call_on(const sim::Cluster& cluster) {
  Request r;
  r.problem = {.seq = 65536, .q_heads = 32, .kv_heads = 32, .head_dim = 128};
  r.cluster = &cluster;
  r.gpus = cluster.gpus();
  r.memory = Bytes(72'000'000'000);
  return r;
}

Request step_on(const sim::Cluster& cluster, std::string_view model) {
  Request r = call_on(cluster);
  r.model = ModelLibrary(test::source_path("models")).load(model, "test");
  r.problem.q_heads = r.model->q_heads;
  r.problem.kv_heads = r.model->kv_heads;
  r.problem.head_dim = r.model->head_dim;
  r.phase = StepPhase::train;
  return r;
}

const AxisTraffic& along(StepAxis axis, const Traffic& traffic) {
  const auto at = std::ranges::find(traffic.axes, axis, &AxisTraffic::axis);
  REQUIRE(at != traffic.axes.end());
  return *at;
}

double bytes_on(sim::LinkKind kind, const std::vector<LinkTraffic>& links) {
  const auto at =
      std::ranges::find_if(links, [&](const LinkTraffic& l) { return l.link.kind == kind; });
  return at != links.end() ? at->bytes : 0;
}

double sum(const SentBytes::ByKind& sent) {
  double bytes = 0;
  for (const Bytes b : sent) {
    bytes += b.as_double();
  }
  return bytes;
}

/// What every plan's traffic keeps to.
Traffic lawful(const Request& request, const Candidate& c) {
  Traffic traffic = traffic_of(request, c).value();
  SentBytes::ByKind all{};
  for (const AxisTraffic& axis : traffic.axes) {
    CHECK(axis.gpus.size() > 1);
    CHECK(axis.groups * static_cast<int>(axis.gpus.size()) == c.plan.world());
    for (std::size_t kind = 0; kind < comm_kinds; ++kind) {
      all[kind] += axis.sent[kind];
    }
  }
  CHECK(all == c.predicted.sent.by_kind());
  for (const LinkTraffic& link : traffic.links) {
    double bytes = 0;
    for (const AxisTraffic& axis : traffic.axes) {
      bytes += bytes_on(link.link.kind, axis.links);
    }
    CHECK(bytes == Approx(link.bytes).epsilon(1e-9));
    CHECK(link.busy() <= traffic.links.front().busy());
  }
  return traffic;
}

}  // namespace

TEST_CASE("of a plan in one node, a GPU's port carries all that the GPU sends") {
  const sim::Cluster node = nodes_of("dgx-h100", 1);
  Request request = step_on(node, "llama-3.1-8b");
  request.step = {.tensor = 2, .global_batch = 4, .zero = 1};
  const Candidate c = evaluate(request, default_step(request)).candidate;
  const Traffic traffic = lawful(request, c);
  CHECK(along(StepAxis::tensor, traffic).gpus == std::vector{0, 1});
  CHECK(along(StepAxis::tensor, traffic).reach == Reach::node);
  REQUIRE(traffic.links.size() == 1);
  CHECK(traffic.links[0].name == "node 0 gpu 0 out");
  CHECK(traffic.links[0].bytes == Approx(sum(c.predicted.sent.by_kind())).epsilon(1e-9));
}

TEST_CASE("a ring over nodes goes by each card once, and by the ports of all GPUs but one") {
  const sim::Cluster nodes = nodes_of("dgx-h100", 2);
  Request request = call_on(nodes);
  request.fixed.ring = 16;
  const Candidate c = evaluate(request, default_plan(request)).candidate;
  const Traffic traffic = lawful(request, c);
  const AxisTraffic& ring = along(StepAxis::ring, traffic);
  CHECK(ring.reach == Reach::nodes);
  CHECK(ring.gpus.size() == 16);
  // The last GPU of the node sends all that it sends to the next node.
  const double sent = sum(ring.sent);
  CHECK(bytes_on(sim::LinkKind::nic_out, traffic.links) == Approx(sent).epsilon(1e-9));
  CHECK(bytes_on(sim::LinkKind::gpu_out, traffic.links) == Approx(sent).epsilon(1e-9));
  CHECK(traffic.links.front().name == "node 0 nic 7 out");
}

TEST_CASE("an all-to-all over two nodes sends as much out of the node as its peers there get") {
  const sim::Cluster nodes = nodes_of("dgx-h100", 2);
  Request request = call_on(nodes);
  request.fixed.ulysses = 16;
  const Candidate c = evaluate(request, default_plan(request)).candidate;
  const Traffic traffic = lawful(request, c);
  const double sent = sum(along(StepAxis::ulysses, traffic).sent);
  CHECK(bytes_on(sim::LinkKind::nic_out, traffic.links) == Approx(sent * 8 / 15).epsilon(1e-6));
  CHECK(bytes_on(sim::LinkKind::gpu_out, traffic.links) == Approx(sent * 7 / 15).epsilon(1e-6));
}

TEST_CASE("experts of ranks that are dealt out over nodes send over the network") {
  const sim::Cluster nodes = nodes_of("dgx-h100", 2);
  Request request = step_on(nodes, "mixtral-8x7b");
  request.phase = StepPhase::prefill;
  request.fixed = {.ulysses = 8, .ring = 2};
  request.step.expert = 8;
  const auto reach = [&](RankOrder order) {
    request.fixed.rank_order = order;
    const Candidate c = evaluate(request, default_step(request)).candidate;
    return along(StepAxis::expert, lawful(request, c)).reach;
  };
  CHECK(reach(RankOrder::block) == Reach::node);
  CHECK(reach(RankOrder::cyclic) == Reach::nodes);
}

TEST_CASE("on PCIe a ring crosses sockets once, and says so") {
  const sim::Cluster node = nodes_of("8xl20-pcie", 1);
  Request request = call_on(node);
  request.fixed.ring = 8;
  const Candidate c = evaluate(request, default_plan(request)).candidate;
  const Traffic traffic = lawful(request, c);
  const AxisTraffic& ring = along(StepAxis::ring, traffic);
  CHECK(ring.reach == Reach::sockets);
  CHECK(bytes_on(sim::LinkKind::socket_out, ring.links) == Approx(sum(ring.sent)).epsilon(1e-9));
}

TEST_CASE("StarTrail's teams and rings have their own bytes, however short the rings are") {
  const sim::Cluster nodes = nodes_of("dgx-h100", 2);
  for (const int team : {2, 4}) {  // sub-rings of four, of one
    Request request = call_on(nodes);
    request.fixed.ring = 16;
    request.fixed.own[&parameters::team] = team;
    const Candidate c = evaluate(request, default_plan(request)).candidate;
    const Traffic traffic = lawful(request, c);
    CHECK(along(StepAxis::team, traffic).gpus.size() == static_cast<std::size_t>(team));
    CHECK(along(StepAxis::ring, traffic).gpus.size() == 16);
  }
}

TEST_CASE("stages, experts and weights send along axes of their own") {
  const sim::Cluster nodes = nodes_of("dgx-h100", 4);
  Request request = step_on(nodes, "mixtral-8x7b");
  request.step = {
      .tensor = 2, .pipeline = 2, .data = 4, .expert = 4, .global_batch = 16, .zero = 1};
  const Candidate c = evaluate(request, default_step(request)).candidate;
  const Traffic traffic = lawful(request, c);
  CHECK(along(StepAxis::stages, traffic).gpus == std::vector{0, 16});
  CHECK(along(StepAxis::stages, traffic).reach == Reach::nodes);
  CHECK(along(StepAxis::expert, traffic).gpus == std::vector{0, 1, 2, 3});
  CHECK(along(StepAxis::expert, traffic).reach == Reach::node);
  CHECK(along(StepAxis::weights, traffic).gpus.size() == 8);
  CHECK(sum(along(StepAxis::expert_weights, traffic).sent) > 0);
}

TEST_CASE("of a pipeline the node in the middle is looked at, which sends both ways") {
  const sim::Cluster nodes = nodes_of("cloud-a100-ethernet", 4);
  Request request = step_on(nodes, "llama-3.1-8b");
  request.problem.seq = 8192;
  request.memory = Bytes(2'000'000'000'000);
  request.step = {.pipeline = 8, .data = 4, .global_batch = 128, .zero = 1};
  StepPlan plan = default_step(request);
  plan.order = "zero-bubble";
  const Candidate c = evaluate(request, plan).candidate;
  const Traffic traffic = lawful(request, c);
  // 32 micro-batches of 4 replicas, forward from the node's second stage, back from its first one.
  const double message = 8192 * 4096 * 2.0;
  CHECK(bytes_on(sim::LinkKind::nic_out, along(StepAxis::stages, traffic).links) ==
        Approx(2 * 4 * 32 * message));
  CHECK(traffic.links.front().name == "node 2 nic 0 out");
  // Stages wait longer for that card than for each other.
  CHECK(c.predicted.parts_s[StepPart::pp] > c.predicted.parts_s[StepPart::bubble]);
}

TEST_CASE("what waits for sums over copies on other nodes waits between nodes") {
  const sim::Cluster nodes = nodes_of("cloud-a100-ethernet", 2);
  Request request = step_on(nodes, "llama-3.1-8b");
  request.problem.seq = 4096;
  request.memory = Bytes(2'000'000'000'000);
  request.step = {.data = 16, .global_batch = 16, .zero = 3, .zero_group = 8};
  const Candidate c = evaluate(request, default_step(request)).candidate;
  const Traffic traffic = lawful(request, c);
  CHECK(along(StepAxis::weights, traffic).reach != Reach::nodes);
  CHECK(along(StepAxis::replicas, traffic).reach == Reach::nodes);
  CHECK(c.predicted.parts[static_cast<std::size_t>(Component::inter_comm)] > 0);
}

TEST_CASE("an oversubscribed leaf carries what leaves all its nodes") {
  MachineSpec spec = test::catalog().machine("dgx-h100", "test");
  spec.fabric.kind = "fat-tree";
  spec.fabric.oversubscription.value = 2;
  spec.fabric.nodes_per_leaf = Sourced<std::int64_t>{.value = 2};
  const sim::Cluster nodes(spec, 4, 32);
  Request request = call_on(nodes);
  request.fixed.ring = 32;
  const Candidate c = evaluate(request, default_plan(request)).candidate;
  const Traffic traffic = lawful(request, c);
  CHECK(bytes_on(sim::LinkKind::leaf_out, traffic.links) ==
        Approx(sum(along(StepAxis::ring, traffic).sent)).epsilon(1e-9));
}

TEST_CASE("one GPU has no traffic") {
  const sim::Cluster node = nodes_of("dgx-h100", 1);
  Request request = call_on(node);
  request.gpus = 1;
  const Candidate c = evaluate(request, default_plan(request)).candidate;
  const Traffic traffic = lawful(request, c);
  CHECK(traffic.axes.empty());
  CHECK(traffic.links.empty());
}
