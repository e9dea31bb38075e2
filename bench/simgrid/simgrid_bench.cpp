// Speed of a peer, to hold bench/sim_bench.cpp against: sequence-parallel traffic patterns on
// SimGrid's flow-level (max-min) network model.
//   build: g++ -O2 -std=c++17 simgrid_bench.cpp -o simgrid_bench -lsimgrid      (SimGrid 3.32
//   or 4.1) usage: simgrid_bench PATTERN P TOPO [--bytes=N] [--comp=SEC] [--jitter=FRACTION]
//   [--lat=SEC] [simgrid --cfg=...]
// PATTERN  ring      P ranks, P-1 steps; a step = send block right + receive block from left +
// compute, all overlapped
//          ag        ring all-gather: the same without compute
//          a2a       direct all-to-all: each rank starts its P-1 sends at once and waits for all of
//          them a2apair   pairwise all-to-all: P-1 rounds, one send and one receive in flight per
//          rank
// TOPO     flat      one star: each rank has a full-duplex 50 GB/s port
//          node8     nodes of 8 ranks: 450 GB/s port per rank, 400 GB/s full-duplex uplink shared
//          by the node fattree   two-level fat tree, leaves of 8 ports, 4 uplinks per leaf (2:1),
//          50 GB/s cables
// Prints one JSON line: simulated seconds, wall seconds, peak RSS, point-to-point messages per wall
// second.
#include <simgrid/s4u.hpp>
#include <simgrid/version.h>

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

static double bytes_ = 64e6, comp_ = 1e-3, jitter_ = 0, lat_ = 1e-6;
static std::vector<sg4::Host*> hosts;
static std::vector<sg4::Mailbox*> boxes;
static int token;

static double frac(uint64_t a, uint64_t b) {  // deterministic value in [-1, 1)
  uint64_t x = a * 0x9E3779B97F4A7C15ULL + b * 0xBF58476D1CE4E5B9ULL + 0x94D049BB133111EBULL;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 29;
  x *= 0x94D049BB133111EBULL;
  x ^= x >> 32;
  return static_cast<double>(x >> 11) * (2.0 / 9007199254740992.0) - 1.0;
}

static void ring_rank(int r, int P, bool compute) {
  for (int s = 1; s < P; s++) {
    void* in;
    sg4::CommPtr snd = boxes[(r + 1) % P]->put_async(&token, (uint64_t)bytes_);
    sg4::CommPtr rcv = boxes[r]->get_async<void>(&in);
    if (compute) {
      sg4::this_actor::execute(1e9 * comp_ * (1 + jitter_ * frac(r, s)));
    }
    snd->wait();
    rcv->wait();
  }
}

static void pair_rank(int r, int P) {
  for (int s = 1; s < P; s++) {
    sg4::Comm::sendto(hosts[r], hosts[(r + s) % P],
                      (uint64_t)(bytes_ * (1 + jitter_ * frac(r, s))));
  }
}

static void direct_rank(int r, int P) {
  std::vector<sg4::CommPtr> out;
  out.reserve(P - 1);
  for (int s = 1; s < P; s++) {
    out.push_back(sg4::Comm::sendto_async(hosts[r], hosts[(r + s) % P],
                                          (uint64_t)(bytes_ * (1 + jitter_ * frac(r, s)))));
  }
  for (auto& c : out) {
    c->wait();
  }
}

// SimGrid 4 builds zones under a parent; SimGrid 3 builds them first and attaches them afterwards.
#if SIMGRID_VERSION >= 40000
static sg4::NetZone* star(sg4::NetZone* parent, const std::string& n) {
  return (parent ? parent : sg4::Engine::get_instance()->get_netzone_root())->add_netzone_star(n);
}
#else
static sg4::NetZone* star(sg4::NetZone* parent, const std::string& n) {
  auto* z = sg4::create_star_zone(n);
  if (parent) {
    z->set_parent(parent);
  }
  return z;
}
#endif

