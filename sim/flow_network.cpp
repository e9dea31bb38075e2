// Flows, routes and time; how rates are found is in flow_network_solve.cpp. One class: the two
// files are its halves already.
#include "sim/flow_network.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace spp::sim {
namespace {

constexpr double same_instant = 1e-12;   // relative; rounding of one rate change is about 1e-16
constexpr double unsolved = -1;          // a rate
constexpr double out_of_use = -1;        // a finish time
constexpr std::size_t batch_share = 16;  // a batch takes about 1/16 of the routes in use
constexpr std::size_t batch_sample = 512;
constexpr std::size_t ahead = 16;  // entries between a prefetch and its use

}  // namespace

FlowNetwork::FlowNetwork(const FlowNetworkOptions& options) : options_(options) {
  ensure(options.rate_staleness >= 0 && options.rate_staleness < 1,
         "rate_staleness lies in [0, 1)");
}

LinkId FlowNetwork::add_link(double capacity) {
  ensure(capacity >= 0 && std::isfinite(capacity), "a link's capacity is finite and not negative");
  links_.push_back({.capacity = capacity, .crossing = {}});
  filling_.emplace_back();
  return LinkId(links_.size() - 1);
}

void FlowNetwork::set_capacity(LinkId link, double capacity) {
  ensure(link.index() < links_.size(), "set_capacity of a link that does not exist");
  ensure(capacity >= 0 && std::isfinite(capacity), "a link's capacity is finite and not negative");
  if (std::exchange(links_[link.index()].capacity, capacity) != capacity) {
    dirty_links_.push_back(static_cast<Index>(link.index()));
  }
}

RouteId FlowNetwork::add_route(std::span<const Usage> usages, double rate_cap) {
  ensure(rate_cap > 0, "a route's rate cap is positive");
  ensure(!usages.empty() || std::isfinite(rate_cap), "a route needs a link or a cap");
  Route route;
  route.rate_cap = rate_cap;
  route.first_usage = static_cast<Index>(usages_.size());
  for (const Usage& usage : usages) {
    ensure(usage.link.index() < links_.size(), "a route names a link that does not exist");
    ensure(usage.coefficient > 0 && std::isfinite(usage.coefficient),
           "a usage coefficient is positive");
    const auto link = static_cast<Index>(usage.link.index());
    const auto known = std::find_if(usages_.begin() + route.first_usage, usages_.end(),
                                    [&](const RouteUsage& u) { return u.link == link; });
    if (known != usages_.end()) {
      known->coefficient += usage.coefficient;
    } else {
      usages_.push_back({.coefficient = usage.coefficient, .link = link, .listed = false});
    }
  }
  const std::size_t count = usages_.size() - route.first_usage;
  ensure(count <= std::numeric_limits<std::uint16_t>::max(), "a route crosses at most 65535 links");
  route.usages = static_cast<std::uint16_t>(count);
  route.plain =
      std::ranges::all_of(usages_of(route), [](const RouteUsage& u) { return u.coefficient == 1; });
  routes_.push_back(route);
  finish_at_.push_back(out_of_use);
  volume_of_.push_back(0);
  return RouteId(routes_.size() - 1);
}

RouteId FlowNetwork::route_for(std::span<const Usage> usages, double rate_cap) {
  if (2 * (known_count_ + 1) > known_routes_.size()) {
    grow_known_routes();
  }
  route_wanted_.clear();
  for (const Usage& usage : usages) {
    route_wanted_.push_back({.coefficient = usage.coefficient,
                             .link = static_cast<Index>(usage.link.index()),
                             .listed = false});
  }
  const auto equal = [](const RouteUsage& a, const RouteUsage& b) {
    return a.link == b.link && a.coefficient == b.coefficient;
  };
  const std::size_t mask = known_routes_.size() - 1;
  std::size_t slot = hash_of(route_wanted_, rate_cap) & mask;
  for (; known_routes_[slot] != none; slot = (slot + 1) & mask) {
    const Route& route = routes_[known_routes_[slot]];
    if (route.rate_cap == rate_cap && std::ranges::equal(route_wanted_, usages_of(route), equal)) {
      return RouteId(std::size_t{known_routes_[slot]});
    }
  }
  const RouteId route = add_route(usages, rate_cap);
  known_routes_[slot] = static_cast<Index>(route.index());
  ++known_count_;
  return route;
}

