#include "sim/kernel_cost.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <concepts>

namespace spp::sim {
namespace {

/// floor and ceil of numbers well inside 63 bits, without a library call.
double floor_of(double x) {
  const auto i = static_cast<double>(static_cast<std::int64_t>(x));
  return i > x ? i - 1 : i;
}
double ceil_of(double x) { return -floor_of(-x); }

/// A range of tokens as doubles (exact up to 2^53).
struct Line {
  double begin, count, stride;
  [[nodiscard]] double last() const { return begin + (count - 1) * stride; }
  /// How many tokens are at most x; below 0 and above `count` if x is far outside.
  [[nodiscard]] double up_to(double x) const { return floor_of((x - begin) / stride) + 1; }
};

Line line(const TokenRange& r) {
  return {.begin = static_cast<double>(r.begin),
          .count = static_cast<double>(r.count),
          .stride = static_cast<double>(r.stride)};
}
/// Turns the order of tokens round, so that a key's queries are those at most at its place.
Line mirrored(const TokenRange& r) {
  return {.begin = -static_cast<double>(r.last()),
          .count = static_cast<double>(r.count),
          .stride = static_cast<double>(r.stride)};
}

/// x_t = clamp(first + t * step, 0, most), t = 0 … n-1: what the tiles of a range of rows see.
struct Reach {
  double first, step, n, most;

  /// Sum of x_t / tile, rounded up (or down): exact when `tile` divides `step`; else a middle term
  /// is rounded by half a tile, as it is on average.
  [[nodiscard]] double tiles(double tile, bool up) const {
    const auto whole = [tile, up](double x) { return up ? ceil_of(x / tile) : floor_of(x / tile); };
    if (first >= most) {
      return n * whole(most);
    }
    if (first + (n - 1) * step <= 0) {
      return 0;
    }
    const double from = first > 0 ? 0 : floor_of(-first / step) + 1;
    const double to = std::clamp(ceil_of((most - first) / step), from, n);
    double sum = (n - to) * whole(most);
    if (to > from) {
      const double low = first + from * step;
      const double high = first + (to - 1) * step;
      const double steps = step / tile;
      sum += steps == floor_of(steps)
                 ? (to - from) / 2 * (whole(low) + whole(high))
                 : (to - from) * std::max(0.0, (low + high) / 2 / tile + (up ? 0.5 : -0.5));
    }
    return sum;
  }
};

/// Work of one head of one sequence, in rows of the inner dimension.
struct Work {
  double items = 0;
  double total = 0;    // rows of all items, whole inner tiles
  double longest = 0;  // rows of the longest item
};

/// Rows (queries in the forward, mirrored keys in the backward) in tiles of `tile` meet columns in
/// tiles of `inner`. A row at place x sees the columns in (x - window, x].
struct Tiling {
  double tile, inner;
  const Mask* mask;

