#include "cli/calibration_json.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cmath>

namespace spp::cli {
namespace {

std::string_view to_string(ItemOrder order) {
  return order == ItemOrder::shortest_first  ? "shortest_first"
         : order == ItemOrder::longest_first ? "longest_first"
                                             : "longest_first_of_all";
}

/// `transport`: `known` as a document.
void put_measured(Json& transport, const TransportSpec& known, const FittedTransport& t,
                  double nominal, const Numbers& numbers) {
  for (const auto& [kind, key] :
       {std::pair{CommKind::send_recv, "p2p"}, std::pair{CommKind::all_to_all, "all_to_all"},
        std::pair{CommKind::all_gather, "all_gather"},
        std::pair{CommKind::reduce_scatter, "reduce_scatter"}}) {
    if (t.segments.at(static_cast<std::size_t>(kind)).empty()) {
      continue;
    }
    // One number of ranks tells nothing of others: their factors stay.
    const bool one = kind == CommKind::all_to_all && t.all_to_all_by_ranks.size() == 1;
    const double factor = one ? known.all_to_all_factor(t.all_to_all_by_ranks.front().first) : 1;
    transport[key] = segments_json(t, kind, nominal * factor, numbers);
  }
  if (t.all_to_all_by_ranks.size() > 1) {
    transport["all_to_all_by_ranks"] = factors_json(t, numbers);
  }
  if (t.hop.samples > 0) {
    transport["hop_latency"] = numbers.fitted(t.hop, 1e6, "us", "small messages round rings");
  }
  if (known.medium == "network") {
    transport["fitted_at"] =
        numbers.quantity(nominal * 1e-9, "GB/s", "rate of the machine's NICs", 0);
  }
}

}  // namespace

Json segments_json(const FittedTransport& t, CommKind kind, double nominal,
                   const Numbers& numbers) {
  const bool own = !t.segments.at(static_cast<std::size_t>(kind)).empty();
  const auto at = static_cast<std::size_t>(own ? kind : CommKind::send_recv);
  const std::string source =
      own ? fmt::format("measured, medians of {} samples, {}", t.samples.at(at), numbers.date())
          : fmt::format("assumed: as p2p, {} was not measured", spp::to_string(kind));
  Json list = Json::array();
  const auto& lines = t.segments.at(at);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const LineFit& line = lines[i].line;
    const double fraction = line.per_unit > 0 ? std::min(1.0, 1 / (line.per_unit * nominal)) : 1;
    const double spread = std::max(line.spread, 0.005);
    list.push_back({{"up_to", i + 1 == lines.size()
                                  ? Json()
                                  : numbers.counted(std::llround(lines[i].up_to), source, "B")},
                    {"latency", numbers.quantity(line.latency * 1e6, "us", source, spread)},
                    {"fraction", numbers.quantity(fraction, "fraction", source, spread)}});
  }
  return list;
}

Json factors_json(const FittedTransport& t, const Numbers& numbers) {
  Json rows = Json::array();
  for (const auto& [ranks, factor] : t.all_to_all_by_ranks) {
    rows.push_back(
        {{"ranks", numbers.counted(ranks, "groups measured")},
         {"factor",
          numbers.quantity(
              factor, "fraction",
              fmt::format("measured, {}, rate against the best number of ranks", numbers.date()),
              0.05)}});
  }
  return rows;
}

Json transport_json(const FittedTransport& t, const TransportWords& words, const Numbers& numbers) {
  const bool network = words.medium == "network";
  Json json = Numbers::headed("transport", words.name);
  json["medium"] = words.medium;
  json["scope"] = network ? "inter" : "intra";
  json["rate"] = network ? Json() : numbers.fitted(t.rate, 1e-9, "GB/s", words.rate);
  const auto segments = [&](CommKind kind) {
    return segments_json(t, kind, t.rate.value, numbers);
  };
  json["p2p"] = segments(CommKind::send_recv);
  json["all_to_all"] = segments(CommKind::all_to_all);
  json["all_gather"] = segments(CommKind::all_gather);
  json["reduce_scatter"] = segments(CommKind::reduce_scatter);
  json["hop_latency"] = numbers.fitted(t.hop, 1e6, "us", "small messages round rings");
  if (!t.all_to_all_by_ranks.empty()) {
    json["all_to_all_by_ranks"] = factors_json(t, numbers);
  }
  return json;
}