std::uint64_t FlowNetwork::hash_of(std::span<const RouteUsage> usages, double rate_cap) {
  std::uint64_t hash = std::bit_cast<std::uint64_t>(rate_cap);
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  };
  for (const RouteUsage& usage : usages) {
    mix(usage.link);
    mix(std::bit_cast<std::uint64_t>(usage.coefficient));
  }
  return hash;
}

void FlowNetwork::grow_known_routes() {
  constexpr std::size_t smallest = 64;
  const std::vector<Index> known = std::move(known_routes_);
  known_routes_.assign(std::max(smallest, 2 * known.size()), none);
  const std::size_t mask = known_routes_.size() - 1;
  for (const Index r : known) {
    if (r != none) {
      std::size_t slot = hash_of(usages_of(routes_[r]), routes_[r].rate_cap) & mask;
      while (known_routes_[slot] != none) {
        slot = (slot + 1) & mask;
      }
      known_routes_[slot] = r;
    }
  }
}

void FlowNetwork::reserve(std::size_t routes, std::size_t usages, std::size_t flows) {
  routes_.reserve(routes);
  finish_at_.reserve(routes);
  volume_of_.reserve(routes);
  usages_.reserve(usages);
  flows_.reserve(flows);
}

std::vector<double> FlowNetwork::volumes() const {
  std::vector<double> volumes(links_.size());
  for (std::size_t r = 0; r < routes_.size(); ++r) {
    const auto first = usages_.begin() + routes_[r].first_usage;
    for (auto usage = first; usage != first + routes_[r].usages; ++usage) {
      volumes[usage->link] += usage->coefficient * volume_of_[r];
    }
  }
  return volumes;
}

FlowId FlowNetwork::start(const FlowStart& flow) {
  ensure(flow.route.index() < routes_.size(), "a flow starts on a route that does not exist");
  ensure(flow.volume >= 0 && std::isfinite(flow.volume),
         "a flow's volume is finite and not negative");
  const auto r = static_cast<Index>(flow.route.index());
  Route& route = routes_[r];
  if (route.flows == 0) {
    bring_into_use(r);
  } else {
    settle(route);
  }
  const Index slot = new_flow();
  flows_[slot] = {.target = route.progress + flow.volume,
                  .sequence = started_++,
                  .token = flow.token,
                  .route = r};
  route.head = route.flows == 0 ? slot : meld(route.head, slot);
  route.head_target = flows_[route.head].target;
  route.rate = unsolved;
  volume_of_[r] += flow.volume;
  ++route.flows;
  ++active_flows_;
  if (is_alone(route)) {
    solve_alone(r);  // for now; whoever joins it is dirty then
  } else {
    mark_dirty(r);
  }
  return FlowId(std::size_t{slot});
}

FlowNetwork::Index FlowNetwork::new_flow() {
  if (free_flow_ == none) {
    flows_.emplace_back();
    return static_cast<Index>(flows_.size() - 1);
  }
  const Index slot = free_flow_;
  free_flow_ = flows_[slot].next;
  return slot;
}

void FlowNetwork::bring_into_use(Index r) {
  Route& route = routes_[r];
  route.progress = 0;  // restarts here, so that it does not lose digits over a long simulation
  route.updated = now_;
  for (RouteUsage& usage : usages_of(route)) {
    Link& link = links_[usage.link];
    ++link.routes;
    link.which ^= r;
    if (!usage.listed) {
      usage.listed = true;
      link.crossing.push_back(r);
    }
  }
  if (!route.listed) {
    route.listed = true;
    active_.push_back(r);
  }
}

void FlowNetwork::mark_dirty(Index r) {
  if (!routes_[r].dirty) {
    routes_[r].dirty = true;
    dirty_routes_.push_back(r);
  }
}

Seconds FlowNetwork::next_completion() {
  solve();
  return Seconds(earliest());
}

