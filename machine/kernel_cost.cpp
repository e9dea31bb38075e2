#include "machine/kernel_cost.hpp"

#include "base/error.hpp"
#include "machine/attention_tiles.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <utility>
#include <vector>

namespace spp {
namespace {

/// Heads are padded to what the kernels are compiled for.
double padded(int head_dim) {
  const double step = head_dim <= 128 ? 32 : 64;
  return std::ceil(head_dim / step) * step;
}

/// Rate with these head dims as part of that with 128: an exponential and some other work for each
/// pair are the same for every head_dim, the matrix work grows with it.
double head_dim_factor(const AttentionKernelSpec& kernel, int head_dim, int value_dim) {
  const double useful = 0.5 * (head_dim + value_dim);
  const double worked = 0.5 * (padded(head_dim) + padded(value_dim));
  if (worked > 128) {
    const double at_256 = kernel.head_dim_256 ? kernel.head_dim_256->value : 1.0;
    return useful / worked * (1 + (at_256 - 1) * std::min(1.0, (worked - 128) / 128));
  }
  // Time of a pair, in those of a pair per dim at 128: linear through 64 / factor and 128, below 64
  // never a better rate than at 64.
  const double at_64 = 64 / kernel.head_dim_64.value;
  const double linear = at_64 + (128 - at_64) / 64 * (worked - 64);
  return useful / std::max(linear, worked < 64 ? at_64 * worked / 64 : 0.0);
}

template <class Op>
concept Streaming =
    std::same_as<Op, RowDot> || std::same_as<Op, Sink> || std::same_as<Op, SinkBackward> ||
    std::same_as<Op, Merge> || std::same_as<Op, Rescale> || std::same_as<Op, Accumulate> ||
    std::same_as<Op, Fill> || std::same_as<Op, Copy> || std::same_as<Op, Softmax> ||
    std::same_as<Op, SoftmaxBackward> || std::same_as<Op, SumStates> || std::same_as<Op, RowKernel>;

/// A product of a backward writes a gradient.
Phase phase_of(BufferId to, const Shapes& shapes) {
  const Tensor tensor = shapes.buffers[to.index()].tensor;
  return tensor == Tensor::scores || tensor == Tensor::out || tensor == Tensor::state
             ? Phase::forward
             : Phase::backward;
}

AttentionShape shape_of_kernel(const auto& op, Phase phase, const Problem& problem) {
  return {.q = problem.local(op.q_tokens),
          .k = problem.local(op.k_tokens),
          .q_heads = op.heads.count(),
          .kv_heads = op.kv_heads.count(),
          .head_dim = problem.head_dim,
          .batch = problem.batch,
          .mask = problem.mask_of(mask_number(op)),
          .dtype = problem.dtype,
          .phase = phase,
          .value_dim = problem.value_dim,
          .behind_cache = problem.cached > 0};
}

/// The part of the SMs below which K and V are split. Behind a cache all do that: FlashAttention-3
/// (hopper/heuristics.h, num_splits_heuristic), FlashInfer, TensorRT-LLM.
std::optional<double> minimum_fill(const AttentionKernelSpec& kernel, const AttentionShape& shape) {
  constexpr double behind_cache = 0.8;
  return shape.behind_cache            ? std::optional(behind_cache)
         : kernel.forward_minimum_fill ? std::optional<double>(kernel.forward_minimum_fill->value)
                                       : std::nullopt;
}

}  // namespace

KernelCost::KernelCost(const GpuSpec& gpu, const AttentionKernelSpec& kernel)
    : gpu_(&gpu), kernel_(&kernel) {
  if (!gpu.measured.empty()) {
    measured_ = {gpu.measured, kernel.kernel,
                 [this](const AttentionShape& s) { return formula(s); }};
  }
}

Seconds KernelCost::attention(const AttentionShape& shape) const {
  const Seconds by_formula = formula(shape);
  if (measured_.empty()) {
    return by_formula;
  }
  return std::max(measured_.time(shape, by_formula), attention_flops_of(shape) / peak(shape.dtype));
}

double KernelCost::efficiency(double of_kernel, int head_dim, int value_dim) const {
  return std::min(1.0, of_kernel * head_dim_factor(*kernel_, head_dim, value_dim));
}

FlopRate KernelCost::peak(DType dtype) const {
  const auto& factor = kernel_->matrix_rate_factor;
  return matrix_rate(*gpu_, dtype, gpu_->name) *
         (factor ? static_cast<double>(factor->value) : 1.0);
}

Seconds KernelCost::formula(const AttentionShape& shape) const {
  const bool forward = shape.phase == Phase::forward;
  const AttentionKernelSpec& kernel = *kernel_;
  Seconds beside = (forward ? kernel.startup : kernel.startup_backward).value;
  tiles::Work work = tiles::work_of(shape, kernel);
  if (!(work.total > 0) || !(work.longest > 0)) {
    return beside;
  }
  const bool masked = is_partly_masked(shape);
  const double slots =
      static_cast<double>(gpu_->sms.value) * static_cast<double>(kernel.ctas_per_sm.value);
  auto tile = static_cast<double>((forward ? kernel.q_tile : kernel.backward_tile).value);
  // Documents of which every query sees every key are whole rectangles.
  const bool causal = is_partly_hidden(shape);
  double of_kernel = forward ? (causal ? kernel.forward_causal : kernel.forward_full).value
                             : (causal ? kernel.backward_causal : kernel.backward_full).value;
  const double heads = static_cast<double>(shape.q_heads) * static_cast<double>(shape.batch);
  // A window, or the two ranges of a zigzag rank, leave items of one or two lengths instead of
  // rising ones: what an order is worth there is not known.
  const bool packed = shape.mask.packs();
  const bool rising = shape.mask.kind != MaskKind::full && !is_cut_by_window(shape) &&
                      shape.q.ranges().size() == 1 && shape.k.ranges().size() == 1 && !packed;
  const ItemOrder order = !rising   ? ItemOrder::unknown
                          : forward ? kernel.forward_order
                                    : kernel.backward_order;
  double between = tiles::place_between(order, work.items, heads, slots);
  // FlashAttention-2 does not split K and V of packed documents (mha_varlen_fwd).
  if (const std::optional<double> fill = minimum_fill(kernel, shape); forward && fill && !packed) {
    const auto queries = static_cast<double>(shape.q.count());
    const tiles::Split split =
        tiles::split_of(std::ceil(queries / tiles::Split::q_tile) * heads,
                        static_cast<double>(shape.k.count()), shape.head_dim, 2 * slots, *fill);
    if (split.pieces > 1) {
      work = tiles::cut(work, split, queries, masked);
      tile = tiles::Split::q_tile;
      of_kernel *= kernel.split_rate ? kernel.split_rate->value : 1.0;
      between = 0.5;
      // Another kernel adds up the pieces, which are written and read in fp32.
      beside += launch() + streamed(split.pieces * 8 * heads * queries * shape.v_dim());
    }
  }
  if (!forward) {
    beside += backward_streams(shape);
  }
  const auto overhead =
      static_cast<double>((forward ? kernel.item_overhead : kernel.item_overhead_backward).value);
  work.items *= heads;
  work.total = work.total * heads + work.items * overhead;
  work.longest += overhead;
  // Only the forward's accumulators leave room for a second item on an SM.
  const double lone = forward && kernel.lone_item ? kernel.lone_item->value : 1.0;
  const double rows = masked ? tiles::unequal_rows(work, slots, between, lone)
                             : tiles::equal_rows(work.items, slots, work.total / work.items, lone);
  const FlopRate slot_rate =
      peak(shape.dtype) * (efficiency(of_kernel, shape.head_dim, shape.v_dim()) / slots);
  Seconds time = FlopCount(rows * tile * flops_per_pair(shape)) / slot_rate;
  if (gpu_->power_limit && time > gpu_->power_limit->after.value) {
    const PowerLimit& limit = *gpu_->power_limit;
    time *= 1 + limit.per_decade.value * std::log10(time / limit.after.value);
  }
  return beside + time;
}

Seconds KernelCost::streamed(double bytes) const {
  return memory_bound(Bytes(static_cast<std::int64_t>(bytes)));
}

Seconds KernelCost::backward_streams(const AttentionShape& shape) const {
  if (!kernel_->backward_bytes) {
    return Seconds(0);
  }
  const auto values = [&shape](const TokenSet& tokens) {
    return static_cast<double>(tokens.count()) * shape.q_heads * static_cast<double>(shape.batch) *
           shape.head_dim;
  };
  const double summed = shape.kv_heads == shape.q_heads ? 0 : 8 * values(shape.k);
  return streamed(kernel_->backward_bytes->value * values(shape.q) + summed);
}

Seconds KernelCost::attention_at_best(FlopCount flops, const Problem& problem, Phase phase) const {
  const AttentionKernelSpec& kernel = *kernel_;
  const double of_kernel = phase == Phase::forward
                               ? std::max(kernel.forward_full.value, kernel.forward_causal.value)
                               : std::max(kernel.backward_full.value, kernel.backward_causal.value);
  const Seconds least =
      flops / (peak(problem.dtype) * efficiency(of_kernel, problem.head_dim, problem.v_dim()));
  return least * measured_.least_ratio(phase);
}

Seconds KernelCost::least_startup(Phase phase) const {
  const AttentionKernelSpec& kernel = *kernel_;
  const Seconds startup =
      (phase == Phase::forward ? kernel.startup : kernel.startup_backward).value;
  return startup * measured_.least_ratio(phase);
}

double KernelCost::attention_spread(const Problem& problem, Phase phase) const {
  // A full tile takes a variable-length kernel as long as a plain one (FA3 varlen of the generation
  // files: 0.735 of peak against 0.725); how tiles of many documents fill the SMs is assumed.
  constexpr double of_packing = 0.1;
  // How near kernels of linear attention come to the rate of fused softmax attention: assumed.
  constexpr double of_linear = 0.5;
  const auto packed = [&](double spread) {
    const double by_function =
        problem.function == AttentionFunction::linear ? std::hypot(spread, of_linear) : spread;
    return problem.mask.packs() ? std::hypot(by_function, of_packing) : by_function;
  };
  if (const auto spread = measured_.spread(phase, problem.dtype, problem.head_dim)) {
    return packed(*spread);
  }
  const AttentionKernelSpec& kernel = *kernel_;
  const bool full = problem.mask.kind == MaskKind::full;
  if (phase == Phase::forward) {
    return packed((full ? kernel.forward_full : kernel.forward_causal).spread);
  }
  return packed((full ? kernel.backward_full : kernel.backward_causal).spread);
}

Seconds KernelCost::memory_bound(Bytes touched) const {
  return touched / (gpu_->memory_bandwidth.value * gpu_->generation.memory_efficiency.value);
}

Seconds KernelCost::row_kernel(const RowFunction& function, Bytes touched) const {
  const auto& timed = gpu_->generation.layer.rows;
  const auto at = timed.find(function);
  return at == timed.end() ? memory_bound(touched)
                           : at->second.startup.value + touched / at->second.rate.value;
}

double KernelCost::gemm_spread() const {
  const auto& timed = gpu_->generation.layer.gemms;
  if (timed.empty()) {
    return gpu_->generation.gemm_efficiency.spread;
  }
  double spread = 0;
  for (const auto& [kind, gemm] : timed) {
    spread = std::max(spread, gemm.efficiency.spread);
  }
  return spread;
}

double KernelCost::streaming_spread() const {
  double spread = gpu_->generation.memory_efficiency.spread;
  for (const auto& [function, stream] : gpu_->generation.layer.rows) {
    spread = std::max(spread, stream.rate.spread);
  }
  return spread;
}

Seconds KernelCost::gemm(const GemmWork& work, DType dtype) const {
  ensure(work.groups >= 1, "a GEMM has one group at least");
  std::vector<std::int64_t> rows(static_cast<std::size_t>(work.groups), work.m / work.groups);
  for (std::int64_t i = 0; i < work.m % work.groups; ++i) {
    ++rows[static_cast<std::size_t>(i)];
  }
  return gemm_time(*gpu_, rows, work, dtype);
}

Seconds KernelCost::expert_layer(const ExpertLayerWork& work, DType dtype) const {
  const auto& spec = gpu_->generation.expert_layer;
  if (!spec) {
    throw InputError(gpu_->name, fmt::format("generation '{}' does not say what experts take",
                                             gpu_->generation.name));
  }
  const GemmWork up{.n = 2 * work.ffn, .k = work.hidden, .format = work.format, .quantised = true};
  const GemmWork down{.n = work.hidden, .k = work.ffn, .format = work.format, .quantised = true};
  std::int64_t rows = 0;
  for (const std::int64_t count : work.rows) {
    rows += count;
  }
  // Permute: read and written; SwiGLU: two halves read, one written; sum: read, tokens written.
  const std::int64_t elements =
      2 * rows * work.hidden + 3 * rows * work.ffn + (rows + work.tokens) * work.hidden;
  return grouped_gemm(work.rows, up, dtype) + grouped_gemm(work.rows, down, dtype) +
         spec->beside.value + spec->traffic.value * memory_bound(Bytes(elements * size_of(dtype)));
}

std::optional<AttentionShape> shape_of(const Kernel& kernel, const Problem& problem) {
  if (const auto* forward = std::get_if<AttentionForward>(&kernel)) {
    return shape_of_kernel(*forward, Phase::forward, problem);
  }
  if (const auto* backward = std::get_if<AttentionBackward>(&kernel)) {
    return shape_of_kernel(*backward, Phase::backward, problem);
  }
  return std::nullopt;
}

Seconds KernelCost::of(const Kernel& kernel, const Shapes& shapes) const {
  const auto attention_of = [&](const auto& op, Phase phase) {
    return attention(shape_of_kernel(op, phase, *shapes.problem));
  };
  const Problem& problem = *shapes.problem;
  const std::int64_t dim = problem.head_dim;
  const auto beside = [&](Phase phase, Seconds work) {
    return least_startup(phase) + std::max(work, memory_bound(touched_bytes(kernel, shapes)));
  };
  // As much of a fused kernel over all pairs of the block as it has of the FLOPs.
  const auto of_pairs = [&](const auto& op, BufferId to) {
    const Phase phase = phase_of(to, shapes);
    AttentionShape block = shape_of_kernel(op, phase, problem);
    block.mask = {.kind = MaskKind::full};
    return beside(phase, attention(block) * (attention_flops(kernel, shapes).value() /
                                             attention_flops_of(block).value()));
  };
  const auto at_best = [&](Phase phase) {
    return attention_at_best(attention_flops(kernel, shapes), problem, phase);
  };
  // Of each head, m x n numbers that sum k.
  const auto of_state = [&](BufferId to, int heads, std::int64_t m, std::int64_t k) {
    const std::int64_t groups = heads * problem.batch;
    const GemmWork work{.m = m * groups, .n = problem.head_dim, .k = k, .groups = groups};
    const Phase phase = phase_of(to, shapes);
    return beside(phase, std::max(gemm(work, problem.dtype), at_best(phase)));
  };
  return std::visit(
      Overloaded{
          [&](const AttentionForward& op) { return attention_of(op, Phase::forward); },
          [&](const AttentionBackward& op) { return attention_of(op, Phase::backward); },
          [&](const Scores& op) { return of_pairs(op, op.to); },
          [&](const Weigh& op) { return of_pairs(op, op.to); },
          [&](const WeighBack& op) { return of_pairs(op, op.to); },
          [&](const MakeState& op) {
            return of_state(op.to, op.heads.count(), dim, op.tokens.count());
          },
          [&](const ApplyState& op) {
            return of_state(op.to, op.heads.count(), op.tokens.count(), dim);
          },
          [&](const LinearForward&) { return beside(Phase::forward, at_best(Phase::forward)); },
          [&](const LinearBackward&) { return beside(Phase::backward, at_best(Phase::backward)); },
          [&](const Gemm& op) {
            GemmShape shape = gemm_shape(op, shapes);
            // A bias is added by the product; its gradient sums up the rows of d_y by itself.
            const bool sums = op.kind == GemmKind::weight_gradient && !op.bias.empty();
            const DType type = shapes.buffers[op.b.index()].dtype;
            const Seconds beside_product =
                sums ? memory_bound(Bytes(shape.k * shape.n * size_of(type))) : Seconds(0);
            if (op.experts > 0 && op.kind == GemmKind::weight_gradient) {
              std::swap(shape.m, shape.k);  // rows are what groups share, as in a layer's list
            }
            return beside_product + gemm({.m = shape.m,
                                          .n = shape.n,
                                          .k = shape.k,
                                          .groups = std::max(op.experts, 1),
                                          .kind = op.kind},
                                         problem.dtype);
          },
          [&](const Streaming auto&) { return memory_bound(touched_bytes(kernel, shapes)); }},
      kernel);
}

}  // namespace spp