void put_links(Json& machine, const MachineSpec& known, const std::vector<Series>& series,
               Sharing sharing, const Numbers& numbers) {
  if (sharing.per_node > known.gpus_per_node.value) {
    throw InputError("--topology",
                     fmt::format("'{}' has {} GPUs a node, but {} ranks ran on each", known.name,
                                 known.gpus_per_node.value, sharing.per_node));
  }
  const auto put = [&](std::string_view scope, const TransportSpec& link, Bandwidth nominal) {
    sharing.own_copy = link.own_copy;
    sharing.hop = link.hop_latency.value.count();
    if (const auto fitted = fit_transport(series, scope, sharing)) {
      put_measured(machine[scope]["transport"], link, *fitted, nominal.value(), numbers);
    }
  };
  put("intra", known.intra, known.intra_rate);
  if (known.inter) {
    sharing.ranks_per_nic =
        static_cast<int>(std::min<std::int64_t>(sharing.per_node, known.inter->gpus_per_nic.value));
    put("inter", known.inter->transport, known.inter->rate_per_nic.value);
  }
}

Json network_json(const FittedTransport& t, Json transport, int per_node, const Numbers& numbers) {
  constexpr std::string_view all_pairs = "one pair against all pairs of two nodes";
  return {{"transport", std::move(transport)},
          {"nics", numbers.counted(t.nics, std::string(all_pairs))},
          {"rate_per_nic", numbers.fitted(t.rate, 1e-9, "GB/s", "all pairs of two nodes at once")},
          {"gpus_per_nic", numbers.counted(per_node / t.nics, std::string(all_pairs))}};
}

Json attention_json(const AttentionKernelSpec& kernel, const FittedAttention& a,
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
  Json json = {
      {"q_tile", rows(kernel.q_tile)},
      {"kv_tile", rows(kernel.kv_tile)},
      {"backward_tile", rows(kernel.backward_tile)},
      {"ctas_per_sm", numbers.counted(kernel.ctas_per_sm.value, kernel.ctas_per_sm.source)},
      {"item_overhead", overhead(a.forward)},
      {"item_overhead_backward", overhead(a.backward)},
      {"forward_full", efficiency(a.forward.full, "unmasked forward")},
      {"forward_causal", efficiency(a.forward.causal, "masked forward")},
      {"backward_full", efficiency(a.backward.full, "unmasked backward")},
      {"backward_causal", efficiency(a.backward.causal, "masked backward")},
      {"head_dim_64", numbers.taken(kernel.head_dim_64)},
      {"startup", numbers.fitted(a.forward.startup, 1e6, "us", "forward blocks")},
      {"startup_backward", numbers.fitted(a.backward.startup, 1e6, "us", "backward blocks")}};
  if (kernel.head_dim_256) {
    json["head_dim_256"] = numbers.taken(*kernel.head_dim_256);
  }
  if (kernel.forward_order != ItemOrder::unknown) {
    json["forward_order"] = to_string(kernel.forward_order);
  }
  if (kernel.backward_order != ItemOrder::unknown) {
    json["backward_order"] = to_string(kernel.backward_order);
  }
  return json;
}

Json generation_json(const GenerationParts& parts, const FittedMemory& memory,
                     const Numbers& numbers) {
  Json json = Numbers::headed("generation", parts.name);
  json["kernel"] = parts.kernel.kernel;
  json["attention"] = parts.attention;
  json["gemm"] = parts.gemm;
  json["elementwise"] = {
      {"memory_efficiency", numbers.fitted(memory.efficiency, 1, "fraction",
                                           "merge, accumulate, cast, copy, row_dot together")}};
  json["launch"] = numbers.fitted(memory.launch, 1e6, "us", "an op of the executor");
  return json;
}

Json assumed_gemm(int tile, const Numbers& numbers) {
  return {{"efficiency", numbers.assumed(0.9, "fraction", "a plain product is close to the peak")},
          {"startup", numbers.assumed(5, "us", "a call of a library")},
          {"tile", numbers.counted(tile, "assumed: blocking of a library", "rows")}};
}

Json peaks_json(const std::map<DType, Fitted>& peaks, const Numbers& numbers) {
  Json rates = Json::object();
  for (const auto& [dtype, peak] : peaks) {
    rates[std::string(spp::to_string(dtype))] =
        numbers.fitted(peak, 1e-9, "GFLOP/s", "1.1 times the fastest attention kernel");
  }
  return rates;
}

}  // namespace spp::cli
