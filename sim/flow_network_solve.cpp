// Rates of a FlowNetwork: what must be solved again, and progressive filling.
#include "sim/flow_network.hpp"

#include <algorithm>
#include <utility>

namespace spp::sim {
namespace {

constexpr double same_level = 1e-12;         // relative; links this close saturate in one round
constexpr double floor_margin = 1e-9;        // a lower floor costs time, never exactness
constexpr std::size_t ahead = 16;            // entries between a prefetch and its use
constexpr double allowance_share = 1. / 16;  // of the staleness left that one interval may spend

/// Heap order of link levels: the lowest on top, ties by link.
constexpr auto later = [](const auto& a, const auto& b) {
  return std::pair(a.level, a.link) > std::pair(b.level, b.link);
};

}  // namespace

/// Brings all rates up to date with what started, ended and changed at this instant.
void FlowNetwork::solve() {
  if (!dirty_routes_.empty() || !dirty_links_.empty()) {
    const Index solved_before = fillings_;
    for (const Index r : dirty_routes_) {
      Route& route = routes_[r];
      route.dirty = false;
      if (route.flows == 0) {
        continue;
      }
      if (is_alone(route)) {
        solve_alone(r);
      } else if (const Index link = usages_[route.first_usage].link;
                 links_[link].region <= solved_before) {
        solve_started(link);
      }
    }
    for (const Index link : dirty_links_) {
      if (links_[link].routes == 0 || links_[link].region > solved_before) {
        continue;
      }
      if (const Index lone = lone_route(link); lone != none) {
        solve_alone(lone);
      } else {
        solve_started(link);
      }
    }
    dirty_routes_.clear();
    dirty_links_.clear();
  }
  solve_stale();
}

bool FlowNetwork::is_alone(const Route& route) {
  return std::ranges::all_of(
      usages_of(route), [this](const RouteUsage& usage) { return links_[usage.link].routes == 1; });
}

/// The route that a link is in use by, if it shares no link with another; else none.
FlowNetwork::Index FlowNetwork::lone_route(Index l) {
  const Link& link = links_[l];
  return link.routes == 1 && is_alone(routes_[link.which]) ? link.which : none;
}

void FlowNetwork::solve_alone(Index r) {
  const Route& route = routes_[r];
  double rate = routes_[r].rate_cap;
  for (const RouteUsage& usage : usages_of(route)) {
    Link& link = links_[usage.link];
    rate = std::min(rate, link.capacity / (usage.coefficient * route.flows));
    link.level = unlimited;  // its departures are solved here too
    end_staleness(link);
  }
  set_rate(r, rate);
}

/// Solves all that is connected with a link on which a flow started or whose capacity changed.
void FlowNetwork::solve_started(Index link) {
  solve_region(link, -unlimited);
  for (const Index l : region_) {
    links_[l].since = now_;
    links_[l].spent = 0;
  }
}

// ---- stale rates ----

/// A flow left the saturated link `l`: until when may the others keep their rates?
void FlowNetwork::leave_idle(Index l, double freed) {
  Link& link = links_[l];
  link.pending += link.idle / link.capacity * (now_ - link.accounted);
  link.accounted = now_;
  link.idle += freed;
  const double allowed = options_.rate_staleness * (now_ - link.since) - link.spent;
  const double left = std::max(0.0, allowance_share * allowed - link.pending);
  link.due = link.idle > 0 ? now_ + left * link.capacity / link.idle : unlimited;
  earliest_due_ = std::min(earliest_due_, link.due);
  if (!std::exchange(link.stale, true)) {
    stale_.push_back(l);
  }
}

void FlowNetwork::end_staleness(Link& link) {
  if (link.idle > 0) {
    link.spent += link.pending + link.idle / link.capacity * (now_ - link.accounted);
  }
  link.pending = 0;
  link.idle = 0;
  link.accounted = now_;
  link.due = unlimited;
}

/// Solves around the links whose idle share must not last until the next completion.
void FlowNetwork::solve_stale() {
  while (earliest_due_ < unlimited) {
    double until = now_;
    if (earliest_due_ > now_) {
      until = earliest();
      if (until <= earliest_due_) {
        return;
      }
    }
    // With the links that are due go those that idle half as much: solved alone, each would soon
    // solve its upper neighbours once more.
    double share = unlimited;
    for (const Index l : stale_) {
      if (const Link& link = links_[l]; link.due <= now_ || link.due < until) {
        share = std::min(share, link.idle / link.capacity);
      }
    }
    scratch_.clear();
    std::erase_if(stale_, [&](Index l) {
      const Link& link = links_[l];
      if (2 * link.idle >= share * link.capacity) {
        scratch_.push_back(l);
      }
      return 2 * link.idle >= share * link.capacity;
    });
    // From the lowest level: its region holds those of higher ones that it is connected with.
    std::ranges::sort(scratch_, {}, [this](Index l) { return std::pair(links_[l].level, l); });
    const Index solved_before = fillings_;
    for (const Index l : scratch_) {
      links_[l].stale = false;
      if (links_[l].region <= solved_before) {
        solve_region(l, links_[l].level * (1 - floor_margin));
      }
    }
    earliest_due_ = unlimited;
    std::erase_if(stale_, [this](Index l) {
      Link& link = links_[l];
      link.stale = link.due < unlimited;
      earliest_due_ = std::min(earliest_due_, link.due);
      return !link.stale;
    });
  }
}

// ---- regions ----

/// New rates for all routes at `floor` or above that such routes connect with link `seed`.
void FlowNetwork::solve_region(Index seed, double floor) {
  ++fillings_;
  ++statistics_.fillings;
  region_.clear();
  capped_.clear();
  crossings_ = 0;
  join(seed);
  for (std::size_t i = 0; i < region_.size(); ++i) {  // NOLINT(modernize-loop-convert): it grows
    search_across(region_[i], floor);
  }
  if (4 * crossings_ >= active_.size()) {
    forget_batch();  // most completions move: cheaper to look for the earliest anew
  }
  fill();
}

void FlowNetwork::join(Index l) {
  Link& link = links_[l];
  if (link.region != fillings_) {
    link.region = fillings_;
    link.level = unlimited;
    end_staleness(link);
    filling_[l] = {.left = link.capacity};
    region_.push_back(l);
  }
}

/// A solve meets a million routes in the order of a link, not of memory: their lines, and then the
/// usages that these point to, are asked for some entries ahead.
void FlowNetwork::prefetch(const std::vector<Index>& crossing, std::size_t i) const {
  if (i + ahead < crossing.size()) {
    __builtin_prefetch(&routes_[crossing[i + ahead]]);
    __builtin_prefetch(&usages_[routes_[crossing[i + ahead / 2]].first_usage]);
  }
}

/// Opens the routes of a link; what those below the floor use is taken off its capacity.
void FlowNetwork::search_across(Index l, double floor) {
  Link& link = links_[l];
  std::size_t kept = 0;
  for (std::size_t i = 0; i < link.crossing.size(); ++i) {
    prefetch(link.crossing, i);
    const Index r = link.crossing[i];
    const Route& route = routes_[r];
    if (route.flows == 0) {
      std::ranges::find(usages_of(route), l, &RouteUsage::link)->listed = false;
      continue;
    }
    link.crossing[kept++] = r;
    if (route.rate < floor) {
      const double coefficient =
          route.plain ? 1 : std::ranges::find(usages_of(route), l, &RouteUsage::link)->coefficient;
      filling_[l].left -= coefficient * route.flows * route.rate;
    } else if (route.open != fillings_) {
      open(r);
    }
  }
  link.crossing.resize(kept);
}

void FlowNetwork::open(Index r) {
  Route& route = routes_[r];
  route.open = fillings_;
  for (const RouteUsage& usage : usages_of(route)) {
    join(usage.link);
    Filling& link = filling_[usage.link];
    link.weight += usage.coefficient * route.flows;
    ++link.open;
  }
  crossings_ += route.usages;
  if (routes_[r].rate_cap < unlimited) {
    capped_.push_back(r);
  }
}

// ---- progressive filling ----

void FlowNetwork::fill() {
  levels_.clear();
  for (const Index l : region_) {
    if (filling_[l].open > 0) {
      levels_.push_back({.level = std::max(0.0, filling_[l].left) / filling_[l].weight, .link = l});
    }
  }
  std::ranges::make_heap(levels_, later);
  const auto by_cap = [this](Index r) { return routes_[r].rate_cap; };
  if (!std::ranges::is_sorted(capped_, {}, by_cap)) {  // often they are all equal
    std::ranges::stable_sort(capped_, {}, by_cap);
  }
  next_capped_ = 0;
  for (;;) {
    const double level = lowest_level();
    if (freeze_capped(level)) {
      continue;  // what they leave raises the links' levels
    }
    if (level == unlimited) {
      return;
    }
    take_saturated(level);
    for (const Index l : saturated_) {
      const std::vector<Index>& crossing = links_[l].crossing;
      for (std::size_t i = 0; filling_[l].open > 0; ++i) {
        prefetch(crossing, i);
        if (routes_[crossing[i]].open == fillings_) {
          freeze(crossing[i], level);
        }
      }
    }
  }
}

/// The level at which the next link saturates. Levels only rise while routes freeze, so the heap
/// holds lower bounds and only its top is brought up to date.
double FlowNetwork::lowest_level() {
  while (!levels_.empty()) {
    const Level top = levels_.front();
    const Filling& link = filling_[top.link];
    const double level = link.open == 0 ? unlimited : std::max(0.0, link.left) / link.weight;
    if (link.open > 0 && level <= top.level * (1 + same_level)) {
      return level;
    }
    std::ranges::pop_heap(levels_, later);
    levels_.pop_back();
    if (link.open > 0) {
      levels_.push_back({.level = level, .link = top.link});
      std::ranges::push_heap(levels_, later);
    }
  }
  return unlimited;
}

/// Moves the links that saturate at `level` from the heap to saturated_.
void FlowNetwork::take_saturated(double level) {
  saturated_.clear();
  const double limit = level * (1 + same_level);
  while (lowest_level() <= limit) {
    const Index l = levels_.front().link;
    links_[l].level = level;
    saturated_.push_back(l);
    std::ranges::pop_heap(levels_, later);
    levels_.pop_back();
  }
}

/// Freezes routes whose cap comes before `level`; says whether there was one.
bool FlowNetwork::freeze_capped(double level) {
  bool any = false;
  for (; next_capped_ < capped_.size() && routes_[capped_[next_capped_]].rate_cap <= level;
       ++next_capped_) {
    const Index r = capped_[next_capped_];
    if (routes_[r].open == fillings_) {
      freeze(r, routes_[r].rate_cap);
      any = true;
    }
  }
  return any;
}

void FlowNetwork::freeze(Index r, double rate) {
  Route& route = routes_[r];
  route.open = 0;
  ++statistics_.filled_routes;
  for (const RouteUsage& usage : usages_of(route)) {
    Filling& link = filling_[usage.link];
    const double weight = usage.coefficient * route.flows;
    link.left -= weight * rate;
    link.weight -= weight;
    --link.open;
  }
  set_rate(r, rate);
}

}  // namespace spp::sim
