// Contention oracle: small shared-network scenarios on SimGrid's flow-level max-min model, with
// every flow's completion time printed as JSON so that another simulator's bandwidth sharing can be
// compared with it. All cases in one program (hence its length), so that one call makes the file.
//   build: g++ -O2 -std=c++17 simgrid_contention.cpp -o simgrid_contention -lsimgrid (SimGrid 3.32
//   or 4.1) usage: simgrid_contention > tests/oracle/contention_oracle.json
// Model settings: network/model CM02, crosstraffic 0, TCP-gamma 1e30 (no TCP window bound), all
// link latencies 0 unless a scenario says otherwise. With zero (or equal) route latencies CM02 is
// plain unweighted max-min fairness; with unequal route latencies a flow's share is weighted by
// 1/latency (RTT unfairness), which is why the main scenarios use 0. One process per scenario (an
// Engine is a singleton), hence the fork.
#include <simgrid/s4u.hpp>
#include <simgrid/version.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

#if SIMGRID_VERSION >= 40000
static sg4::NetZone* full(sg4::Engine& e) { return e.get_netzone_root()->add_netzone_full("z"); }
#else
static sg4::NetZone* full(sg4::Engine&) { return sg4::create_full_zone("z"); }
#endif

struct Link {
  std::string name;
  double bw;
  double lat;
};  // one direction
struct Flow {
  int src, dst;
  double bytes, start;
  int after;
};  // after: index of the flow that must end first, or -1
struct Scenario {
  std::string name, what;
  int hosts;
  std::vector<Link> links;
  std::function<std::vector<int>(int, int)> route;  // link indices from src to dst
  std::vector<Flow> flows;
};

static void run(const Scenario& s, bool last) {
  std::vector<double> begin(s.flows.size(), -1), end(s.flows.size(), -1);
  int argc = 1;
  char a0[] = "oracle";
  char* argv_[] = {a0, nullptr};
  char** argv = argv_;
  sg4::Engine e(&argc, argv);
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/crosstraffic:0");
  sg4::Engine::set_config("network/TCP-gamma:1e30");
  auto* z = full(e);
  std::vector<sg4::Host*> h;
  std::vector<sg4::Link*> l;
  for (int i = 0; i < s.hosts; i++) {
    h.push_back(z->create_host("h" + std::to_string(i), 1e9)->seal());
  }
  for (auto& k : s.links) {
    auto* x = z->create_link(k.name, k.bw);
    x->set_latency(k.lat);
    x->seal();
    l.push_back(x);
  }
  for (int i = 0; i < s.hosts; i++) {
    for (int j = 0; j < s.hosts; j++) {
      if (i != j) {
        std::vector<sg4::LinkInRoute> r;
        for (int k : s.route(i, j)) {
          r.emplace_back(l[k]);
        }
        z->add_route(h[i]->get_netpoint(), h[j]->get_netpoint(), nullptr, nullptr, r, false);
      }
    }
  }
  z->seal();
  // flows linked by `after` form a chain run by one actor
  std::map<int, int> next;
  for (size_t f = 0; f < s.flows.size(); f++) {
    if (s.flows[f].after >= 0) {
      next[s.flows[f].after] = (int)f;
    }
  }
  for (size_t f = 0; f < s.flows.size(); f++) {
    if (s.flows[f].after >= 0) {
      continue;
    }
    sg4::Actor::create("f" + std::to_string(f), h[s.flows[f].src], [&, f]() {
      int c = (int)f;
      while (true) {
        const Flow& x = s.flows[c];
        double now = sg4::Engine::get_clock();
        if (x.start > now) {
          sg4::this_actor::sleep_until(x.start);
        }
        begin[c] = sg4::Engine::get_clock();
        sg4::Comm::sendto(h[x.src], h[x.dst], (uint64_t)x.bytes);
        end[c] = sg4::Engine::get_clock();
        auto it = next.find(c);
        if (it == next.end()) {
          break;
        }
        c = it->second;
      }
    });
  }
  e.run();
  printf("  {\"name\": \"%s\",\n   \"what\": \"%s\",\n   \"hosts\": %d,\n   \"links\": [",
         s.name.c_str(), s.what.c_str(), s.hosts);
  for (size_t k = 0; k < s.links.size(); k++) {
    printf("%s{\"id\": %zu, \"name\": \"%s\", \"bytes_per_s\": %.9g, \"latency_s\": %.9g}",
           k ? ", " : "", k, s.links[k].name.c_str(), s.links[k].bw, s.links[k].lat);
  }
  printf("],\n   \"flows\": [\n");
  for (size_t f = 0; f < s.flows.size(); f++) {
    const Flow& x = s.flows[f];
    printf(
        "     {\"id\": %zu, \"src\": %d, \"dst\": %d, \"bytes\": %.0f, \"not_before_s\": %.9g, "
        "\"after\": %d, \"route\": [",
        f, x.src, x.dst, x.bytes, x.start, x.after);
    auto r = s.route(x.src, x.dst);
    for (size_t k = 0; k < r.size(); k++) {
      printf("%s%d", k ? ", " : "", r[k]);
    }
    printf("], \"begin_s\": %.9g, \"end_s\": %.9g}%s\n", begin[f], end[f],
           f + 1 < s.flows.size() ? "," : "");
  }
  printf("   ],\n   \"makespan_s\": %.9g}%s\n", sg4::Engine::get_clock(), last ? "" : ",");
  fflush(stdout);
}

