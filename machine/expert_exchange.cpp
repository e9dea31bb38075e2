#include "machine/expert_exchange.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cmath>

namespace spp {
namespace {

constexpr std::int64_t most_row = 1 << 20;
constexpr std::int64_t most_exchange_sms = 4096;

ExpertExchangeSpec::Way read_way(const JsonView& view) {
  view.allow_only({"start", "per_sm", "low_latency_start", "low_latency_nvlink"});
  return {.start = read_seconds(view.at("start")),
          .per_sm = read_bandwidth(view.at("per_sm")),
          .low_latency_start = read_seconds(view.at("low_latency_start")),
          .low_latency_nvlink = read_fraction(view.at("low_latency_nvlink"))};
}

}  // namespace

ExpertExchangeSpec read_expert_exchange(const JsonView& view) {
  view.allow_only({"dispatch", "combine", "row", "network", "network_start", "sms"});
  return {.dispatch = read_way(view.at("dispatch")),
          .combine = read_way(view.at("combine")),
          .row = read_count(view.at("row"), most_row),
          .network = read_fraction(view.at("network")),
          .network_start = read_seconds(view.at("network_start")),
          .sms = read_count(view.at("sms"), most_exchange_sms)};
}

double other_parts(std::int64_t experts, std::int64_t experts_per_token, int parts) {
  if (parts < 2) {
    return 0;
  }
  // That none of the token's experts lies in a given part: choose them one after the other.
  const std::int64_t outside = experts - experts / parts;
  double none = 1;
  for (std::int64_t i = 0; i < experts_per_token && none > 0; ++i) {
    none *= static_cast<double>(std::max<std::int64_t>(outside - i, 0)) /
            static_cast<double>(experts - i);
  }
  return (parts - 1) * (1 - none);
}

Seconds exchange_time(const ExpertExchangeSpec& spec, const ExpertExchangeWork& work,
                      Bandwidth nvlink, Bandwidth nic) {
  ensure(work.experts_per_token <= work.experts, "a token's experts are different ones");
  const ExpertExchangeSpec::Way& way = work.combine ? spec.combine : spec.dispatch;
  const auto hidden = static_cast<double>(work.hidden);
  const double row = static_cast<double>(work.tokens) * hidden * work.bytes;
  const double network_rate = nic.value() * spec.network.value;
  if (work.low_latency) {
    const double copies = row * static_cast<double>(work.experts_per_token);
    if (work.nodes == 1) {
      return way.low_latency_start.value + Seconds(copies * (work.ranks - 1) / work.ranks /
                                                   (nvlink.value() * way.low_latency_nvlink.value));
    }
    return way.low_latency_start.value + spec.network_start.value +
           Seconds(copies * (work.nodes - 1) / work.nodes / network_rate);
  }
  const auto sms = static_cast<double>(work.sms > 0 ? work.sms : spec.sms.value);
  const double sm_rate =
      way.per_sm.value.value() * hidden / (hidden + static_cast<double>(spec.row.value));
  const double inside = row * other_parts(work.experts, work.experts_per_token, work.ranks) /
                        std::min(sms * sm_rate, nvlink.value());
  const double across =
      work.nodes == 1
          ? 0
          : row * other_parts(work.experts, work.experts_per_token, work.nodes) / network_rate;
  return way.start.value + Seconds(std::max(inside, across));
}

}  // namespace spp
