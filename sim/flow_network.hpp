// Fluid flows over shared links with max-min fair rates.
//
// Theory. A flow f uses coefficient a(f,l) of link l per unit of its own rate x(f). Rates are
// feasible when sum_f a(f,l) x(f) <= C(l) on every link and x(f) <= cap(f). They are max-min fair
// when no rate can grow without shrinking one that is smaller already; equivalently, each flow
// sits at its cap or crosses a saturated link on which no rate is larger than its own. These rates
// exist, are unique, and *progressive filling* finds them: raise one common level for all flows;
// when a link saturates (its level is what is left of it over the weight still open on it), the
// flows that cross it keep that level; go on with the rest. A cap is a link of one's own.
//   D. Bertsekas, R. Gallager, Data Networks, 2nd ed., section 6.5.2; the same sharing as model
//   CM02 of SimGrid (without its latency weights), against which tests/oracle/ holds it.
//
// Why it is fast
// 1. Flows on one route progress at one rate, so a route keeps one clock of *virtual progress* and
//    a heap of its flows by the progress at which they end. A rate change touches routes only.
// 2. Rates are solved once an instant, when somebody asks for time to go on, and only where needed.
//    A start: the links that routes in use connect with it. A departure: links on which something
//    became free, and what is connected with them by routes at their level or above; filling meets
//    the lower ones first and would give them what they have. A route alone on its links needs no
//    filling: min(cap, C / coefficients).
// 3. The next completions are a sorted batch of the earliest ones; later ones are not kept in order
//    at all until the batch is used up. A solve that moves every completion costs one pass.
//
// Stale rates (option rate_staleness = delta > 0; 0 is exact). When a flow ends, the rates of the
// others may stay: what it used lies idle. Statement: rates left by departures are exactly the
// max-min rates of a network whose links are smaller by what lies idle, since every flow that
// remains keeps its saturated link. Let s(t) be the share of a link's capacity that lies idle. Its
// surroundings are solved again before
//     integral of s dt  >  delta * (time since a flow last started among them)
// so *no link idles through stale rates for more than the share delta of the time*; a flow that
// starts and a capacity that changes always force a solve. On one bottleneck a flow hence ends
// at most delta times its lifetime late. On several, max-min rates are not monotone in the
// capacities and no bound per flow exists; the test measures it on an all-to-all. Each interval
// between two solves may spend a sixteenth of what is left of the allowance, so that the crowded
// beginning of a wave of departures does not eat the budget of its end.
//
// Deterministic: completions of one instant (equal within 1e-12 relative) come in order of start.
#pragma once

