// The network between nodes, from the adapters that files list: those near GPUs count, at the rate
// that ibstat, ibv_devinfo or NCCL give; `nvidia-smi topo -m` gives none. One
// decision from a list to a network, hence one file.
#include "base/error.hpp"
#include "machine/import/draft.hpp"
#include "machine/nics.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <utility>

namespace spp::imports {
namespace {

constexpr double assumed_rate_spread = 0.5;
/// Of adapters that may be RDMA's or not: a hop over RoCE is 3 to 4 times as fast as over sockets.
constexpr double guessed_transport_spread = 0.8;
constexpr std::size_t most_adapters = 1024;  // of a node

struct Usual {
  double gigabits = 100;
  std::string_view source;
};

/// Adapters of servers with such GPUs.
Usual usual_rate(const Draft& d) {
  const bool board = d.catalog.transport(d.gpu.intra, "gpu").medium == "nvlink";
  const int capability = d.gpu.compute_capability;
  if (board && capability >= 90) {
    return {400, "400 Gb/s, as in NVIDIA's DGX H100 and B200 user guides"};
  }
  if (board && capability >= 80) {
    return {200, "200 Gb/s, as in NVIDIA's DGX A100 user guide"};
  }
  return {100, "100 Gb/s"};
}

/// By the names that drivers give; "" if they say nothing (mlx5_0 is either).
std::string transport_by_name(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 15> prefixes{
      {{"rdmap", "efa"},
       {"efa", "efa"},
       {"roce", "roce"},
       {"bnxt", "roce"},
       {"irdma", "roce"},
       {"ibp", "ib"},
       {"ibs", "ib"},
       {"ib", "ib"},
       {"cxi", "slingshot"},
       {"hsn", "slingshot"},
       {"eth", "ethernet"},
       {"en", "ethernet"},
       {"bond", "ethernet"},
       {"gve", "ethernet"},
       {"gpu", "ethernet"}}};
  for (const auto& [prefix, transport] : prefixes) {
    if (name.starts_with(prefix)) {
      return std::string(transport);
    }
  }
  return "";
}

struct Adapter {
  std::string name;
  Way nearest = Way::sys;
  std::optional<CardFact> fact;
};

/// Where files call adapters differently (NIC0 without a legend, mlx5_0): what all that are up
/// agree on.
void adopt_common(Draft& d, std::vector<Adapter>& adapters) {
  std::vector<CardFact> up;
  std::ranges::copy_if(d.facts.cards, std::back_inserter(up), &CardFact::up);
  const bool alike = std::ranges::all_of(up, [&](const CardFact& card) {
    return card.rate && card.rate == up.front().rate && card.transport == up.front().transport;
  });
  if (up.empty() || !alike ||
      std::ranges::any_of(adapters, [](const Adapter& a) { return a.fact.has_value(); })) {
    return;
  }
  d.assume(
      "inter.rate_per_nic",
      fmt::format("{:.0f} Gb/s: files call the adapters differently ({}, {}), but all that have "
                  "a rate have this one",
                  up.front().rate->value() * 8e-9, adapters.front().name, up.front().name),
      to_string(up.front().place));
  for (Adapter& a : adapters) {
    a.fact = up.front();
  }
}

std::vector<Adapter> adapters_of(Draft& d) {
  std::map<std::string, CardFact> facts;
  for (const CardFact& port : d.facts.cards) {
    const auto [at, first] = facts.emplace(port.name, port);
    CardFact& card = at->second;
    if (!first && port.up && !card.up) {  // of several ports one is enough
      card = port;
    } else if (!first && port.up && port.rate && card.place.file == port.place.file) {
      d.assume(
          "inter.rate_per_nic",
          fmt::format("one port of {}: it is listed as up more than once, and whether these are "
                      "ports or nodes is not said",
                      card.name),
          to_string(port.place));
    }
  }
  std::vector<Adapter> adapters;
  if (d.layout) {
    for (const Card& card : d.layout->cards) {
      Adapter a{.name = card.name, .nearest = Way::sys, .fact = {}};
      for (const Between& between : card.to) {
        a.nearest = between.way == Way::unknown ? a.nearest : std::min(a.nearest, between.way);
      }
      if (const auto known = facts.find(card.name); known != facts.end()) {
        a.fact = known->second;
      }
      adapters.push_back(std::move(a));
    }
  }
  if (!adapters.empty()) {
    adopt_common(d, adapters);
  } else {
    for (const auto& [name, card] : facts) {
      adapters.push_back({.name = name, .nearest = Way::sys, .fact = card});
    }
  }
  return adapters;
}

/// Whether a device's name is one of those under which RDMA drivers list theirs, which NCCL takes
/// before sockets.
bool is_rdma(std::string_view name) {
  constexpr std::array<std::string_view, 4> drivers{"mlx5", "bnxt_re", "irdma", "ionic"};
  return std::ranges::any_of(drivers,
                             [&](std::string_view driver) { return name.starts_with(driver); });
}

std::string names_of(const std::vector<Adapter>& adapters) {
  std::vector<std::string_view> names;
  for (const Adapter& a : adapters) {
    names.push_back(a.name);
  }
  constexpr std::size_t most = 12;
  const bool long_list = names.size() > most;
  names.resize(std::min(names.size(), most));
  return fmt::format("{}{}", fmt::join(names, ", "), long_list ? ", …" : "");
}

/// GPUs of which no adapter's way is shown: of a table that was cut off.
std::vector<std::size_t> unseen_gpus(const Draft& d) {
  std::vector<std::size_t> unseen;
  for (std::size_t gpu = 0; d.layout && gpu < d.layout->between.size(); ++gpu) {
    if (std::ranges::all_of(d.layout->cards,
                            [&](const Card& c) { return c.to[gpu].way == Way::unknown; })) {
      unseen.push_back(gpu);
    }
  }
  return unseen;
}

/// Adapters may lie near GPUs that are not seen: as many as near the others.
void take_unseen(Draft& d, std::vector<Adapter>& near, std::vector<Adapter>& far) {
  const std::vector<std::size_t> unseen = unseen_gpus(d);
  const std::size_t gpus = static_cast<std::size_t>(d.gpus);
  if (unseen.empty() || unseen.size() == gpus || near.size() * gpus % (gpus - unseen.size()) != 0) {
    return;
  }
  const std::size_t more =
      std::min(far.size(), near.size() * gpus / (gpus - unseen.size()) - near.size());
  if (more == 0) {
    return;
  }
  const std::vector<Adapter> taken(far.begin(), far.begin() + static_cast<std::ptrdiff_t>(more));
  d.assume("inter.nics",
           fmt::format("with {}: their ways to GPU {} were cut off, and as many adapters are taken "
                       "to lie near these as near the others",
                       names_of(taken), fmt::join(unseen, ", ")),
           to_string(d.layout->place));
  near.insert(near.end(), taken.begin(), taken.end());
  far.erase(far.begin(), far.begin() + static_cast<std::ptrdiff_t>(more));
}

/// Adapters behind a switch with GPUs; if there are none, of the nearest kind there is. Those on
/// the same host bridge are taken, too, if only together they can be dealt out to the GPUs.
std::vector<Adapter> near_gpus(Draft& d, const std::vector<Adapter>& all) {
  const auto within = [&](Way longest) {
    std::vector<Adapter> near;
    std::ranges::copy_if(all, std::back_inserter(near),
                         [&](const Adapter& a) { return a.nearest <= longest; });
    return near;
  };
  const auto even = [&](const std::vector<Adapter>& some) {
    const auto count = static_cast<int>(some.size());
    return count > 0 && (d.gpus % count == 0 || count % d.gpus == 0);
  };
  Way longest = Way::pxb;
  for (const Way way : {Way::phb, Way::node, Way::sys}) {
    if (within(longest).empty() ||
        (way == Way::phb && !even(within(Way::pxb)) && even(within(way)))) {
      longest = way;
    }
  }
  std::vector<Adapter> near = within(longest);
  std::vector<Adapter> far;
  std::ranges::copy_if(all, std::back_inserter(far),
                       [&](const Adapter& a) { return a.nearest > longest; });
  take_unseen(d, near, far);
  if (!far.empty()) {
    d.assume("inter.nics",
             fmt::format("not {}: farther from all GPUs than the others (storage, management)",
                         names_of(far)),
             d.layout ? to_string(d.layout->place) : d.files());
  }
  return near;
}

std::vector<Adapter> without_down(Draft& d, std::vector<Adapter> all) {
  std::vector<Adapter> down;
  std::ranges::copy_if(all, std::back_inserter(down),
                       [](const Adapter& a) { return a.fact && !a.fact->up; });
  if (!down.empty()) {
    d.assume("inter.nics", fmt::format("not {}: not connected", names_of(down)),
             to_string(down.front().fact->place));
    std::erase_if(all, [](const Adapter& a) { return a.fact && !a.fact->up; });
  }
  return all;
}

/// What adapters have in common that work as one network.
struct Kind {
  std::string transport;  // "": not said
  double gigabits = 0;    // of each; 0: not said
  friend auto operator<=>(const Kind&, const Kind&) = default;
};

std::string to_string(const Kind& kind) {
  if (kind.gigabits == 0) {
    return kind.transport.empty() ? "of a rate that no file gives" : kind.transport;
  }
  return fmt::format("{}{}{:.0f} Gb/s", kind.transport, kind.transport.empty() ? "" : " of ",
                     kind.gigabits);
}

/// Whether its slot passes less than the port.
bool is_held(const Adapter& a) {
  return a.fact && a.fact->rate && a.fact->slot && *a.fact->slot < *a.fact->rate;
}

Kind kind_of(const Adapter& a) {
  Kind kind{.transport = a.fact ? a.fact->transport : ""};
  if (kind.transport.empty()) {
    kind.transport = transport_by_name(a.name);
  }
  if (a.fact && a.fact->rate) {
    kind.gigabits = rounded((is_held(a) ? *a.fact->slot : *a.fact->rate).value() * 8e-9);
  } else if (kind.transport == "efa") {
    kind.gigabits = 100;  // docs.aws.amazon.com/AWSEC2, "Elastic Fabric Adapter"
  }
  return kind;
}

/// Whether an adapter of which `said` is all that is known may be of `kind`.
bool may_be(const Kind& said, const Kind& kind) {
  return (said.transport.empty() || said.transport == kind.transport) &&
         (said.gigabits == 0 || said.gigabits == kind.gigabits);
}

/// The kind that brings the GPUs most: others beside it are for storage or management, and a rate
/// averaged over kinds is one that no adapter has.
Kind fastest_kind(const Draft& d, const std::vector<Adapter>& near) {
  std::map<Kind, int> said;
  for (const Adapter& a : near) {
    ++said[kind_of(a)];
  }
  const double usual = usual_rate(d).gigabits;
  Kind fastest;
  double most = 0;
  for (const Kind& kind : said | std::views::keys) {
    int adapters = 0;
    bool is_kind = true;  // no other says more
    for (const auto& [other, number] : said) {
      adapters += may_be(other, kind) ? number : 0;
      is_kind = is_kind && (other == kind || !may_be(kind, other));
    }
    const double brought =
        modelled_nics(adapters, d.gpus) * (kind.gigabits > 0 ? kind.gigabits : usual);
    if (is_kind && brought > most) {
      fastest = kind;
      most = brought;
    }
  }
  return fastest;
}

std::vector<Adapter> those_of(Draft& d, const Kind& kind, std::vector<Adapter> near) {
  std::vector<Adapter> others;
  std::set<std::string> other_kinds;
  for (const Adapter& a : near) {
    if (!may_be(kind_of(a), kind)) {
      others.push_back(a);
      other_kinds.insert(to_string(kind_of(a)));
    }
  }
  if (!others.empty()) {
    d.assume("inter.nics",
             fmt::format("not {}: {}, where the fastest are {}", names_of(others),
                         fmt::join(other_kinds, ", "), to_string(kind)),
             d.layout ? to_string(d.layout->place) : d.files());
  }
  std::erase_if(near, [&](const Adapter& a) { return !may_be(kind_of(a), kind); });
  return near;
}

struct Network {
  std::string transport;
  int adapters = 0;
  double gigabits = 0;   // of each
  bool known = true;     // the rate
  bool guessed = false;  // whether they are RDMA's
  std::string source;
};

/// `adapters`: of one kind.
Network network_of(Draft& d, const Kind& kind, const std::vector<Adapter>& adapters) {
  Network network{.transport = kind.transport,
                  .adapters = static_cast<int>(adapters.size()),
                  .gigabits = kind.gigabits,
                  .known = kind.gigabits > 0,
                  .source = d.layout ? to_string(d.layout->place) : d.files()};
  const auto silent =
      std::ranges::count_if(adapters, [](const Adapter& a) { return kind_of(a).gigabits == 0; });
  const auto rated =
      std::ranges::find_if(adapters, [](const Adapter& a) { return a.fact && a.fact->rate; });
  if (rated != adapters.end()) {
    network.source = to_string(rated->fact->place);
  }
  if (const auto held = std::ranges::find_if(adapters, is_held); held != adapters.end()) {
    d.assume("inter.rate_per_nic",
             fmt::format("{:.0f} Gb/s: what the PCIe link of an adapter of {:.0f} passes",
                         network.gigabits, held->fact->rate->value() * 8e-9),
             to_string(held->fact->place));
  }
  if (!network.known) {
    const Usual usual = usual_rate(d);
    network.gigabits = usual.gigabits;
    d.assume("inter.rate_per_nic",
             fmt::format("{}: no file gives the rate of {} adapters (ibstat would, or "
                         "--inter ib:{}x{:.0f}Gb/s)",
                         usual.source, silent, silent, usual.gigabits),
             "assumed");
  } else if (silent > 0) {
    d.assume("inter.rate_per_nic",
             fmt::format("{:.0f} Gb/s also of {} of {} adapters whose rate no file gives",
                         network.gigabits, silent, adapters.size()),
             network.source);
  }
  if (network.transport.empty()) {
    const bool board = d.catalog.transport(d.gpu.intra, "gpu").medium == "nvlink";
    const bool verbs =
        std::ranges::all_of(adapters, [](const Adapter& a) { return is_rdma(a.name); });
    network.transport = board ? "ib" : verbs ? "roce" : "ethernet";
    network.guessed = !board && !verbs;
    d.assume("inter.transport",
             fmt::format("{}: the adapters' names ({}) do not tell InfiniBand from RoCE{}",
                         network.transport, names_of(adapters),
                         network.guessed ? fmt::format(" or Ethernet; only within {:.0f} %, unless "
                                                       "--inter says it",
                                                       100 * guessed_transport_spread)
                                         : ""),
             "assumed");
  }
  return network;
}

/// Adapters that are known to lie near GPUs are used, all of them; of others, nobody says which are
/// for storage, and no more count than divide the GPUs.
void put(Draft& d, const Network& network) {
  const int modelled = modelled_nics(network.adapters, d.gpus);
  double rate = network.gigabits;
  std::string source = network.source;
  if (modelled != network.adapters && d.layout) {
    rate *= static_cast<double>(network.adapters) / modelled;
    source = fmt::format("{} of {:.0f} Gb/s, {}", network.adapters, network.gigabits, source);
    d.assume("inter.nics", in_place_of(network.adapters, modelled, rate, d.gpus), network.source);
  } else if (modelled != network.adapters) {
    d.assume("inter.nics",
             fmt::format("{} of {}: as many as divide {} GPUs; which of them are near GPUs no file "
                         "says (nvidia-smi topo -m would)",
                         modelled, network.adapters, d.gpus),
             network.source);
  }
  // What GPUs send between nodes passes their slots, whatever adapters could carry (Grace's links
  // to GPUs are wider).
  if (!d.gpu.pcie.empty() && !d.gpu.nvlink_domain) {
    const double slots = d.catalog.transport(d.gpu.pcie, "gpu").rate->value.value() * 8e-9 *
                         static_cast<double>(d.gpus) / modelled;
    if (rate > slots) {
      rate = slots;
      d.assume(
          "inter.rate_per_nic",
          fmt::format("{:.0f} Gb/s: more does not pass the GPUs' slots ({})", rate, d.gpu.pcie),
          source);
    }
  }
  const auto counted = [&](std::int64_t n) { return d.numbers.counted(n, network.source); };
  d.document.put_inter(
      {.transport = network.transport,
       .nics = counted(std::int64_t{modelled} * d.boards),
       .rate_per_nic = network.known
                           ? d.numbers.quantity(rate, "Gb/s", source, 0.0)
                           : d.numbers.assumed(rate, "Gb/s", "no file gives the adapters' rate",
                                               assumed_rate_spread),
       .gpus_per_nic = counted(d.gpus / modelled)});
  if (!network.known || network.guessed) {
    d.document.put_inter_spread(network.guessed ? guessed_transport_spread : assumed_rate_spread);
  }
}

/// What --inter says.
void put_given(Draft& d) {
  std::vector<Assumption> filled;
  const MachineSpec composed = d.catalog.compose({.gpu = d.gpu.name,
                                                  .gpus_per_node = d.gpus * d.boards,
                                                  .intra = "",
                                                  .inter = d.options.inter},
                                                 filled);
  const InterSpec& inter = *composed.inter;
  std::ranges::copy_if(filled, std::back_inserter(d.assumptions),
                       [](const Assumption& a) { return a.what.starts_with("inter"); });
  d.document.put_inter({.transport = inter.transport.name,
                        .nics = d.numbers.counted(inter.nics.value, "--inter"),
                        .rate_per_nic = d.numbers.quantity(inter.rate_per_nic.value.value() * 8e-9,
                                                           "Gb/s", "--inter", 0.0),
                        .gpus_per_nic = d.numbers.counted(inter.gpus_per_nic.value, "--inter")});
}

/// Adapters are dealt out to all GPUs, also where they lie near some of them alone.
void tell_uneven(Draft& d, const std::vector<Adapter>& near) {
  if (!d.layout) {
    return;
  }
  std::vector<bool> served(d.layout->between.size(), false);
  for (const Card& card : d.layout->cards) {
    const auto at = std::ranges::find(near, card.name, &Adapter::name);
    for (std::size_t gpu = 0; at != near.end() && gpu < served.size(); ++gpu) {
      const Way way = card.to[gpu].way;
      served[gpu] = served[gpu] || (way != Way::unknown && way <= std::max(at->nearest, Way::pxb));
    }
  }
  const std::vector<std::size_t> unseen = unseen_gpus(d);
  std::vector<std::size_t> far;
  for (std::size_t gpu = 0; gpu < served.size(); ++gpu) {
    if (!served[gpu] && std::ranges::find(unseen, gpu) == unseen.end()) {
      far.push_back(gpu);
    }
  }
  if (!far.empty() && far.size() < served.size()) {
    d.assume("inter.gpus_per_nic",
             fmt::format("as if adapters were dealt out to all GPUs: none lies near GPU {}",
                         fmt::join(far, ", ")),
             to_string(d.layout->place));
  }
}

bool ran_on_several_hosts(const Facts& facts) {
  return std::ranges::any_of(facts.tests, [](const NcclTest& t) { return t.hosts.size() > 1; });
}

}  // namespace

void put_network(Draft& d) {
  if (!d.options.inter.empty()) {
    put_given(d);
    return;
  }
  const std::vector<Adapter> all = without_down(d, adapters_of(d));
  if (all.size() > most_adapters) {
    throw InputError(d.files(), fmt::format("{} network adapters of a node are more than {}",
                                            all.size(), most_adapters));
  }
  if (!all.empty()) {
    std::vector<Adapter> near = near_gpus(d, all);
    const Kind kind = fastest_kind(d, near);
    near = those_of(d, kind, std::move(near));
    put(d, network_of(d, kind, near));
    tell_uneven(d, near);
    return;
  }
  if (!ran_on_several_hosts(d.facts)) {
    d.assume("inter", "none: no file lists a network adapter; several nodes need --inter",
             d.files());
    return;
  }
  const Usual usual = usual_rate(d);
  const int adapters = usual.gigabits > 100 ? d.gpus : 1;
  d.assume("inter",
           fmt::format("{} adapters of {}: tests ran on several hosts, but no file lists adapters "
                       "(--inter would)",
                       adapters, usual.source),
           "assumed");
  put(d, {.transport = usual.gigabits > 100 ? "ib" : "ethernet",
          .adapters = adapters,
          .gigabits = usual.gigabits,
          .known = false,
          .source = d.files()});
}

}  // namespace spp::imports
