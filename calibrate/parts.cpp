#include "calibrate/parts.hpp"

#include "base/error.hpp"
#include "calibrate/assumptions.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

namespace spp::calibrate {
namespace {

constexpr std::array timed_kinds{CommKind::send_recv, CommKind::all_to_all, CommKind::all_gather,
                                 CommKind::reduce_scatter};

/// Segments of one kind as parts of `nominal` bytes/s; where it was not measured, of another one:
/// of messages, or else of the first that was.
Json segments_json(const FittedTransport& t, CommKind kind, double nominal,
                   const Numbers& numbers) {
  const auto has_lines = [&](CommKind k) {
    return !t.segments.at(static_cast<std::size_t>(k)).empty();
  };
  const CommKind like =
      has_lines(kind) ? kind : *std::ranges::find_if(timed_kinds, has_lines);  // messages first
  const auto at = static_cast<std::size_t>(like);
  const bool own = like == kind;
  const std::int64_t samples = own ? t.samples.at(at) : 0;
  const std::string source =
      samples > 0 ? fmt::format("measured, medians of {} samples, {}", samples, numbers.date())
      : own       ? "assumed: messages were not measured"
            : fmt::format("assumed: as {}, {} was not measured", to_string(like), to_string(kind));
  const auto number = [&](double value, std::string_view unit, double spread) {
    return numbers.taken({.value = rounded(value),
                          .spread = samples > 0 ? spread : std::max(spread, assumed_spread),
                          .source = source},
                         unit);
  };
  Json list = Json::array();
  const auto& lines = t.segments.at(at);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const LineFit& line = lines[i].line;
    const double fraction = line.per_unit > 0 ? std::min(1.0, 1 / (line.per_unit * nominal)) : 1;
    const double spread = std::max(line.spread, 0.005);
    const double of_ranks = like == CommKind::all_to_all ? t.all_to_all_latency_spread : 0;
    list.push_back(
        segment_json({.up_to = i + 1 == lines.size()
                                   ? Json()
                                   : numbers.counted(std::llround(lines[i].up_to), source, "B"),
                      .latency = number(line.latency * 1e6, "us", std::max(spread, of_ranks)),
                      .fraction = number(fraction, "fraction", spread)}));
  }
  return list;
}

/// Factors on the rate by ranks of an all-to-all.
Json factors_json(const FittedTransport& t, const Numbers& numbers) {
  Json rows = Json::array();
  for (const auto& [ranks, factor] : t.all_to_all_by_ranks) {
    rows.push_back(factor_json(
        numbers.counted(ranks, "groups measured"),
        numbers.quantity(
            factor, "fraction",
            fmt::format("measured, {}, rate against the best number of ranks", numbers.date()),
            0.05)));
  }
  return rows;
}

Json hop_json(const FittedTransport& t, const Numbers& numbers) {
  return numbers.fitted(t.hop, 1e6, "us", "small messages round rings");
}

/// Segments that were not measured, as parts of `nominal` instead of `most`.
Json kept_json(const std::vector<Segment>& segments, Bandwidth most, double nominal,
               const Numbers& numbers) {
  const double part = most.value() / nominal;
  Json list = Json::array();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    const Sourced<double> latency{.value = s.latency.value.count() * 1e6,
                                  .spread = s.latency.spread,
                                  .source = s.latency.source};
    Sourced<double> fraction = s.fraction;
    fraction.value *= part;
    fraction.source = fmt::format("{}; of {:.3g} GB/s", fraction.source, most.value() * 1e-9);
    list.push_back(
        segment_json({.up_to = i + 1 == segments.size()
                                   ? Json()
                                   : numbers.counted(s.up_to.value(), s.fraction.source, "B"),
                      .latency = numbers.taken(latency, "us"),
                      .fraction = numbers.taken(fraction)}));
  }
  return list;
}

/// What takes the place of the numbers of `known`, whose nominal rate is `nominal` and whose
/// fractions are of `carried` at most: those that are measured are of the nominal rate.
TransportNumbers measured(const TransportSpec& known, const FittedTransport& t, double nominal,
                          Bandwidth carried, const Numbers& numbers) {
  TransportNumbers json;
  for (const CommKind kind : timed_kinds) {
    const auto at = static_cast<std::size_t>(kind);
    if (t.segments.at(at).empty()) {
      if (carried.value() < nominal) {
        json.segments.at(at) = kept_json(known.segments.at(at), carried, nominal, numbers);
      }
      continue;
    }
    // One number of ranks tells nothing of others: their factors stay.
    const bool one = kind == CommKind::all_to_all && t.all_to_all_by_ranks.size() == 1;
    const double factor = one ? known.all_to_all_factor(t.all_to_all_by_ranks.front().first) : 1;
    json.segments.at(at) = segments_json(t, kind, nominal * factor, numbers);
  }
  if (t.all_to_all_by_ranks.size() > 1) {
    json.all_to_all_by_ranks = factors_json(t, numbers);
  }
  if (t.hop.samples > 0) {
    json.hop_latency = hop_json(t, numbers);
  }
  if (known.medium == "network") {
    json.fitted_at = numbers.quantity(nominal * 1e-9, "GB/s", "rate of the machine's NICs", 0);
  }
  return json;
}

}  // namespace

