#include "runtime/device/network.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace spp::runtime {
namespace {

Seconds parse_latency(std::string_view text, std::string_view where) {
  for (const std::string_view unit : {"us", "ms", "ns"}) {
    if (text.ends_with(unit)) {
      return seconds_from(parse_double(text.substr(0, text.size() - 2), where), unit, where);
    }
  }
  throw InputError(where, fmt::format("'{}' is no latency, such as 5us", text));
}

EmulatedLink parse_link(std::string_view text, std::string_view where) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    throw InputError(where, fmt::format("'{}' is no link, such as 5us:100GB/s", text));
  }
  return {.alpha = parse_latency(text.substr(0, colon), where),
          .beta = parse_bandwidth(text.substr(colon + 1), where)};
}

}  // namespace

Seconds direct_time(const EmulatedNetwork& network, Rank self, std::span<const Incoming> messages) {
  Seconds longest{};
  for (const bool inter : {false, true}) {
    std::int64_t bytes = 0;
    bool any = false;
    for (const Incoming& message : messages) {
      if (message.from != self && (network.node(message.from) != network.node(self)) == inter) {
        bytes += message.bytes;
        any = true;
      }
    }
    if (any) {
      longest = std::max(longest, (inter ? network.inter : network.intra).time(bytes));
    }
  }
  return longest;
}

Seconds ring_time(const EmulatedNetwork& network, const RankGroup& group, std::int64_t bytes) {
  bool inter = false;
  for (int i = 1; i < group.size; ++i) {
    inter = inter || network.node(group.rank(i)) != network.node(group.rank(0));
  }
  Seconds edge = group.size > 1 ? network.intra.time(bytes) : Seconds(0);
  if (inter) {
    edge = std::max(edge, network.inter.time(bytes));
  }
  return edge * std::max(group.size - 1, 0);
}

EmulatedNetwork parse_network(std::string_view text, std::string_view where) {
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    parts.push_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) {
      break;
    }
    rest = rest.substr(comma + 1);
  }
  if (parts.size() != 1 && parts.size() != 3) {
    throw InputError(where,
                     fmt::format("'{}' is no network: give one link (5us:100GB/s), or links inside "
                                 "and between nodes and the ranks of a node "
                                 "(5us:100GB/s,20us:12.5GB/s,4)",
                                 text));
  }
  EmulatedNetwork network{.intra = parse_link(parts[0], where),
                          .inter = {},
                          .ranks_per_node = std::numeric_limits<int>::max()};
  if (parts.size() == 3) {
    network.inter = parse_link(parts[1], where);
    network.ranks_per_node = static_cast<int>(parse_int(parts[2], where, 1, 1'000'000));
  }
  return network;
}

}  // namespace spp::runtime
