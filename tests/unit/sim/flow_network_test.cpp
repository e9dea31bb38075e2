// Mirrors one header, hence one file.
#include "sim/flow_network.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

using namespace spp;
using namespace spp::sim;
using Catch::Approx;

namespace {

struct Ended {
  double at;
  std::uint64_t token;
  friend bool operator==(const Ended&, const Ended&) = default;
};

std::vector<Ended> run_to_end(FlowNetwork& network) {
  std::vector<Ended> result;
  while (network.active_flows() > 0) {
    const Seconds t = network.next_completion();
    REQUIRE(std::isfinite(t.count()));
    for (const Completion& completion : network.advance_to(t)) {
      result.push_back({t.count(), completion.token});
    }
  }
  return result;
}

RouteId route(FlowNetwork& network, std::initializer_list<LinkId> links,
              double cap = FlowNetwork::unlimited) {
  std::vector<Usage> usages;
  for (const LinkId link : links) {
    usages.push_back({.link = link});
  }
  return network.add_route(usages, cap);
}

/// A random network under random traffic that knows what it started, for checks from outside.
struct Scene {
  struct Kind {
    RouteId id;
    std::vector<Usage> usages;
    double cap;
  };
  struct Running {
    FlowId flow;
    std::size_t kind;
  };

  FlowNetwork network;
  std::vector<LinkId> links;
  std::vector<double> capacities;
  std::vector<Kind> kinds;
  std::vector<Running> running;
  std::mt19937_64 random;

  Scene(std::uint64_t seed, double staleness, std::size_t link_count, std::size_t kind_count)
      : network({.rate_staleness = staleness}), random(seed) {
    for (std::size_t i = 0; i < link_count; ++i) {
      capacities.push_back(1.0 + static_cast<double>(below(8)));  // small integers: many ties
      links.push_back(network.add_link(capacities.back()));
    }
    for (std::size_t i = 0; i < kind_count; ++i) {
      Kind kind{
          .id = {},
          .usages = {},
          .cap = below(4) == 0 ? 0.25 * static_cast<double>(1 + below(6)) : FlowNetwork::unlimited};
      for (std::size_t n = 1 + below(std::min<std::size_t>(4, link_count));
           kind.usages.size() < n;) {
        const LinkId link = links[below(link_count)];
        if (std::ranges::find(kind.usages, link, &Usage::link) == kind.usages.end()) {
          kind.usages.push_back({.link = link, .coefficient = below(5) == 0 ? 1.5 : 1.0});
        }
      }
      kind.id = network.add_route(kind.usages, kind.cap);
      kinds.push_back(kind);
    }
  }

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random() % n); }

  void start() {
    const std::size_t kind = below(kinds.size());
    const double volume = below(3) == 0 ? 4.0 : 1.0 + static_cast<double>(below(1000)) / 100;
    running.push_back({network.start({.route = kinds[kind].id, .volume = volume}), kind});
  }

  void advance() {
    for (const Completion& completion : network.advance_to(network.next_completion())) {
      running.erase(std::ranges::find(running, completion.flow, &Running::flow));
    }
  }

  /// No link above its capacity, no flow above its cap.
  bool is_feasible() {
    std::vector<double> load(links.size());
    bool caps_hold = true;
    for (const Running& r : running) {
      const double rate = network.rate(r.flow);
      caps_hold = caps_hold && rate <= kinds[r.kind].cap;
      for (const Usage& usage : kinds[r.kind].usages) {
        load[usage.link.index()] += usage.coefficient * rate;
      }
    }
    for (std::size_t i = 0; i < links.size(); ++i) {
      if (load[i] > capacities[i] * (1 + 1e-9)) {
        return false;
      }
    }
    return caps_hold;
  }

  /// Every flow is at its cap or crosses a saturated link on which no rate is above its own.
  bool is_max_min() {
    std::vector<double> load(links.size());
    std::vector<double> highest(links.size());
    for (const Running& r : running) {
      for (const Usage& usage : kinds[r.kind].usages) {
        const double rate = network.rate(r.flow);
        load[usage.link.index()] += usage.coefficient * rate;
        highest[usage.link.index()] = std::max(highest[usage.link.index()], rate);
      }
    }
    return std::ranges::all_of(running, [&](const Running& r) {
      const double rate = network.rate(r.flow) * (1 + 1e-9);
      return rate >= kinds[r.kind].cap ||
             std::ranges::any_of(kinds[r.kind].usages, [&](const Usage& usage) {
               const std::size_t i = usage.link.index();
               return load[i] >= capacities[i] * (1 - 1e-9) && rate >= highest[i];
             });
    });
  }
};

