#include "runtime/device/cuda/nccl_plan.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace spp::runtime::cuda {
namespace {

/// Whose communicator an op needs.
std::optional<RankGroup> group_of(const OpBody& body, int ranks) {
  if (const auto* collective = op_if<Collective>(body)) {
    return collective->group.size > 1 ? std::optional(collective->group) : std::nullopt;
  }
  const auto* exchange = op_if<Exchange>(body);
  const bool talks =
      exchange != nullptr && (exchange->to != exchange->from || exchange->to.valid());
  return talks && ranks > 1 ? std::optional(RankGroup{.first = 0, .stride = 1, .size = ranks})
                            : std::nullopt;
}

auto order_of(const CommunicatorKey& key) {
  return std::tuple(key.stream.value, key.group.stride, key.group.size, key.group.first);
}

}  // namespace

std::vector<CommunicatorLayer> communicator_layers(
    std::span<const std::vector<StoredProgram>* const> phases, int ranks) {
  std::vector<CommunicatorKey> keys;
  for (const std::vector<StoredProgram>* programs : phases) {
    for (const StoredProgram& program : *programs) {
      for (const StoredOp& stored : program.ops) {
        if (const auto group = group_of(stored.op.body, ranks)) {
          keys.push_back({.stream = stored.op.stream, .group = *group});
        }
      }
    }
  }
  const RankGroup everybody{.first = 0, .stride = 1, .size = ranks};
  if (!keys.empty() && std::ranges::find(keys, everybody, &CommunicatorKey::group) == keys.end()) {
    keys.push_back({.stream = StreamId(0), .group = everybody});
  }
  std::ranges::sort(keys, {}, order_of);
  const auto repeated = std::ranges::unique(keys);
  keys.erase(repeated.begin(), repeated.end());

  std::vector<CommunicatorLayer> layers;
  std::set<int> taken;  // ranks of the last layer
  for (const CommunicatorKey& key : keys) {
    bool fits = !layers.empty() && layers.back().front().stream == key.stream;
    for (int i = 0; i < key.group.size; ++i) {
      fits = fits && !taken.contains(key.group.rank(i).value);
    }
    if (!fits) {
      layers.emplace_back();
      taken.clear();
    }
    layers.back().push_back(key);
    for (int i = 0; i < key.group.size; ++i) {
      taken.insert(key.group.rank(i).value);
    }
  }
  return layers;
}

const CommunicatorKey& meeting_place(const std::vector<CommunicatorLayer>& layers, int ranks) {
  const RankGroup everybody{.first = 0, .stride = 1, .size = ranks};
  for (const CommunicatorLayer& layer : layers) {
    if (layer.front().group == everybody) {
      return layer.front();
    }
  }
  throw InternalError("communicators, but none of all ranks");
}

std::vector<std::string> slow_connections(std::string_view log) {
  const std::map<std::string_view, std::string_view> slow{
      {"SHM", "memory of the host (SHM)"}, {"NET/Socket", "TCP sockets (NET/Socket)"}};
  std::map<std::string_view, std::set<std::string_view>> pairs;  // by transport: "0[0] -> 1[1]"
  while (!log.empty()) {
    const std::size_t end = log.find('\n');
    const std::string_view line = log.substr(0, end);
    log = end == std::string_view::npos ? "" : log.substr(end + 1);
    // host:pid:tid [dev] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct
    const std::size_t via = line.find(" via ");
    const std::size_t from = line.find(" : ");
    if (via == std::string_view::npos || from == std::string_view::npos || from > via ||
        line.find("Channel ") == std::string_view::npos) {
      continue;
    }
    const std::string_view transport = line.substr(via + 5);
    for (const auto& [word, meaning] : slow) {
      if (transport.starts_with(word)) {
        pairs[meaning].insert(line.substr(from + 3, via - from - 3));
      }
    }
  }
  std::vector<std::string> lines;
  for (const auto& [meaning, connections] : pairs) {
    lines.push_back(fmt::format(
        "NCCL connects {} pairs of ranks through {}, such as {}: that is slow, and not what plans "
        "are made for",
        connections.size(), meaning, *connections.begin()));
  }
  return lines;
}

}  // namespace spp::runtime::cuda