// `nodes` nodes of `g` GPUs. Each GPU: one NVLink port (out, in). Each node: one NIC (out, in)
// shared by its GPUs. Inside a node: out(src) in(dst). Between nodes: out(src) nic_out(node)
// nic_in(node) in(dst).
static Scenario nodes_of(int nodes, int g, double nv, double nic, double lat_nv, double lat_nic) {
  Scenario s;
  s.hosts = nodes * g;
  for (int i = 0; i < s.hosts; i++) {
    s.links.push_back({"gpu" + std::to_string(i) + "_out", nv, lat_nv});
    s.links.push_back({"gpu" + std::to_string(i) + "_in", nv, lat_nv});
  }
  int base = (int)s.links.size();
  for (int n = 0; n < nodes; n++) {
    s.links.push_back({"nic" + std::to_string(n) + "_out", nic, lat_nic});
    s.links.push_back({"nic" + std::to_string(n) + "_in", nic, lat_nic});
  }
  s.route = [=](int a, int b) {
    if (a / g == b / g) {
      return std::vector<int>{2 * a, 2 * b + 1};
    }
    return std::vector<int>{2 * a, base + 2 * (a / g), base + 2 * (b / g) + 1, 2 * b + 1};
  };
  return s;
}

// Ring attention as a task graph: at each of P-1 steps rank r computes on the block it holds, sends
// that block right and receives the next one from the left, all three overlapped; the next step
// starts when all three have ended.
static void run_ring(const Scenario& s, const std::vector<int>& order, double bytes,
                     const std::vector<double>& comp, bool last) {
  int P = (int)order.size();
  std::vector<double> end(P, -1);
  int argc = 1;
  char a0[] = "oracle";
  char* argv_[] = {a0, nullptr};
  char** argv = argv_;
  sg4::Engine e(&argc, argv);
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/crosstraffic:0");
  sg4::Engine::set_config("network/TCP-gamma:1e30");
  auto* z = full(e);
  std::vector<sg4::Host*> h;
  std::vector<sg4::Link*> l;
  for (int i = 0; i < s.hosts; i++) {
    h.push_back(z->create_host("h" + std::to_string(i), 1e9)->seal());
  }
  for (auto& k : s.links) {
    auto* x = z->create_link(k.name, k.bw);
    x->set_latency(k.lat);
    x->seal();
    l.push_back(x);
  }
  for (int i = 0; i < s.hosts; i++) {
    for (int j = 0; j < s.hosts; j++) {
      if (i != j) {
        std::vector<sg4::LinkInRoute> r;
        for (int k : s.route(i, j)) {
          r.emplace_back(l[k]);
        }
        z->add_route(h[i]->get_netpoint(), h[j]->get_netpoint(), nullptr, nullptr, r, false);
      }
    }
  }
  z->seal();
  static int token;
  for (int r = 0; r < P; r++) {
    sg4::Actor::create("r" + std::to_string(r), h[order[r]], [&, r]() {
      for (int k = 1; k < P; k++) {
        void* in;
        auto snd =
            sg4::Mailbox::by_name(std::to_string((r + 1) % P))->put_async(&token, (uint64_t)bytes);
        auto rcv = sg4::Mailbox::by_name(std::to_string(r))->get_async<void>(&in);
        sg4::this_actor::execute(1e9 * comp[r]);
        snd->wait();
        rcv->wait();
      }
      end[r] = sg4::Engine::get_clock();
    });
  }
  e.run();
  printf("  {\"name\": \"%s\",\n   \"what\": \"%s\",\n   \"hosts\": %d,\n   \"links\": [",
         s.name.c_str(), s.what.c_str(), s.hosts);
  for (size_t k = 0; k < s.links.size(); k++) {
    printf("%s{\"id\": %zu, \"name\": \"%s\", \"bytes_per_s\": %.9g, \"latency_s\": %.9g}",
           k ? ", " : "", k, s.links[k].name.c_str(), s.links[k].bw, s.links[k].lat);
  }
  printf("],\n   \"ring\": {\"steps\": %d, \"block_bytes\": %.0f, \"ranks\": [\n", P - 1, bytes);
  for (int r = 0; r < P; r++) {
    printf("     {\"rank\": %d, \"host\": %d, \"compute_s_per_step\": %.9g, \"route_to_right\": [",
           r, order[r], comp[r]);
    auto t = s.route(order[r], order[(r + 1) % P]);
    for (size_t k = 0; k < t.size(); k++) {
      printf("%s%d", k ? ", " : "", t[k]);
    }
    printf("], \"end_s\": %.9g}%s\n", end[r], r + 1 < P ? "," : "");
  }
  printf("   ]},\n   \"makespan_s\": %.9g}%s\n", sg4::Engine::get_clock(), last ? "" : ",");
  fflush(stdout);
}

