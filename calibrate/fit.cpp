// Fits: from raw samples to the constants of the cost model.
//
// Sharing. Samples of messages were taken with `active` ranks at once, on fewer cores or GPUs
// perhaps. The simulator lets ranks share those itself, so what is written is the rate without
// sharing.
//
//   cores   with c core seconds a byte (suite links, `cpu`) and the rate R of a pair alone, a rank
//           spends share = min(1, c R) of its core, and `active` ranks on `cores` cores go
//           f = max(1, active share / cores) times slower than each alone
//   a GPU   a message is read and written: with a pair's rate R and the rate M at which all ranks
//           of a GPU reach its memory, f = max(1, 2 active R / M); 1 of the pair itself, and where
//           none was timed
#include "calibrate/fit.hpp"

#include "base/median.hpp"
#include "calibrate/assumptions.hpp"
#include "machine/kernel_cost.hpp"
#include "samples/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace spp::calibrate {
namespace {

/// Messages from which on the rate, not the latency, is seen.
constexpr double large_message = 64 << 10;
constexpr double small_message = 1 << 10;
constexpr double peak_margin = 1.1;

std::vector<const Series*> select(const std::vector<Series>& all, std::string_view suite,
                                  std::string_view what, std::string_view scope = "") {
  std::vector<const Series*> found;
  for (const Series& s : all) {
    if (s.suite == suite && s.what == what && s.scope == scope && !s.seconds.empty()) {
      found.push_back(&s);
    }
  }
  return found;
}

std::int64_t count(const std::vector<const Series*>& list) {
  std::int64_t n = 0;
  for (const Series* s : list) {
    n += static_cast<std::int64_t>(s->seconds.size());
  }
  return n;
}

double usual_spread(const std::vector<const Series*>& list) {
  std::vector<double> spreads;
  spreads.reserve(list.size());
  for (const Series* s : list) {
    spreads.push_back(spread_of(s->seconds));
  }
  return spreads.empty() ? 0 : median_of(spreads);
}

/// Lines through the medians, less `hop` seconds for each hop of a ring. A rank that copies its own
/// part moves as much as if it sent `own_copy` of that part, too.
std::vector<LineSegment> segments_of(const std::vector<const Series*>& list, double hop = 0,
                                     int own_hops = 0, double own_copy = 0) {
  std::vector<Sample> samples;
  for (const Series* s : list) {
    const double median = median_of(s->seconds);
    samples.push_back({.x = s->size * (1 + own_copy / std::max(1, s->ranks - 1)),
                       .seconds = std::max(median - hop * (s->ranks - own_hops), 0.05 * median)});
  }
  return samples.empty() ? std::vector<LineSegment>() : fit_segments(samples);
}

/// Best rate of the segments of `list` that reach large messages. 0 without. A line's slope is a
/// rate only where bytes take longer than latency, and below the largest messages only if latency
/// is a small part: what buffers take in at once (a bucket of tokens, a socket's) looks fast there.
double best_rate(const std::vector<LineSegment>& segments, const std::vector<const Series*>& list) {
  double largest = 0;
  for (const Series* s : list) {
    largest = std::max(largest, s->size);
  }
  double best = 0;
  for (const LineSegment& s : segments) {
    const double bytes_take = s.line.per_unit * std::min(s.up_to, largest);
    const double latencies = s.up_to < largest ? 4 : 1;
    if (s.up_to > large_message && bytes_take > latencies * s.line.latency) {
      best = std::max(best, 1 / s.line.per_unit);
    }
  }
  return best;
}

void slow_down(std::vector<LineSegment>& segments, double factor) {
  for (LineSegment& s : segments) {
    s.line.per_unit *= factor;
  }
}

/// Groups of as many ranks.
bool have_one_size(const std::vector<const Series*>& list) {
  return std::ranges::all_of(list,
                             [&](const Series* s) { return s->ranks == list.front()->ranks; });
}

/// Seconds of each hop of rings, from small messages. The simulator counts a hop for every member
/// but the first inside a node, and one for every node between nodes. Groups of two sizes and more
/// tell hops from what a collective takes whatever its ranks, which each kind has for itself.
Fitted hop_of(const std::vector<const Series*>& rings, int own_hops) {
  std::vector<Observation> observations;
  std::vector<const Series*> small;
  for (const Series* s : rings) {
    if (s->size <= small_message && s->ranks > own_hops) {
      const double hops = s->ranks - own_hops;
      const bool gather = s->what == to_string(CommKind::all_gather);
      observations.push_back(
          {.x = {hops, gather ? 1.0 : 0.0, gather ? 0.0 : 1.0}, .seconds = median_of(s->seconds)});
      small.push_back(s);
    }
  }
  if (small.empty()) {
    return {};
  }
  if (have_one_size(small)) {
    for (Observation& o : observations) {
      o.x.resize(1);
    }
  }
  return {.value = std::max(least_seconds, fit_nonnegative(observations).coefficients.front()),
          .spread = usual_spread(small),
          .samples = count(small)};
}

/// Rate of an all-to-all by ranks of the group, as part of the best. A rank copies its own part,
/// too, which the bytes sent do not show: the fewer ranks, the larger it is. The latency is that of
/// the best number of ranks, whose samples are left in `list`; its spread reaches the others'.
void fit_by_ranks(std::vector<const Series*>& list, FittedTransport& t) {
  std::map<int, std::vector<const Series*>> by_ranks;
  for (const Series* s : list) {
    by_ranks[s->ranks].push_back(s);
  }
  std::vector<double> latencies;
  double best = 0;
  double latency = 0;  // of the best
  for (const auto& [ranks, some] : by_ranks) {
    const std::vector<LineSegment> segments = segments_of(some);
    const double rate = best_rate(segments, some);
    t.all_to_all_by_ranks.emplace_back(ranks, rate);
    latencies.push_back(segments.front().line.latency);
    if (rate > best) {
      best = rate;
      latency = latencies.back();
      list = some;
    }
  }
  // Of groups whose messages were too small for a rate nothing is said.
  std::erase_if(t.all_to_all_by_ranks, [](const auto& row) { return row.second <= 0; });
  for (auto& [ranks, factor] : t.all_to_all_by_ranks) {
    factor /= best;
  }
  if (latency > 0) {
    constexpr double most_spread = 2;
    for (const double other : latencies) {
      t.all_to_all_latency_spread =
          std::clamp(std::abs(other / latency - 1), t.all_to_all_latency_spread, most_spread);
    }
  }
}

Fitted core_share(const std::vector<const Series*>& cpu, double rate_alone) {
  if (cpu.empty() || rate_alone <= 0) {
    return {.value = 1, .spread = assumed_spread, .samples = 0};
  }
  return {.value = std::clamp(median_of(cpu.front()->seconds) * rate_alone, 0.01, 1.0),
          .spread = usual_spread(cpu),
          .samples = count(cpu)};
}

/// NICs that a node seems to have: as many as ranks of it together reach one's rate.
int nics_of(double together, double alone, int per_node) {
  int best = 1;
  for (int nics = 1; nics <= per_node; ++nics) {
    const auto miss = [&](int n) { return std::abs(std::log(together / (alone * n))); };
    if (per_node % nics == 0 && miss(nics) < miss(best)) {
      best = nics;
    }
  }
  return best;
}

/// How many times slower ranks went than each alone (at `alone` bytes/s), because of what they
/// share but links. Inside a node cores move all bytes. Between nodes the link may be the limit:
/// cores that had time to spare at the rate that was reached slowed nobody down.
double slowdown(const std::vector<const Series*>& list, const FittedTransport& t,
                const Sharing& sharing, double alone) {
  const double active = list.front()->active;
  if (sharing.cores > 0) {
    constexpr double all_busy = 0.85;  // of the cores; moving bytes is not all that they do
    const double on_cores = active * sharing.nodes_on_cores / sharing.nodes;
    const double wanted = on_cores * t.cpu_share.value / static_cast<double>(sharing.cores);
    const double reached = best_rate(segments_of(list), list);
    const bool by_link = list.front()->scope == "inter" && alone > 0 && reached > 0 &&
                         wanted * reached / alone < all_busy;
    return by_link ? 1 : std::max(1.0, wanted);
  }
  if (sharing.ranks_per_gpu > 1 && sharing.gpu_memory_rate > 0 && list.front()->what != "pair") {
    const double on_gpu = std::min<double>(active, sharing.ranks_per_gpu);
    return std::max(1.0, on_gpu * 2 * alone / sharing.gpu_memory_rate);
  }
  return 1;
}

/// The collectives of one kind. Between nodes: those whose groups have one rank of each.
std::vector<const Series*> collectives_of(const std::vector<Series>& series, CommKind kind,
                                          std::string_view scope, const Sharing& sharing) {
  auto list = select(series, "collectives", to_string(kind), scope);
  std::erase_if(list,
                [&](const Series* s) { return scope == "inter" && s->ranks != sharing.nodes; });
  return list;
}

}  // namespace