std::span<const Completion> FlowNetwork::advance_to(Seconds t) {
  solve();
  const double limit = t.count() * (1 + same_instant);
  double next = earliest();
  ensure(t.count() >= now_ && t.count() <= next * (1 + same_instant),
         "advance_to moves time to between now() and next_completion()");
  now_ = t.count();
  completed_.clear();
  while (next <= limit) {
    const bool from_batch =
        late_.empty() || (cursor_ < batch_.size() && batch_[cursor_].at <= late_.front().at);
    if (cursor_ + ahead < batch_.size()) {
      __builtin_prefetch(&routes_[batch_[cursor_ + ahead].route]);
      __builtin_prefetch(&flows_[routes_[batch_[cursor_ + ahead / 2].route].head % flows_.size()]);
    }
    complete(from_batch ? batch_[cursor_].route : late_.front().route, limit);
    next = earliest();
  }
  const auto by_start = [](const Completion& a, const Completion& b) {
    return a.sequence < b.sequence;
  };
  if (!std::ranges::is_sorted(completed_, by_start)) {
    std::ranges::sort(completed_, by_start);
  }
  return completed_;
}

/// Ends every flow of the route that is due by `limit`.
void FlowNetwork::complete(Index r, double limit) {
  Route& route = routes_[r];
  Index ended = 0;
  do {
    const Index slot = route.head;
    Flow& flow = flows_[slot];
    completed_.push_back(
        {.flow = FlowId(std::size_t{slot}), .token = flow.token, .sequence = flow.sequence});
    route.head = without_root(slot);
    route.head_target = route.head == none ? 0 : flows_[route.head].target;
    flow.next = free_flow_;
    free_flow_ = slot;
    ++ended;
  } while (route.head != none && finish_time(route) <= limit);
  route.flows -= ended;
  active_flows_ -= ended;
  release(r, ended);
  if (route.flows > 0) {
    set_finish(r, finish_time(route));
    if (is_alone(route)) {
      mark_dirty(r);  // nobody else waits for what became free: solved exactly, at no cost
    }
  } else {
    finish_at_[r] = out_of_use;
  }
}

/// Leaves idle what `ended` flows of the route used.
void FlowNetwork::release(Index r, Index ended) {
  const Route& route = routes_[r];
  for (const RouteUsage& usage : usages_of(route)) {
    Link& link = links_[usage.link];
    if (route.flows == 0) {
      --link.routes;
      link.which ^= r;
    }
    if (link.routes == 0) {
      end_staleness(link);
      link.level = unlimited;
    } else if (link.level < unlimited) {
      leave_idle(usage.link, usage.coefficient * ended * route.rate);
    }
  }
}

double FlowNetwork::rate(FlowId flow) {
  solve();
  return routes_[flows_[flow.index()].route].rate;
}

double FlowNetwork::remaining(FlowId flow) {
  const Flow& f = flows_[flow.index()];
  settle(routes_[f.route]);
  return std::max(0.0, f.target - routes_[f.route].progress);
}

double FlowNetwork::load(LinkId link) {
  solve();
  double sum = 0;
  for (const Index r : links_[link.index()].crossing) {
    for (const RouteUsage& usage : usages_of(routes_[r])) {
      if (usage.link == link.index() && routes_[r].flows > 0) {
        sum += usage.coefficient * routes_[r].flows * routes_[r].rate;
      }
    }
  }
  return sum;
}

void FlowNetwork::settle(Route& route) const {
  if (route.updated < now_) {
    route.progress += route.rate * (now_ - route.updated);
    route.updated = now_;
  }
}

double FlowNetwork::finish_time(const Route& route) {
  const double left = route.head_target - route.progress;
  if (left <= 0) {
    return route.updated;
  }
  return route.rate > 0 ? route.updated + left / route.rate : unlimited;
}

void FlowNetwork::set_rate(Index r, double rate) {
  Route& route = routes_[r];
  if (route.rate != rate) {
    settle(route);
    route.rate = rate;
    set_finish(r, finish_time(route));
  }
}

// ---- completions in order ----