/// The jitter of bench/: a value in [-1, 1) for a pair.
double frac(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15ULL + b * 0xBF58476D1CE4E5B9ULL + 0x94D049BB133111EBULL;
  x = (x ^ (x >> 31)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 29)) * 0x94D049BB133111EBULL;
  return static_cast<double>((x ^ (x >> 32)) >> 11) * (2.0 / 9007199254740992.0) - 1.0;
}

/// End times, by flow, of a direct all-to-all over a star of 50 GB/s ports; sizes differ by 5 %.
std::vector<double> all_to_all(std::uint32_t ports, double staleness) {
  FlowNetwork network({.rate_staleness = staleness});
  std::vector<LinkId> out;
  std::vector<LinkId> in;
  for (std::uint32_t i = 0; i < ports; ++i) {
    out.push_back(network.add_link(50e9));
    in.push_back(network.add_link(50e9));
  }
  for (std::uint32_t from = 0; from < ports; ++from) {
    for (std::uint32_t step = 1; step < ports; ++step) {
      network.start({.route = route(network, {out[from], in[(from + step) % ports]}),
                     .volume = 64e6 * (1 + 0.05 * frac(from, step)),
                     .token = from * (ports - 1) + step - 1});
    }
  }
  std::vector<double> end(ports * (ports - 1));
  for (const Ended& ended : run_to_end(network)) {
    end[ended.token] = ended.at;
  }
  return end;
}

}  // namespace

TEST_CASE("a flow alone takes its slowest link, or its cap") {
  FlowNetwork network;
  const LinkId wide = network.add_link(10);
  const LinkId narrow = network.add_link(4);
  // 12 at min(10, 4) ends at 3; 12 at the cap 1.5 ends at 8.
  const FlowId flow =
      network.start({.route = route(network, {wide, narrow}), .volume = 12, .token = 7});
  CHECK(network.rate(flow) == 4);
  CHECK(network.load(wide) == 4);
  CHECK(run_to_end(network) == std::vector<Ended>{{3, 7}});

  FlowNetwork capped;
  const LinkId link = capped.add_link(10);
  capped.start({.route = route(capped, {link}, 1.5), .volume = 12, .token = 7});
  CHECK(run_to_end(capped) == std::vector<Ended>{{8, 7}});
}

TEST_CASE("flows that share a link share it equally, and the rest gets what a departure leaves") {
  // C = 6. Volumes 4, 4, 12 on one route: 2 each until t = 2 (two end; 8 left of the third), then
  // 6 alone: 8/6 more. A flow of 3 that starts at t = 2 instead shares 3:3 and ends at 3, and the
  // third (5 left then, at 6) at 3 + 5/6.
  for (const bool with_late : {false, true}) {
    FlowNetwork network;
    const LinkId link = network.add_link(6);
    const RouteId r = route(network, {link});
    for (const double volume : {4.0, 4.0, 12.0}) {
      network.start({.route = r, .volume = volume, .token = static_cast<std::uint64_t>(volume)});
    }
    CHECK(network.next_completion().count() == 2);
    CHECK(network.advance_to(Seconds(2)).size() == 2);
    if (with_late) {
      network.start({.route = r, .volume = 3, .token = 3});
    }
    const auto ended = run_to_end(network);
    CHECK(ended.back().token == 12);
    CHECK(ended.back().at == Approx(with_late ? 3 + 5. / 6 : 2 + 8. / 6).epsilon(1e-12));
    CHECK(ended.size() == (with_late ? 2 : 1));
  }
}

TEST_CASE("rates are max-min fair over several bottlenecks") {
  // Links A = 1, B = 3. Flows: x over A and B, y over A, z over B.
  // Filling: A saturates at 1/2 (x, y); B has 3 - 1/2 left for z alone: 5/2.
  FlowNetwork network;
  const LinkId a = network.add_link(1);
  const LinkId b = network.add_link(3);
  const FlowId x = network.start({.route = route(network, {a, b}), .volume = 100});
  const FlowId y = network.start({.route = route(network, {a}), .volume = 1});
  const FlowId z = network.start({.route = route(network, {b}), .volume = 100});
  CHECK(network.rate(x) == 0.5);
  CHECK(network.rate(y) == 0.5);
  CHECK(network.rate(z) == 2.5);
  // y ends at 2: then x has A alone, B fills at 3/2 and x takes 1 before that; z gets 2: *less*.
  CHECK(network.next_completion().count() == 2);
  network.advance_to(Seconds(2));
  CHECK(network.rate(x) == 1);
  CHECK(network.rate(z) == 2);
}