AttentionShape shape_of(const AttentionBlock& b) {
  return {.q = b.q,
          .k = b.k,
          .q_heads = b.q_heads,
          .kv_heads = b.kv_heads,
          .head_dim = b.head_dim,
          .batch = b.batch,
          .mask = b.mask,
          .dtype = b.dtype,
          .phase = b.phase,
          .value_dim = b.value_dim};
}

std::optional<FittedTransport> fit_transport(const std::vector<Series>& series,
                                             std::string_view scope, const Sharing& sharing) {
  const bool inter = scope == "inter";
  const auto ring = select(series, "links", "ring", scope);
  const auto pair = select(series, "links", "pair", scope);
  const auto cpu = select(series, "links", "cpu", scope);
  FittedTransport t;
  const double alone = best_rate(segments_of(pair), pair);
  t.cpu_share = core_share(cpu, alone);

  const int own_hops = inter ? 0 : 1;
  std::vector<const Series*> rings;
  for (const CommKind kind : {CommKind::all_gather, CommKind::reduce_scatter}) {
    const auto some = collectives_of(series, kind, scope, sharing);
    rings.insert(rings.end(), some.begin(), some.end());
  }
  t.hop = hop_of(rings, own_hops);
  if (sharing.hop > 0 && (t.hop.samples == 0 || have_one_size(rings))) {
    t.hop = {.value = sharing.hop, .spread = 0, .samples = 0};
  } else if (t.hop.samples == 0 && !ring.empty()) {
    t.hop = {.value = median_of(ring.front()->seconds),
             .spread = usual_spread(ring),
             .samples = count(ring)};
  }

  std::vector<const Series*> timed;
  const auto set = [&](CommKind kind, const std::vector<const Series*>& list, bool in_rings) {
    if (list.empty()) {
      return;
    }
    timed.insert(timed.end(), list.begin(), list.end());
    auto& segments = t.segments.at(static_cast<std::size_t>(kind));
    segments =
        in_rings ? segments_of(list, t.hop.value, own_hops, sharing.own_copy) : segments_of(list);
    slow_down(segments, 1 / slowdown(list, t, sharing, alone));
    t.samples.at(static_cast<std::size_t>(kind)) = count(list);
    t.rate.value = std::max(t.rate.value, best_rate(segments, list));
  };
  /// A ring takes each of its steps twice: sums go round, then results.
  const auto set_all_reduce = [&](const std::vector<const Series*>& list) {
    if (!list.empty()) {
      const auto at = static_cast<std::size_t>(CommKind::all_reduce);
      t.segments.at(at) = segments_of(list, 2 * t.hop.value, own_hops, sharing.own_copy / 2);
      slow_down(t.segments.at(at), 1 / slowdown(list, t, sharing, alone));
      t.samples.at(at) = count(list);
    }
  };
  // Ranks that share a GPU are slowed down by it in a ring: what one reaches alone is a pair's.
  set(CommKind::send_recv, sharing.ranks_per_gpu > 1 && !pair.empty() ? pair : ring, false);
  if (const auto pairs = select(series, "links", "pairs", scope); !pairs.empty()) {
    auto lines = segments_of(pairs);
    slow_down(lines, 1 / slowdown(pairs, t, sharing, alone));
    const double together = best_rate(lines, pairs) * sharing.per_node;
    t.nics = nics_of(together, std::max(t.rate.value, least_seconds), sharing.per_node);
    t.rate.value = std::max(t.rate.value, together / t.nics);
  }
  const double ranks_per_nic = sharing.ranks_per_nic > 0
                                   ? sharing.ranks_per_nic
                                   : static_cast<double>(sharing.per_node) / t.nics;
  const double of_messages = t.rate.value;
  for (const CommKind kind :
       {CommKind::all_to_all, CommKind::all_gather, CommKind::reduce_scatter}) {
    auto list = collectives_of(series, kind, scope, sharing);
    if (kind == CommKind::all_to_all && !inter) {
      fit_by_ranks(list, t);
    }
    const double before = t.rate.value;
    set(kind, list, kind != CommKind::all_to_all);
    if (inter && !list.empty()) {  // ranks of a node shared its NICs
      auto& segments = t.segments.at(static_cast<std::size_t>(kind));
      slow_down(segments, 1 / ranks_per_nic);
      t.rate.value = of_messages > 0 ? of_messages : std::max(before, best_rate(segments, list));
    }
  }
  if (!inter) {
    set_all_reduce(collectives_of(series, CommKind::all_reduce, scope, sharing));
  }
  if (timed.empty()) {
    return std::nullopt;
  }
  if (t.rate.value <= 0) {  // too small messages to see a rate
    for (const Series* s : timed) {
      t.rate.value = std::max(t.rate.value, s->size / median_of(s->seconds));
    }
  }
  t.rate.samples = std::ranges::max(t.samples);
  t.rate.spread = usual_spread(ring.empty() ? timed : ring);
  return t;
}