void FlowNetwork::set_finish(Index r, double at) {
  finish_at_[r] = at;
  if (at <= horizon_) {
    if (late_.size() > 2 * active_.size() + batch_sample) {
      forget_batch();  // mostly entries that are no longer current
      return;
    }
    late_.push_back({.at = at, .route = r});
    std::ranges::push_heap(late_, std::greater<>(), &Due::at);
  }
}

void FlowNetwork::forget_batch() {
  batch_.clear();
  cursor_ = 0;
  late_.clear();
  horizon_ = -unlimited;
}

/// Time of the earliest completion; its entry is then batch_[cursor_] or late_.front().
double FlowNetwork::earliest() {
  for (;;) {
    while (cursor_ < batch_.size() && !is_current(batch_[cursor_])) {
      ++cursor_;
    }
    while (!late_.empty() && !is_current(late_.front())) {
      std::ranges::pop_heap(late_, std::greater<>(), &Due::at);
      late_.pop_back();
    }
    const double first = cursor_ < batch_.size() ? batch_[cursor_].at : unlimited;
    const double second = late_.empty() ? unlimited : late_.front().at;
    if (cursor_ < batch_.size() || !late_.empty()) {
      return std::min(first, second);
    }
    fill_batch();
    if (batch_.empty()) {
      return unlimited;
    }
  }
}

/// Takes the earliest routes, about 1/32 of them and all that tie with these, into the batch.
void FlowNetwork::fill_batch() {
  forget_batch();
  std::erase_if(active_, [this](Index r) {
    if (finish_at_[r] != out_of_use) {
      return false;
    }
    routes_[r].listed = false;
    return true;
  });
  double limit = std::numeric_limits<double>::max();
  if (active_.size() > batch_sample) {
    // A quantile of a sample at even steps; the ceiling keeps every step inside.
    const std::size_t step = (active_.size() + batch_sample - 1) / batch_sample;
    std::vector<double> sample;
    sample.reserve(batch_sample);
    for (std::size_t i = 0; i < active_.size(); i += step) {
      sample.push_back(finish_at_[active_[i]]);
    }
    const auto quantile = sample.begin() + static_cast<std::ptrdiff_t>(sample.size() / batch_share);
    std::nth_element(sample.begin(), quantile, sample.end());
    // Twice the tolerance, so that the end of the batch rarely splits an instant.
    limit = std::min(limit, *quantile * (1 + 2 * same_instant));
  }
  double last = -unlimited;
  for (const Index r : active_) {
    if (const double at = finish_at_[r]; at <= limit) {
      batch_.push_back({.at = at, .route = r});
      last = std::max(last, at);
    }
  }
  horizon_ = limit < std::numeric_limits<double>::max() ? limit : last;
  if (!std::ranges::is_sorted(batch_, {}, &Due::at)) {
    // The order of equal times does not matter: they complete together and are sorted by start.
    std::ranges::sort(batch_, {}, &Due::at);
  }
}

// ---- pairing heap of the flows of a route, through the flows themselves ----

FlowNetwork::Index FlowNetwork::meld(Index a, Index b) {
  const Flow& x = flows_[a];
  const Flow& y = flows_[b];
  if (y.target < x.target || (y.target == x.target && y.sequence < x.sequence)) {
    std::swap(a, b);
  }
  flows_[b].next = flows_[a].child;
  flows_[a].child = b;
  return a;
}

/// The heap without its root: children melded in pairs, then the pairs from the last to the first.
FlowNetwork::Index FlowNetwork::without_root(Index root) {
  Index pairs = none;
  for (Index child = flows_[root].child; child != none;) {
    const Index second = flows_[child].next;
    const Index rest = second == none ? none : flows_[second].next;
    const Index pair = second == none ? child : meld(child, second);
    flows_[pair].next = pairs;
    pairs = pair;
    child = rest;
  }
  if (pairs == none) {
    return none;
  }
  Index result = pairs;
  Index rest = flows_[pairs].next;
  while (rest != none) {
    const Index following = flows_[rest].next;
    result = meld(result, rest);
    rest = following;
  }
  flows_[result].next = none;
  return result;
}

}  // namespace spp::sim