TEST_CASE("a cap is a link of the flow's own") {
  // C = 10, caps 1, 4, none: 1, then (10 - 1)/2 > 4 gives 4, and 5 is left.
  FlowNetwork network;
  const LinkId link = network.add_link(10);
  const FlowId one = network.start({.route = route(network, {link}, 1), .volume = 100});
  const FlowId four = network.start({.route = route(network, {link}, 4), .volume = 100});
  const FlowId rest = network.start({.route = route(network, {link}), .volume = 100});
  CHECK(network.rate(one) == 1);
  CHECK(network.rate(four) == 4);
  CHECK(network.rate(rest) == 5);
  CHECK(network.load(link) == 10);
}

TEST_CASE("a coefficient stands for that many like flows") {
  // Three flows folded into one (coefficient 3) beside one: C = 8 gives 2 to each of the four.
  FlowNetwork network;
  const LinkId link = network.add_link(8);
  const FlowId folded =
      network.start({.route = network.add_route(std::array{Usage{link, 3}}), .volume = 100});
  const FlowId one = network.start({.route = route(network, {link}), .volume = 100});
  CHECK(network.rate(folded) == 2);
  CHECK(network.rate(one) == 2);
  // A link named twice counts with the sum: 1 + 2.
  FlowNetwork twice;
  const LinkId l = twice.add_link(6);
  const FlowId f =
      twice.start({.route = twice.add_route(std::array{Usage{l, 1}, Usage{l, 2}}), .volume = 100});
  CHECK(twice.rate(f) == 2);
}

TEST_CASE("a capacity that changes acts from now on") {
  // A device of 1 s/s with two tasks of 1 s: half speed. At t = 1 (0.5 s left each) the capacity
  // falls to 0.5: 0.25 each, 2 s more. To 0: nothing ends.
  FlowNetwork network;
  const LinkId device = network.add_link(1);
  const RouteId r = route(network, {device});
  const FlowId flow = network.start({.route = r, .volume = 1, .token = 1});
  network.start({.route = route(network, {device}), .volume = 1, .token = 2});
  CHECK(network.next_completion().count() == 2);
  network.advance_to(Seconds(1));
  CHECK(network.remaining(flow) == 0.5);
  network.set_capacity(device, 0);
  CHECK(std::isinf(network.next_completion().count()));
  network.set_capacity(device, 0.5);
  CHECK(run_to_end(network) == std::vector<Ended>{{3, 1}, {3, 2}});
}

TEST_CASE("completions of one instant come in order of start, whatever the slots and routes") {
  FlowNetwork network;
  std::vector<RouteId> routes;
  for (int i = 0; i < 4; ++i) {
    routes.push_back(route(network, {network.add_link(1)}));
  }
  std::vector<FlowId> slots;
  for (const std::size_t i : {3U, 1U, 0U, 2U, 1U, 3U}) {  // two flows on 1 and 3
    slots.push_back(network.start(
        {.route = routes[i], .volume = i == 1 || i == 3 ? 1.0 : 2.0, .token = slots.size()}));
  }
  const auto ended = run_to_end(network);
  CHECK(ended == std::vector<Ended>{{2, 0}, {2, 1}, {2, 2}, {2, 3}, {2, 4}, {2, 5}});
  // Slots are free again, in another order; nothing else changes.
  for (std::uint64_t token = 0; token < 6; ++token) {
    network.start(
        {.route = routes[token % 4], .volume = token < 2 || token > 3 ? 1.0 : 2.0, .token = token});
  }
  CHECK(run_to_end(network) == std::vector<Ended>{{4, 0}, {4, 1}, {4, 2}, {4, 3}, {4, 4}, {4, 5}});
}

TEST_CASE("flows of one route end by what they have left, and equal ones in order of start") {
  // Rate 1 each (caps), so a flow started at s with volume v ends at s + v.
  FlowNetwork network;
  const RouteId r = route(network, {}, 1);
  network.start({.route = r, .volume = 5, .token = 0});
  network.start({.route = r, .volume = 2, .token = 1});
  network.start({.route = r, .volume = 4, .token = 2});
  network.start({.route = r, .volume = 0, .token = 3});
  CHECK(network.next_completion().count() == 0);
  CHECK(network.advance_to(Seconds(0)).size() == 1);
  network.advance_to(Seconds(1));
  network.start({.route = r, .volume = 1, .token = 4});
  network.start({.route = r, .volume = 4, .token = 5});
  CHECK(run_to_end(network) == std::vector<Ended>{{2, 1}, {2, 4}, {4, 2}, {5, 0}, {5, 5}});
}