static void build(const std::string& topo, int P) {
  auto add = [](sg4::NetZone* z, const std::string& n, double bw) {
    sg4::Host* h = z->create_host(n, 1e9)->seal();
    auto* l = z->create_split_duplex_link("l" + n, bw);
    l->set_latency(lat_)->seal();
    z->add_route(h->get_netpoint(), nullptr, nullptr, nullptr,
                 {{l, sg4::LinkInRoute::Direction::UP}}, true);
    hosts.push_back(h);
  };
  if (topo == "flat") {
    auto* z = star(nullptr, "z");
    for (int i = 0; i < P; i++) {
      add(z, "g" + std::to_string(i), 50e9);
    }
    z->seal();
  } else if (topo == "node8") {
    auto* root = star(nullptr, "root");
    for (int n = 0; n < P / 8; n++) {
      auto* z = star(root, "n" + std::to_string(n));
      auto* gw = z->create_router("gw" + std::to_string(n));
      for (int i = 0; i < 8; i++) {
        add(z, "g" + std::to_string(8 * n + i), 450e9);
      }
      z->add_route(gw, nullptr, nullptr, nullptr, std::vector<sg4::LinkInRoute>{}, true);
      z->seal();
      auto* l = root->create_split_duplex_link("nic" + std::to_string(n), 400e9);
      l->set_latency(lat_)->seal();
      root->add_route(z->get_netpoint(), nullptr, gw, nullptr,
                      {{l, sg4::LinkInRoute::Direction::UP}}, true);
    }
    root->seal();
  } else {
#if SIMGRID_VERSION >= 40000
    auto* root = sg4::Engine::get_instance()->get_netzone_root();
    auto* z = root->add_netzone_fatTree("ft", 2, {8, (unsigned)P / 8}, {1, 4}, {1, 1}, 50e9, lat_,
                                        sg4::Link::SharingPolicy::SPLITDUPLEX);
    z->set_host_cb([](sg4::NetZone* zone, const std::vector<unsigned long>&, unsigned long id) {
      hosts.push_back(zone->add_host("g" + std::to_string(id), 1e9));
      return hosts.back();
    });
#else
    auto* root = sg4::create_full_zone("root");
    auto host = [](sg4::NetZone* z, const std::vector<unsigned long>&, unsigned long id) {
      hosts.push_back(z->create_host("g" + std::to_string(id), 1e9)->seal());
      return std::pair<simgrid::kernel::routing::NetPoint*, simgrid::kernel::routing::NetPoint*>(
          hosts.back()->get_netpoint(), nullptr);
    };
    sg4::FatTreeParams par{2, {8, (unsigned)P / 8}, {1, 4}, {1, 1}};
    auto* z = sg4::create_fatTree_zone("ft", root, par, sg4::ClusterCallbacks(host), 50e9, lat_,
                                       sg4::Link::SharingPolicy::SPLITDUPLEX);
#endif
    z->seal();
    root->seal();
  }
}

int main(int argc, char** argv) {
  auto t0 = std::chrono::steady_clock::now();
  sg4::Engine e(&argc, argv);
  if (argc < 4) {
    fprintf(
        stderr,
        "usage: %s ring|ag|a2a|a2apair P flat|node8|fattree [--bytes= --comp= --jitter= --lat=]\n",
        argv[0]);
    return 2;
  }
  std::string pat = argv[1], topo = argv[3];
  int P = atoi(argv[2]);
  for (int i = 4; i < argc; i++) {
    if (!strncmp(argv[i], "--bytes=", 8)) {
      bytes_ = atof(argv[i] + 8);
    } else if (!strncmp(argv[i], "--comp=", 7)) {
      comp_ = atof(argv[i] + 7);
    } else if (!strncmp(argv[i], "--jitter=", 9)) {
      jitter_ = atof(argv[i] + 9);
    } else if (!strncmp(argv[i], "--lat=", 6)) {
      lat_ = atof(argv[i] + 6);
    } else {
      fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  sg4::Engine::set_config("network/model:CM02");  // plain max-min: no TCP correction factors
  sg4::Engine::set_config("network/crosstraffic:0");
  sg4::Engine::set_config("network/TCP-gamma:1e30");
  build(topo, P);
  for (int r = 0; r < P; r++) {
    boxes.push_back(sg4::Mailbox::by_name(std::to_string(r)));
  }
  for (int r = 0; r < P; r++) {
    std::string n = "r" + std::to_string(r);
    if (pat == "ring") {
      sg4::Actor::create(n, hosts[r], ring_rank, r, P, true);
    } else if (pat == "ag") {
      sg4::Actor::create(n, hosts[r], ring_rank, r, P, false);
    } else if (pat == "a2a") {
      sg4::Actor::create(n, hosts[r], direct_rank, r, P);
    } else if (pat == "a2apair") {
      sg4::Actor::create(n, hosts[r], pair_rank, r, P);
    } else {
      fprintf(stderr, "unknown pattern %s\n", pat.c_str());
      return 2;
    }
  }
  auto t1 = std::chrono::steady_clock::now();
  e.run();
  auto t2 = std::chrono::steady_clock::now();
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  std::chrono::duration<double> setup = t1 - t0, run = t2 - t1;
  double msgs = (double)P * (P - 1);
  printf(
      "{\"pattern\":\"%s\",\"P\":%d,\"topo\":\"%s\",\"bytes\":%.0f,\"comp_s\":%g,\"jitter\":%g,"
      "\"sim_s\":%.9g,"
      "\"setup_s\":%.4f,\"run_s\":%.4f,\"cpu_s\":%.4f,\"peak_rss_mib\":%.1f,\"messages\":%.0f,"
      "\"msgs_per_s\":%.0f}\n",
      pat.c_str(), P, topo.c_str(), bytes_, comp_, jitter_, sg4::Engine::get_clock(), setup.count(),
      run.count(),
      static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
          static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6,
      static_cast<double>(u.ru_maxrss) / 1024, msgs, msgs / run.count());
  return 0;
}