int main() {
  std::vector<Scenario> all;
  const double GB = 1e9, MB = 1e6;
  {  // 1: four rings over 2 nodes x 4 GPUs, all crossing the node boundary at once
    Scenario s = nodes_of(2, 4, 450 * GB, 25 * GB, 0, 0);
    s.name = "rings_2x4_shared_nic";
    s.what =
        "2 nodes x 4 GPUs, 450 GB/s NVLink port per GPU, one 25 GB/s full-duplex NIC per node. "
        "Four 2-rank rings "
        "{i, i+4}: one step, every rank sends 64 MB to its partner. 4 flows share each NIC "
        "direction.";
    for (int i = 0; i < 4; i++) {
      s.flows.push_back({i, i + 4, 64 * MB, 0, -1});
      s.flows.push_back({i + 4, i, 64 * MB, 0, -1});
    }
    all.push_back(s);
  }
  {  // 2: one 8-rank ring, 7 steps as per-rank chains
    Scenario s = nodes_of(2, 4, 450 * GB, 25 * GB, 0, 0);
    s.name = "ring8_2x4_one_step_mixed";
    s.what =
        "Same machine, one 8-rank ring 0..7, one step, 64 MB blocks: 6 flows stay inside a node, 2 "
        "cross, one per NIC direction.";
    for (int i = 0; i < 8; i++) {
      s.flows.push_back({i, (i + 1) % 8, 64 * MB, 0, -1});
    }
    all.push_back(s);
  }
  {  // 3: all-to-all over 2 nodes
    Scenario s = nodes_of(2, 4, 450 * GB, 25 * GB, 0, 0);
    s.name = "alltoall_2x4_shared_nic";
    s.what =
        "Same machine, direct 8-rank all-to-all: 56 flows of 8 MB start together; 16 cross in each "
        "direction.";
    for (int i = 0; i < 8; i++) {
      for (int j = 0; j < 8; j++) {
        if (i != j) {
          s.flows.push_back({i, j, 8 * MB, 0, -1});
        }
      }
    }
    all.push_back(s);
  }
  {  // 4: staggered, unequal sizes on the shared NIC: rates change at every arrival and departure
    Scenario s = nodes_of(2, 4, 450 * GB, 25 * GB, 0, 0);
    s.name = "staggered_2x4_shared_nic";
    s.what =
        "Same machine, four cross-node flows of 50, 100, 150, 200 MB started at 0, 1, 2, 3 ms, "
        "plus one 400 MB flow inside "
        "node 0 that shares gpu0_out with the first, and a fifth cross flow into the same receiver "
        "that waits for the first.";
    s.flows.push_back({0, 4, 50 * MB, 0, -1});
    s.flows.push_back({1, 5, 100 * MB, 1e-3, -1});
    s.flows.push_back({2, 6, 150 * MB, 2e-3, -1});
    s.flows.push_back({3, 7, 200 * MB, 3e-3, -1});
    s.flows.push_back({0, 1, 400 * MB, 0, -1});
    s.flows.push_back({0, 7, 80 * MB, 0, 0});
    all.push_back(s);
  }
  auto tree = [&](double lat) {  // 16 hosts, 4 leaves x 4 hosts, 2 uplinks per leaf = 2:1,
                                 // destination-modulo spine choice
    Scenario s;
    s.hosts = 16;
    for (int i = 0; i < 16; i++) {
      s.links.push_back({"h" + std::to_string(i) + "_out", 25 * GB, lat});
      s.links.push_back({"h" + std::to_string(i) + "_in", 25 * GB, lat});
    }
    for (int leaf = 0; leaf < 4; leaf++) {
      for (int sp = 0; sp < 2; sp++) {
        s.links.push_back(
            {"leaf" + std::to_string(leaf) + "_up" + std::to_string(sp), 25 * GB, lat});
        s.links.push_back(
            {"leaf" + std::to_string(leaf) + "_down" + std::to_string(sp), 25 * GB, lat});
      }
    }
    s.route = [](int a, int b) {
      if (a / 4 == b / 4) {
        return std::vector<int>{2 * a, 2 * b + 1};
      }
      int sp = b % 2;
      return std::vector<int>{2 * a, 32 + 4 * (a / 4) + 2 * sp, 32 + 4 * (b / 4) + 2 * sp + 1,
                              2 * b + 1};
    };
    return s;
  };
  {  // 5: fat tree, shift by one leaf
    Scenario s = tree(0);
    s.name = "fattree_2to1_shift4";
    s.what =
        "16 hosts, 4 leaves x 4 hosts, 25 GB/s cables, 2 uplinks per leaf (2:1), spine = dst mod "
        "2. Every host i sends 100 MB to i+4 mod 16.";
    for (int i = 0; i < 16; i++) {
      s.flows.push_back({i, (i + 4) % 16, 100 * MB, 0, -1});
    }
    all.push_back(s);
  }
  {  // 6: fat tree, direct all-to-all
    Scenario s = tree(0);
    s.name = "fattree_2to1_alltoall";
    s.what = "Same fat tree, direct 16-rank all-to-all, 4 MB per pair, 240 flows started together.";
    for (int i = 0; i < 16; i++) {
      for (int j = 0; j < 16; j++) {
        if (i != j) {
          s.flows.push_back({i, j, 4 * MB, 0, -1});
        }
      }
    }
    all.push_back(s);
  }
  {  // 7: fat tree, uneven: two-level bottlenecks, unequal sizes
    Scenario s = tree(0);
    s.name = "fattree_2to1_uneven";
    s.what =
        "Same fat tree, bottlenecks at different levels: incast of 4 into host 4, three flows over "
        "one uplink, one flow inside a leaf.";
    s.flows.push_back({0, 4, 100 * MB, 0, -1});
    s.flows.push_back({1, 4, 60 * MB, 0, -1});
    s.flows.push_back({8, 4, 40 * MB, 0, -1});
    s.flows.push_back({12, 4, 20 * MB, 0, -1});
    s.flows.push_back({2, 6, 100 * MB, 0, -1});
    s.flows.push_back({3, 8, 100 * MB, 0, -1});
    s.flows.push_back({5, 7, 100 * MB, 0, -1});
    s.flows.push_back({9, 13, 100 * MB, 0, -1});
    all.push_back(s);
  }
  {  // 8: latencies on, equal on all competing routes
    Scenario s = nodes_of(2, 4, 450 * GB, 25 * GB, 1e-6, 3e-6);
    s.name = "rings_2x4_with_latency";
    s.what =
        "Scenario rings_2x4_shared_nic with 1 us per NVLink hop and 3 us per NIC hop (8 us per "
        "route): latency is paid first, then bytes flow.";
    for (int i = 0; i < 4; i++) {
      s.flows.push_back({i, i + 4, 64 * MB, 0, -1});
      s.flows.push_back({i + 4, i, 64 * MB, 0, -1});
    }
    all.push_back(s);
  }
  int major, minor, patch;
  sg_version_get(&major, &minor, &patch);
  printf(
      "{\"oracle\": \"SimGrid %d.%d flow-level CM02, max-min\",\n \"settings\": "
      "{\"network/model\": \"CM02\", \"network/crosstraffic\": 0, "
      "\"network/TCP-gamma\": 1e30, \"latency-factor\": 1, \"bandwidth-factor\": 1},\n \"units\": "
      "\"bytes, seconds, decimal GB\",\n \"scenarios\": [\n",
      major, minor);
  fflush(stdout);
  for (const auto& scenario : all) {
    pid_t p = fork();
    if (p == 0) {
      run(scenario, false);
      _exit(0);
    }
    int st = 0;
    waitpid(p, &st, 0);
    if (st) {
      fprintf(stderr, "scenario %s failed\n", scenario.name.c_str());
      return 1;
    }
  }
  struct RingCase {
    std::string name, what;
    std::vector<int> order;
    std::vector<double> comp;
  };
  std::vector<RingCase> rings = {
      {"ring_attention_8_good_order",
       "2 nodes x 4 GPUs as above, one 8-rank ring in node order (2 crossings), 64 MB blocks, "
       "compute 1 ms per step.",
       {0, 1, 2, 3, 4, 5, 6, 7},
       std::vector<double>(8, 1e-3)},
      {"ring_attention_8_bad_order",
       "Same, ring order 0 4 1 5 2 6 3 7: every hop crosses, 4 flows share each NIC direction.",
       {0, 4, 1, 5, 2, 6, 3, 7},
       std::vector<double>(8, 1e-3)},
      {"ring_attention_8_straggler",
       "Node order, compute 0.5 ms per step except rank 2 (4 ms) and rank 5 (3 ms): steps drift "
       "apart.",
       {0, 1, 2, 3, 4, 5, 6, 7},
       {5e-4, 5e-4, 4e-3, 5e-4, 5e-4, 3e-3, 5e-4, 5e-4}},
      {"ring_attention_8_mixed_order",
       "Order 0 1 4 5 2 3 6 7 (4 crossings, 2 per NIC direction), compute 2 ms per step, rank 3 "
       "takes 6 ms.",
       {0, 1, 4, 5, 2, 3, 6, 7},
       {2e-3, 2e-3, 2e-3, 6e-3, 2e-3, 2e-3, 2e-3, 2e-3}}};
  for (size_t i = 0; i < rings.size(); i++) {
    Scenario s = nodes_of(2, 4, 450 * GB, 25 * GB, 0, 0);
    s.name = rings[i].name;
    s.what = rings[i].what;
    pid_t p = fork();
    if (p == 0) {
      run_ring(s, rings[i].order, 64 * MB, rings[i].comp, i + 1 == rings.size());
      _exit(0);
    }
    int st = 0;
    waitpid(p, &st, 0);
    if (st) {
      fprintf(stderr, "scenario %s failed\n", s.name.c_str());
      return 1;
    }
  }
  printf(" ]}\n");
  return 0;
}