std::map<DType, Fitted> fit_peaks(const std::vector<Series>& series) {
  std::map<DType, Fitted> peaks;
  for (const Series& s : series) {
    if ((s.block || s.gemm) && !s.seconds.empty()) {
      Fitted& peak = peaks[s.block ? s.block->dtype : s.gemm->dtype];
      const FlopCount flops = s.block ? flops_of(*s.block) : s.gemm->shape.flops();
      const double rate = flops.value() / median_of(s.seconds);
      peak.value = std::max(peak.value, peak_margin * rate);
      peak.spread = std::max(peak.spread, std::min(0.2, spread_of(s.seconds)));
      peak.samples += static_cast<std::int64_t>(s.seconds.size());
    }
  }
  return peaks;
}

namespace {

/// The kernel at peak, with items that cost `overhead` rows more, and nothing else.
AttentionKernelSpec ideal_kernel(AttentionKernelSpec kernel, std::int64_t overhead) {
  const Sourced<double> one{.value = 1, .spread = 0, .source = ""};
  kernel.forward_full = kernel.forward_causal = one;
  kernel.backward_full = kernel.backward_causal = one;
  kernel.startup = kernel.startup_backward = {};
  kernel.item_overhead.value = kernel.item_overhead_backward.value = overhead;
  return kernel;
}

/// What is asked of so many blocks: with as many terms as points a fit is exact and says nothing.
/// Seen on an H100: two backward blocks of a budget that was spent gave a startup of 3 ms and a
/// spread of nothing. Four, eight and the part of a spread that few blocks leave are assumed.
struct Terms {
  bool startup = true;       // else as assumed
  bool masked_apart = true;  // efficiencies, and what an item costs
  explicit Terms(std::size_t blocks) : startup(blocks >= 4), masked_apart(blocks >= 8) {}
};
constexpr Fitted assumed_startup{.value = 1e-5, .spread = 0.5, .samples = 0};

/// t = startup + (ideal + overhead rows) / efficiency: least squares in
/// [1, ideal of unmasked blocks, ideal of masked ones, ideal of a row more for each item].
FittedAttention::OfPhase fit_phase(const std::vector<Series>& series, Phase phase, DType dtype,
                                   const AttentionKernelSpec& kernel, const GpuSpec& gpu) {
  constexpr std::int64_t overhead = 1024;
  const AttentionKernelSpec bare = ideal_kernel(kernel, 0);
  const AttentionKernelSpec with = ideal_kernel(kernel, overhead);
  std::vector<Observation> observations;
  std::int64_t of_full = 0;  // samples
  std::int64_t of_causal = 0;
  for (const Series& s : series) {
    if (s.what != "attention" || !s.block || s.block->phase != phase || s.block->dtype != dtype ||
        s.seconds.empty()) {
      continue;
    }
    const AttentionShape shape = shape_of(*s.block);
    const bool masked = is_partly_masked(shape);
    const double ideal = KernelCost(gpu, bare).attention(shape).count();
    const double more = KernelCost(gpu, with).attention(shape).count() - ideal;
    observations.push_back(
        {.x = {1, masked ? 0 : ideal, masked ? ideal : 0, more / static_cast<double>(overhead)},
         .seconds = median_of(s.seconds)});
    (masked ? of_causal : of_full) += std::ssize(s.seconds);
  }
  FittedAttention::OfPhase p;
  if (observations.empty()) {
    p.full = p.causal = {
        .value = phase == Phase::forward ? 0.7 : 0.6, .spread = assumed_spread, .samples = 0};
    p.startup = assumed_startup;
    return p;
  }
  const Terms terms(observations.size());
  for (Observation& o : observations) {
    if (!terms.masked_apart) {
      o.x = {o.x[0], o.x[1] + o.x[2], 0, 0};
    }
    if (!terms.startup) {
      o.x[0] = 0;
      o.seconds = std::max(least_seconds, o.seconds - assumed_startup.value);
    }
  }
  const LinearFit fit = fit_nonnegative(observations);
  // How blocks differ from each other shows where there are some.
  const double spread = std::clamp(
      std::max(fit.spread, assumed_spread / static_cast<double>(observations.size())), 0.01, 2.0);
  /// Where no such block was timed, as assumed from the others.
  const auto efficiency = [&](std::int64_t samples, std::size_t own) {
    const double slope = fit.coefficients[own];
    return Fitted{.value = slope > 0 ? std::clamp(1 / slope, 0.01, 1.0) : 1,
                  .spread = samples > 0 ? spread : std::max(spread, assumed_spread),
                  .samples = samples};
  };
  p.full = efficiency(of_full, of_full > 0 || !terms.masked_apart ? 1 : 2);
  p.causal = efficiency(of_causal, of_causal > 0 && terms.masked_apart ? 2 : 1);
  p.startup = terms.startup ? Fitted{.value = std::max(least_seconds, fit.coefficients[0]),
                                     .spread = spread,
                                     .samples = of_full + of_causal}
                            : assumed_startup;
  const double mean = 2 / (1 / p.full.value + 1 / p.causal.value);
  p.item_overhead = std::clamp(std::round(fit.coefficients[3] * mean), 1.0, 4096.0);
  return p;
}

}  // namespace