#include "base/id.hpp"
#include "base/units.hpp"

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace spp::sim {

using RouteId = Id<struct RouteTag>;
using FlowId = Id<struct FlowTag>;

/// A flow at rate x takes coefficient * x of the link; above 1 when like flows are folded into one.
struct Usage {
  LinkId link;
  double coefficient = 1;
};

struct FlowStart {
  RouteId route;
  double volume = 0;        // bytes, or seconds of a device: the unit of its links' capacities
  std::uint64_t token = 0;  // the caller's own; comes back in Completion
};

struct Completion {
  FlowId flow;  // already free: a later start may carry the same id
  std::uint64_t token = 0;
  std::uint64_t sequence = 0;  // how many flows had started before this one
};

struct FlowNetworkOptions {
  double rate_staleness = 0;  // delta above, in [0, 1)
};

/// What the solver did; for benchmarks and tests.
struct FlowNetworkStatistics {
  std::uint64_t fillings = 0;       // components solved by progressive filling
  std::uint64_t filled_routes = 0;  // routes given a rate by them
};

class FlowNetwork {
 public:
  static constexpr double unlimited = std::numeric_limits<double>::infinity();

  explicit FlowNetwork(const FlowNetworkOptions& options = {});

  /// Capacity in units per second, >= 0; a device is a link of 1 device-second per second.
  LinkId add_link(double capacity);
  /// From now() on.
  void set_capacity(LinkId link, double capacity);

  /// A new route. A link named twice counts with the sum. `rate_cap` bounds each flow on it.
  /// A route needs a link or a cap. Routes stay: their number is the number of kinds of flow.
  RouteId add_route(std::span<const Usage> usages, double rate_cap = unlimited);
  /// The route added by an earlier equal call (usages in the same order), or a new one.
  RouteId route_for(std::span<const Usage> usages, double rate_cap = unlimited);
  /// Room for this many, so that no array is copied as it grows.
  void reserve(std::size_t routes, std::size_t usages, std::size_t flows);

  /// Starts a flow at now(). No allocation once the network has seen as many flows at once.
  FlowId start(const FlowStart& flow);

  [[nodiscard]] Seconds now() const { return Seconds(now_); }
  /// The earliest completion under the present flows; infinite if there is none.
  Seconds next_completion();
  /// Moves time to `t`, now() <= t <= next_completion(), and returns the flows that end there, in
  /// order of start. The span is valid until the next call.
  std::span<const Completion> advance_to(Seconds t);

  /// What all flows that were started take of each link.
  [[nodiscard]] std::vector<double> volumes() const;
  [[nodiscard]] std::size_t active_flows() const { return active_flows_; }
  /// Rate of a running flow, volume it has left, and the use of a link, all at now().
  double rate(FlowId flow);
  double remaining(FlowId flow);
  double load(LinkId link);
  [[nodiscard]] const FlowNetworkStatistics& statistics() const { return statistics_; }

 private:
  using Index = std::uint32_t;
  static constexpr Index none = std::numeric_limits<Index>::max();

  struct alignas(64) Link {  // what solves meet is one cache line
    double capacity = 0;
    double level = unlimited;     // at which it saturated; unlimited: nobody waits for more of it
    double idle = 0;              // what departed flows used since the last solve
    double accounted = 0;         // `pending` holds the integral of the idle share up to here
    double pending = 0;           // since the last solve
    double due = unlimited;       // solve before time passes this
    Index routes = 0;             // routes in use that cross it
    Index which = 0;              // all their numbers, by exclusive or: of one alone its number
    Index region = 0;             // number of the last filling it took part in
    bool stale = false;           // listed in stale_
    double since = 0;             // last start among the links then connected
    double spent = 0;             // of what may lie idle, before the last solve
    std::vector<Index> crossing;  // routes; those out of use leave at the next search
  };
  struct Filling {  // a link while levels rise; apart from Link to stay in the first cache
    double left = 0;
    double weight = 0;  // sum of coefficients of the open flows
    Index open = 0;     // routes that have no rate yet
  };
  struct RouteUsage {
    double coefficient;
    Index link;
    bool listed;  // is in the link's `crossing`
  };
  struct alignas(64) Route {  // one cache line: a solve meets routes in no useful order
    double rate = 0;          // of each flow; unsolved (-1) from a start to the next solve
    double progress = 0;  // of a flow that was there since the route came into use, at `updated`
    double updated = 0;
    double head_target = 0;
    double rate_cap = 0;
    Index head = none;  // flow that ends first: root of a pairing heap
    Index flows = 0;
    Index first_usage = 0;
    std::uint16_t usages = 0;
    bool listed = false;  // in active_
    bool dirty = false;
    bool plain = true;  // all coefficients are 1: no need to look
    Index open = 0;     // number of the filling that has yet to give it a rate, or 0
  };
  struct Flow {
    double target = 0;  // virtual progress of the route at which it ends
    std::uint64_t sequence = 0;
    std::uint64_t token = 0;
    Index route = none;
    Index child = none;  // pairing heap
    Index next = none;   // sibling, or next free slot
  };
  struct Level {
    double level;
    Index link;
  };
  struct Due {
    double at;
    Index route;
  };

  std::span<RouteUsage> usages_of(const Route& route) {
    return {usages_.data() + route.first_usage, route.usages};
  }

  // flow_network.cpp: flows, routes, time
  static std::uint64_t hash_of(std::span<const RouteUsage> usages, double rate_cap);
  void grow_known_routes();
  Index new_flow();
  void bring_into_use(Index route);
  void settle(Route& route) const;
  static double finish_time(const Route& route);
  void set_rate(Index route, double rate);
  void set_finish(Index route, double at);
  void complete(Index route, double limit);
  void release(Index route, Index ended);
  void mark_dirty(Index route);
  Index meld(Index a, Index b);
  Index without_root(Index root);
  double earliest();
  bool is_current(const Due& due) const { return finish_at_[due.route] == due.at; }
  void forget_batch();
  void fill_batch();

  // flow_network_solve.cpp: rates
  void solve();
  void solve_alone(Index route);
  bool is_alone(const Route& route);
  Index lone_route(Index link);
  void solve_started(Index link);
  void solve_stale();
  void leave_idle(Index link, double freed);
  void end_staleness(Link& link);
  void solve_region(Index seed, double floor);
  void search_across(Index link, double floor);
  void prefetch(const std::vector<Index>& crossing, std::size_t i) const;
  void open(Index route);
  void join(Index link);
  void fill();
  double lowest_level();
  void take_saturated(double level);
  bool freeze_capped(double level);
  void freeze(Index route, double rate);

  FlowNetworkOptions options_;
  double now_ = 0;
  std::uint64_t started_ = 0;
  std::size_t active_flows_ = 0;
  FlowNetworkStatistics statistics_;

  std::vector<Link> links_;
  std::vector<Filling> filling_;
  std::vector<RouteUsage> usages_;
  std::vector<Route> routes_;
  std::vector<double> volume_of_;    // by route: of all flows that were started
  std::vector<double> finish_at_;    // by route: when its head ends; out_of_use (-1) without flows
  std::vector<Index> known_routes_;  // of route_for: open addressing, at most half full, none: free
  std::size_t known_count_ = 0;
  std::vector<RouteUsage> route_wanted_;
  std::vector<Flow> flows_;
  Index free_flow_ = none;
  std::vector<Completion> completed_;

  // Every route with finish_at_ <= horizon_ has a current entry in batch_ (sorted, from cursor_ on)
  // or in late_ (a heap); an entry is current while it agrees with finish_at_.
  std::vector<Index> active_;  // routes in use, and some that went out of use
  std::vector<Due> batch_;
  std::size_t cursor_ = 0;
  std::vector<Due> late_;
  double horizon_ = -unlimited;

  std::vector<Index> dirty_routes_;
  std::vector<Index> dirty_links_;
  std::vector<Index> stale_;         // links with something idle that somebody may want
  double earliest_due_ = unlimited;  // a lower bound of theirs

  Index fillings_ = 0;         // counts fillings; numbers their regions
  std::vector<Index> region_;  // links of the present filling
  std::vector<Level> levels_;  // heap of lower bounds of their levels
  std::vector<Index> saturated_;
  std::vector<Index> capped_;  // open routes with a cap
  std::size_t next_capped_ = 0;
  std::size_t crossings_ = 0;  // open routes over links
  std::vector<Index> scratch_;
};

}  // namespace spp::sim