Json whole_transport(const FittedTransport& t, TransportWords words, const Numbers& numbers) {
  TransportNumbers json;
  for (const CommKind kind : timed_kinds) {
    json.segments.at(static_cast<std::size_t>(kind)) =
        segments_json(t, kind, t.rate.value, numbers);
  }
  json.hop_latency = hop_json(t, numbers);
  if (!t.segments.at(static_cast<std::size_t>(CommKind::all_reduce)).empty()) {
    json.all_reduce = rings_json(
        segments_json(t, CommKind::all_reduce, t.rate.value, numbers), hop_json(t, numbers),
        numbers.quantity(1, "fraction", "no trees across nodes: rings of this runtime", 0));
  }
  if (!t.all_to_all_by_ranks.empty()) {
    json.all_to_all_by_ranks = factors_json(t, numbers);
  }
  json.cpu_share = std::move(words.cpu_share);
  json.sms = std::move(words.sms);
  Json rate = words.medium == "network" ? Json() : numbers.fitted(t.rate, 1e-9, "GB/s", words.rate);
  return transport_json(
      {.name = std::move(words.name), .medium = std::move(words.medium), .rate = std::move(rate)},
      std::move(json));
}

void put_links(MachineDocument& machine, const MachineSpec& known,
               const std::vector<Series>& series, Sharing sharing, const Numbers& numbers) {
  if (sharing.per_node > known.gpus_per_node.value) {
    throw InputError("--topology",
                     fmt::format("'{}' has {} GPUs a node, but {} ranks ran on each", known.name,
                                 known.gpus_per_node.value, sharing.per_node));
  }
  const auto fit = [&](std::string_view scope, const TransportSpec& link) {
    sharing.own_copy = link.own_copy;
    sharing.hop = link.hop_latency.value.count();
    return fit_transport(series, scope, sharing);
  };
  if (const auto intra = fit("intra", known.intra)) {
    put_numbers(machine.intra_transport(),
                measured(known.intra, *intra, known.intra_rate.value(), known.intra_rate, numbers));
  }
  if (known.inter) {
    const TransportSpec& link = known.inter->transport;
    sharing.ranks_per_nic =
        static_cast<int>(std::min<std::int64_t>(sharing.per_node, known.inter->gpus_per_nic.value));
    if (const auto inter = fit("inter", link)) {
      put_numbers(machine.inter_transport(),
                  measured(link, *inter, known.inter->rate_per_nic.value.value(),
                           known.inter->rate(), numbers));
    }
  }
}

InterNumbers fitted_network(const FittedTransport& t, Json transport, int per_node,
                            const Numbers& numbers) {
  constexpr std::string_view all_pairs = "one pair against all pairs of two nodes";
  return {.transport = std::move(transport),
          .nics = numbers.counted(t.nics, std::string(all_pairs)),
          .rate_per_nic = numbers.fitted(t.rate, 1e-9, "GB/s", "all pairs of two nodes at once"),
          .gpus_per_nic = numbers.counted(per_node / t.nics, std::string(all_pairs))};
}

Json fitted_attention(const AttentionKernelSpec& kernel, const FittedAttention& a,
                      const Numbers& numbers) {
  const auto rows = [&](const Sourced<std::int64_t>& n) {
    return numbers.counted(n.value, n.source, "rows");
  };
  const auto efficiency = [&](const Fitted& f, std::string_view what) {
    return numbers.fitted(f, 1, "fraction", fmt::format("{} blocks, part of matrix_rate", what));
  };
  const auto overhead = [&](const FittedAttention::OfPhase& phase) {
    return numbers.counted(std::llround(phase.item_overhead),
                           fmt::format("fitted to attention blocks, {}", numbers.date()), "rows");
  };
  return attention_json(
      {.q_tile = rows(kernel.q_tile),
       .kv_tile = rows(kernel.kv_tile),
       .backward_tile = rows(kernel.backward_tile),
       .ctas_per_sm = numbers.counted(kernel.ctas_per_sm.value, kernel.ctas_per_sm.source),
       .item_overhead = overhead(a.forward),
       .item_overhead_backward = overhead(a.backward),
       .forward_full = efficiency(a.forward.full, "unmasked forward"),
       .forward_causal = efficiency(a.forward.causal, "masked forward"),
       .backward_full = efficiency(a.backward.full, "unmasked backward"),
       .backward_causal = efficiency(a.backward.causal, "masked backward"),
       .head_dim_64 = numbers.taken(kernel.head_dim_64),
       .head_dim_256 = kernel.head_dim_256 ? numbers.taken(*kernel.head_dim_256) : Json(),
       .startup = numbers.fitted(a.forward.startup, 1e6, "us", "forward blocks"),
       .startup_backward = numbers.fitted(a.backward.startup, 1e6, "us", "backward blocks"),
       .forward_order = kernel.forward_order,
       .backward_order = kernel.backward_order});
}

Json fitted_generation(GenerationParts parts, const FittedMemory& memory, const Numbers& numbers) {
  return generation_json(
      {.name = std::move(parts.name),
       .kernel = parts.kernel.kernel,
       .attention = std::move(parts.attention),
       .gemm = std::move(parts.gemm),
       .memory_efficiency = numbers.fitted(memory.efficiency, 1, "fraction",
                                           "merge, accumulate, cast, copy, row_dot together"),
       .layer = std::move(parts.layer),
       .launch = numbers.fitted(memory.launch, 1e6, "us", "an op of the executor"),
       .group = std::move(parts.group)});
}

Json assumed_gemm(int tile, const Numbers& numbers) {
  return gemm_json(
      {.efficiency = numbers.assumed(0.9, "fraction", "a plain product is close to the peak"),
       .startup = numbers.assumed(5, "us", "a call of a library"),
       .tile = numbers.counted(tile, "assumed: blocking of a library", "rows")});
}

Json peaks_json(const std::map<DType, Fitted>& peaks, const Numbers& numbers) {
  Json rates = Json::object();
  for (const auto& [dtype, peak] : peaks) {
    rates[std::string(to_string(dtype))] =
        numbers.fitted(peak, 1e-9, "GFLOP/s", "1.1 times the fastest kernel");
  }
  return rates;
}

}  // namespace spp::calibrate