FittedAttention fit_attention(const std::vector<Series>& series, const AttentionKernelSpec& kernel,
                              const GpuSpec& gpu, DType dtype) {
  return {.forward = fit_phase(series, Phase::forward, dtype, kernel, gpu),
          .backward = fit_phase(series, Phase::backward, dtype, kernel, gpu)};
}

FittedMemory fit_memory(const std::vector<Series>& series) {
  FittedMemory m{.bandwidth = {.value = 5e9, .spread = 0.5, .samples = 0},
                 .efficiency = {.value = 0.7, .spread = 0.3, .samples = 0},
                 .launch = {.value = 1e-6, .spread = 0.5, .samples = 0}};
  std::vector<Observation> observations;
  double best = 0;
  std::int64_t samples = 0;
  std::int64_t of_layers = 0;
  for (const Series& s : series) {
    if (s.suite == "layer" && !s.gemm && !s.seconds.empty()) {  // no kernel is faster than memory
      best = std::max(best, s.size / median_of(s.seconds));
      of_layers += std::ssize(s.seconds);
    }
    if (s.suite == "elementwise" && s.size > 0 && !s.seconds.empty()) {
      const double median = median_of(s.seconds);
      observations.push_back({.x = {s.size}, .seconds = median});
      best = std::max(best, s.size / median);
      samples += std::ssize(s.seconds);
    }
  }
  if (best > 0) {
    m.bandwidth = {.value = best, .spread = assumed_spread, .samples = samples + of_layers};
  }
  if (!observations.empty()) {
    const LinearFit fit = fit_nonnegative(observations);
    m.bandwidth.spread = std::min(fit.spread, 2.0);
    m.efficiency = {.value = std::clamp(1 / (fit.coefficients.front() * best), 0.01, 1.0),
                    .spread = std::min(fit.spread, 2.0),
                    .samples = samples};
  }
  if (const auto op = select(series, "elementwise", "op"); !op.empty()) {
    m.launch = {.value = std::max(least_seconds, median_of(op.front()->seconds)),
                .spread = usual_spread(op),
                .samples = count(op)};
  }
  return m;
}

}  // namespace spp::calibrate