TEST_CASE("route_for finds the route it made for equal usages and cap") {
  FlowNetwork network;
  const std::array usages{Usage{network.add_link(1), 1}, Usage{network.add_link(1), 2}};
  const RouteId first = network.route_for(usages);
  CHECK(network.route_for(usages) == first);
  CHECK(network.route_for(usages, 3) != first);
  CHECK(network.route_for(std::span(usages).first(1)) != first);
}

TEST_CASE("misuse is an internal error") {
  FlowNetwork network;
  const LinkId link = network.add_link(1);
  CHECK_THROWS_AS(network.add_link(-1), InternalError);
  CHECK_THROWS_AS(network.add_route({}), InternalError);
  CHECK_THROWS_AS(network.add_route(std::array{Usage{link, 0}}), InternalError);
  CHECK_THROWS_AS(network.add_route(std::array{Usage{LinkId(5), 1}}), InternalError);
  CHECK_THROWS_AS(network.start({.route = RouteId(3), .volume = 1}), InternalError);
  network.start({.route = route(network, {link}), .volume = 1});
  CHECK_THROWS_AS(network.advance_to(Seconds(1.5)), InternalError);
  CHECK_THROWS_AS(FlowNetwork({.rate_staleness = 1}), InternalError);
}

TEST_CASE("random traffic keeps rates feasible and max-min fair at every instant") {
  const std::uint64_t seed = GENERATE(range(1, 25));
  const std::size_t size = 3 + 3 * (seed % 4);
  Scene scene(seed, 0, size, 4 * size);
  for (int step = 0; step < 150; ++step) {
    for (std::size_t n = scene.below(step < 100 ? 4 : 1) + (scene.running.empty() ? 1 : 0); n > 0;
         --n) {
      scene.start();
    }
    if (scene.below(16) == 0) {
      const std::size_t i = scene.below(scene.links.size());
      scene.capacities[i] = 1.0 + static_cast<double>(scene.below(8));
      scene.network.set_capacity(scene.links[i], scene.capacities[i]);
    }
    REQUIRE(scene.is_feasible());
    REQUIRE(scene.is_max_min());
    scene.advance();
    REQUIRE(scene.is_feasible());
    REQUIRE(scene.is_max_min());
  }
}

TEST_CASE("stale rates stay feasible under random traffic") {
  const std::uint64_t seed = GENERATE(range(1, 9));
  Scene scene(seed, 0.2, 12, 60);
  for (int wave = 0; wave < 5; ++wave) {
    for (int n = 0; n < 100; ++n) {
      scene.start();
    }
    REQUIRE(scene.is_max_min());  // a start forces a solve
    while (!scene.running.empty()) {
      scene.advance();
      REQUIRE(scene.is_feasible());
    }
  }
}

TEST_CASE("the same traffic gives the same bits twice") {
  const auto run = [] {
    Scene scene(11, 0, 12, 60);
    std::vector<double> times;
    for (int step = 0; step < 300; ++step) {
      for (std::size_t n = 1 + scene.below(2); n > 0 && step < 200; --n) {
        scene.start();
      }
      if (!scene.running.empty()) {
        scene.advance();
        times.push_back(scene.network.now().count());
      }
    }
    return times;
  };
  CHECK(run() == run());
}

TEST_CASE("stale rates on one bottleneck end flows late by at most delta of their lifetime") {
  const double delta = GENERATE(0.01, 0.05, 0.2);
  const auto run = [](double staleness) {
    FlowNetwork network({.rate_staleness = staleness});
    const LinkId link = network.add_link(1);
    for (std::uint64_t i = 0; i < 400; ++i) {
      network.start({.route = route(network, {link}), .volume = 1 + 0.5 * frac(i, 1), .token = i});
    }
    std::vector<double> end(400);
    for (const Ended& ended : run_to_end(network)) {
      end[ended.token] = ended.at;
    }
    return std::pair(end, network.statistics().fillings);
  };
  const auto [exact, every] = run(0);
  const auto [stale, few] = run(delta);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CHECK(stale[i] >= exact[i] * (1 - 1e-9));
    CHECK(stale[i] <= exact[i] * (1 + delta));
  }
  CHECK(few < every / 4);
}

TEST_CASE("stale rates in a jittered all-to-all of 64 move no completion by more than delta") {
  // No theorem here (several bottlenecks), hence measured: the latest comes 0.7 delta
  // late; some come earlier, by a tenth of delta at delta = 2 %.
  const auto exact = all_to_all(64, 0);
  for (const double delta : {0.005, 0.02}) {
    const auto stale = all_to_all(64, delta);
    double worst = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      worst = std::max(worst, std::abs(stale[i] / exact[i] - 1));
    }
    CHECK(worst <= delta);
    CHECK(worst > 0);
  }
}