  /// Adds the work of all tiles of `rows` to `total`, that of the longest to `longest`.
  void meet(const Line& rows, const Line& columns, double& total, double& longest) const {
    const double n = ceil_of(rows.count / tile);
    if (mask->kind == MaskKind::full) {
      const double each = ceil_of(columns.count / inner) * inner;
      total += n * each;
      longest += each;
      return;
    }
    const double span = (tile - 1) * rows.stride;  // from a tile's first row to its last
    Reach reach{.first = columns.up_to(rows.begin + span),
                .step = tile * rows.stride / columns.stride,
                .n = n,
                .most = columns.count};
    double sum = reach.tiles(inner, true);
    const double end = std::clamp(columns.up_to(rows.last()), 0.0, columns.count);
    double most = ceil_of(end / inner);
    if (mask->kind == MaskKind::window) {
      const auto window = static_cast<double>(mask->window);
      reach.first = columns.up_to(rows.begin - window);
      sum = std::max(0.0, sum - reach.tiles(inner, false));
      // The rows of a tile together see a band of window + span, cut into tiles anywhere.
      most = std::min(most, ceil_of((window + span) / columns.stride / inner) + 1);
    }
    total += sum * inner;
    longest += most * inner;
  }
};

Work work_of(const AttentionShape& shape, const AttentionKernelSpec& kernel) {
  const bool forward = shape.phase == Phase::forward;
  const Tiling tiling{
      .tile = static_cast<double>((forward ? kernel.q_tile : kernel.backward_tile).value),
      .inner = static_cast<double>(kernel.kv_tile.value),
      .mask = &shape.mask};
  const TokenSet& rows = forward ? shape.q : shape.k;
  const TokenSet& columns = forward ? shape.k : shape.q;
  Work work;
  for (const TokenRange& r : rows.ranges()) {
    const Line row = forward ? line(r) : mirrored(r);
    work.items += ceil_of(row.count / tiling.tile);
    double longest = 0;
    for (const TokenRange& c : columns.ranges()) {
      tiling.meet(row, forward ? line(c) : mirrored(c), work.total, longest);
    }
    work.longest = std::max(work.longest, longest);
  }
  return work;
}

/// Rows that the busiest slot works through; every item takes `work.longest` at most.
double busiest_slot(const Work& work, double slots, bool equal_items) {
  if (equal_items) {
    return ceil_of(work.items / slots) * (work.total / work.items);
  }
  if (work.items <= slots) {
    return work.longest;
  }
  const double best = std::max(work.total / slots, work.longest);
  const double worst = (work.total + (slots - 1) * work.longest) / slots;
  return (best + worst) / 2;
}

/// Part of the head_dim 128 rate: a kernel of 64 wide heads computes exp for half the matrix work.
double head_dim_factor(const AttentionKernelSpec& kernel, int head_dim) {
  const double at_64 = kernel.head_dim_64.value;
  return at_64 + (1 - at_64) * std::clamp((head_dim - 64) / 64.0, 0.0, 1.0);
}

template <class Op>
concept Streaming =
    std::same_as<Op, RowDot> || std::same_as<Op, Merge> || std::same_as<Op, Rescale> ||
    std::same_as<Op, Accumulate> || std::same_as<Op, Fill> || std::same_as<Op, Copy>;

template <class Op>
concept Communication = std::same_as<Op, Exchange> || std::same_as<Op, AllToAll> ||
                        std::same_as<Op, AllGather> || std::same_as<Op, ReduceScatter>;

}  // namespace

KernelCost::KernelCost(const GpuSpec& gpu, const AttentionKernelSpec& kernel)
    : gpu_(&gpu), kernel_(&kernel) {
  if (!gpu.measured.empty()) {
    measured_ = {gpu.measured, kernel.kernel,
                 [this](const AttentionShape& s) { return formula(s); }};
  }
}

Seconds KernelCost::attention(const AttentionShape& shape) const {
  ensure(shape.mask.document_ends.empty(), "the cost of packed documents is not modelled");
  const Seconds by_formula = formula(shape);
  if (measured_.empty()) {
    return by_formula;
  }
  return std::max(measured_.time(shape, by_formula),
                  attention_flops_of(shape) / matrix_rate(*gpu_, shape.dtype, gpu_->name));
}

Seconds KernelCost::formula(const AttentionShape& shape) const {
  const bool forward = shape.phase == Phase::forward;
  const AttentionKernelSpec& kernel = *kernel_;
  const Seconds startup = (forward ? kernel.startup : kernel.startup_backward).value;
  Work work = work_of(shape, kernel);
  if (!(work.total > 0)) {
    return startup;
  }
  const bool masked = is_partly_masked(shape);
  const auto sms = static_cast<double>(gpu_->sms.value);
  const double slots = sms * static_cast<double>(kernel.ctas_per_sm.value);
  const auto overhead =
      static_cast<double>((forward ? kernel.item_overhead : kernel.item_overhead_backward).value);
  const double repeats = static_cast<double>(shape.q_heads) * static_cast<double>(shape.batch);
  const double unmasked_rows = work.longest;
  work.items *= repeats;
  work.total = work.total * repeats + work.items * overhead;
  work.longest += overhead;
  double rows = busiest_slot(work, slots, !masked);
  if (forward && kernel.forward_minimum_fill && work.items < 0.8 * sms) {
    // Split-KV cuts every item into equally many pieces, as far as the longest has KV tiles; each
    // pays the overhead of an item.
    const double tiles = unmasked_rows / static_cast<double>(kernel.kv_tile.value);
    const double wanted = slots * kernel.forward_minimum_fill->value / work.items;
    rows = std::min(rows, unmasked_rows / std::clamp(wanted, 1.0, tiles) + overhead);
  }

  const auto tile = static_cast<double>((forward ? kernel.q_tile : kernel.backward_tile).value);
  const double efficiency = forward
                                ? (masked ? kernel.forward_causal : kernel.forward_full).value
                                : (masked ? kernel.backward_causal : kernel.backward_full).value;
  const FlopRate slot_rate = matrix_rate(*gpu_, shape.dtype, gpu_->name) *
                             (efficiency * head_dim_factor(kernel, shape.head_dim) / slots);
  return startup + FlopCount(rows * tile * flops_per_pair(shape.phase, shape.head_dim)) / slot_rate;
}

Seconds KernelCost::attention_at_best(FlopCount flops, const Problem& problem, Phase phase) const {
  const AttentionKernelSpec& kernel = *kernel_;
  const double efficiency =
      phase == Phase::forward ? std::max(kernel.forward_full.value, kernel.forward_causal.value)
                              : std::max(kernel.backward_full.value, kernel.backward_causal.value);
  const Seconds least = flops / (matrix_rate(*gpu_, problem.dtype, gpu_->name) *
                                 (efficiency * head_dim_factor(kernel, problem.head_dim)));
  return least * measured_.least_ratio(phase);
}

Seconds KernelCost::least_startup(Phase phase) const {
  const AttentionKernelSpec& kernel = *kernel_;
  const Seconds startup =
      (phase == Phase::forward ? kernel.startup : kernel.startup_backward).value;
  return startup * measured_.least_ratio(phase);
}

double KernelCost::attention_spread(const Problem& problem, Phase phase) const {
  if (const auto spread = measured_.spread(phase, problem.dtype, problem.head_dim)) {
    return *spread;
  }
  const AttentionKernelSpec& kernel = *kernel_;
  const bool full = problem.mask.kind == MaskKind::full;
  if (phase == Phase::forward) {
    return (full ? kernel.forward_full : kernel.forward_causal).spread;
  }
  return (full ? kernel.backward_full : kernel.backward_causal).spread;
}

Seconds KernelCost::memory_bound(Bytes touched) const {
  return touched / (gpu_->memory_bandwidth.value * gpu_->generation.memory_efficiency.value);
}

Seconds KernelCost::gemm(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype) const {
  const GenerationSpec& generation = gpu_->generation;
  const auto tile = static_cast<double>(generation.gemm_tile.value);
  const auto sms = static_cast<double>(gpu_->sms.value);
  const auto rows = static_cast<double>(m);
  const auto columns = static_cast<double>(n);
  const auto depth = static_cast<double>(k);
  const double tiles = std::ceil(rows / tile) * std::ceil(columns / tile);
  const FlopCount busiest(std::ceil(tiles / sms) * 2 * tile * tile * depth);
  const FlopRate sm_rate =
      matrix_rate(*gpu_, dtype, gpu_->name) * (generation.gemm_efficiency.value / sms);
  const Seconds stream = memory_bound(Bytes((m * k + k * n + m * n) * size_of(dtype)));
  return generation.gemm_startup.value + std::max(busiest / sm_rate, stream);
}

Seconds KernelCost::of(const OpBody& body, const Shapes& shapes) const {
  const Problem& problem = *shapes.problem;
  const auto shape_of = [&problem](const auto& op, Phase phase) {
    return AttentionShape{.q = op.q_tokens,
                          .k = op.k_tokens,
                          .q_heads = op.heads.count(),
                          .kv_heads = op.kv_heads.count(),
                          .head_dim = problem.head_dim,
                          .batch = problem.batch,
                          .mask = problem.mask,
                          .dtype = problem.dtype,
                          .phase = phase};
  };
  return std::visit(
      Overloaded{
          [&](const AttentionForward& op) { return attention(shape_of(op, Phase::forward)); },
          [&](const AttentionBackward& op) { return attention(shape_of(op, Phase::backward)); },
          [&](const Streaming auto&) { return memory_bound(touched_bytes(body, shapes)); },
          [&](const Communication auto&) -> Seconds {
            throw InternalError(fmt::format("{} is communication, no kernel", name_of(body)));
          }},
      body);
}

}  // namespace spp::sim
