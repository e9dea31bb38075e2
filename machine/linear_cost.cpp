#include "machine/linear_cost.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cmath>

namespace spp {
namespace {

constexpr double bytes_16_bits = 2;
constexpr double bytes_fp32 = 4;
/// Tokens that the delta rule's kernels take at once (flash-linear-attention, FlashInfer).
constexpr double delta_chunk = 64;
/// Head width for which `step` is given.
constexpr std::int64_t usual_width = 128;
/// Parts of the L2 that tensors fill when the first of them is pushed out before it is read again,
/// and when the last one is. H100, B200 and L40S tables of causal_conv1d; L40S decides.
constexpr double l2_full = 0.85;
constexpr double l2_gone = 1.35;
/// Times its size that an L2 takes off what a row of kernels moves (L40S, Triton).
constexpr double l2_reread = 2;
/// Relative, of kernels that no table is of (Mamba2).
constexpr double unmeasured_spread = 0.4;

double as_double(std::int64_t n) { return static_cast<double>(n); }

double l2_of(const GpuSpec& gpu, const LinearSpec& spec) {
  return spec.l2_of_sm.value.as_double() * as_double(gpu.sms.value);
}

/// Seconds of the two sides of streams().
double by_sms(const GpuSpec& gpu, const LinearSpec& spec, double bytes) {
  return bytes / (spec.of_sm.value.value() * as_double(gpu.sms.value));
}
double by_memory(const GpuSpec& gpu, const LinearSpec& spec, double bytes) {
  return bytes / (spec.memory.value * gpu.memory_bandwidth.value.value());
}

/// Several kernels after one another, `steps` of a sequence one by one in one of them.
Seconds chunked_time(const GpuSpec& gpu, const LinearSpec& spec, double bytes, double steps) {
  const double missed = bytes > 0 ? std::max(0.0, bytes - l2_reread * l2_of(gpu, spec)) : 0;
  return spec.chunked.startup.value + steps * spec.chunked.step.value +
         Seconds(std::hypot(by_sms(gpu, spec, bytes), by_memory(gpu, spec, missed)));
}

/// FLOPs of a chunk of one value head.
double delta_flops(std::int64_t key_dim, std::int64_t value_dim) {
  const StateScan head{.key_dim = static_cast<int>(key_dim),
                       .value_dim = static_cast<int>(value_dim)};
  return forward_flops(head, delta_chunk).value();
}

Seconds again_backward(const LinearSpec& spec, Phase phase, Seconds forward) {
  return phase == Phase::backward ? spec.chunked.backward.value * forward : forward;
}

Seconds not_beyond_peak(const GpuSpec& gpu, Seconds time, double flops, DType dtype) {
  return std::max(time, FlopCount(flops) / matrix_rate(gpu, dtype, gpu.name));
}

}  // namespace

Seconds convolution_time(const GpuSpec& gpu, const LinearSpec& spec, const ConvolutionWork& work) {
  const double tensors = work.phase == Phase::backward ? 3 : 2;
  const double bytes = tensors * bytes_16_bits * as_double(work.seq) * as_double(work.batch) *
                       as_double(work.channels);
  const double missed =
      std::clamp((bytes / l2_of(gpu, spec) - l2_full) / (l2_gone - l2_full), 0.0, 1.0);
  return spec.startup.value +
         Seconds(std::max(by_sms(gpu, spec, bytes), by_memory(gpu, spec, bytes * missed)));
}

double gated_delta_bytes(std::int64_t key_dim, std::int64_t value_dim) {
  const double key = bytes_16_bits * as_double(key_dim);
  const double value = bytes_16_bits * as_double(value_dim);
  const double row = bytes_16_bits * delta_chunk;  // of the chunk's triangle
  const double row_fp32 = bytes_fp32 * delta_chunk;
  const double state = key * as_double(value_dim) / delta_chunk;
  const double keys_by_keys = key + row_fp32;
  const double solve = row_fp32 + row;
  const double products = row + 2 * (key + value);        // k, v in; W, U out
  const double states = 2 * key + value + value + state;  // k, W, U in; v', states out
  const double output = 2 * key + value + state + value;  // q, k, v', states in; o out
  return keys_by_keys + solve + products + states + output;
}

Seconds gated_delta_time(const GpuSpec& gpu, const LinearSpec& spec, const GatedDeltaWork& work,
                         DType dtype) {
  const double chunks = std::ceil(as_double(work.seq) / delta_chunk);
  const double items = as_double(work.batch) * as_double(work.value_heads);
  const double tokens = as_double(work.seq) * as_double(work.batch);
  const double flops = delta_flops(work.key_dim, work.value_dim);
  const double all_flops = flops * items * as_double(work.seq) / delta_chunk;
  if (!work.fused) {
    const double bytes =
        tokens * as_double(work.value_heads) * gated_delta_bytes(work.key_dim, work.value_dim);
    return again_backward(
        spec, work.phase,
        not_beyond_peak(gpu, chunked_time(gpu, spec, bytes, chunks), all_flops, dtype));
  }
  ensure(work.phase == Phase::forward, "a fused kernel of the forward");
  if (!spec.fused) {
    throw InputError(gpu.name,
                     fmt::format("generation '{}' does not say how a fused gated delta rule runs",
                                 gpu.generation.name));
  }
  const double step =
      spec.fused->step.value.count() * flops / delta_flops(usual_width, usual_width);
  const double busy = std::ceil(items / as_double(gpu.sms.value)) *
                      (spec.fused->item.value.count() + chunks * step);
  const double key = as_double(work.key_heads) * as_double(work.key_dim);
  const double value = as_double(work.value_heads) * as_double(work.value_dim);
  const double bytes = tokens * bytes_16_bits * 2 * (key + value) +
                       bytes_fp32 * items * as_double(work.key_dim) * as_double(work.value_dim);
  const double stream =
      bytes / (gpu.generation.memory_efficiency.value * gpu.memory_bandwidth.value.value());
  const Seconds time =
      spec.startup.value + Seconds(std::cbrt(busy * busy * busy + stream * stream * stream));
  return not_beyond_peak(gpu, time, all_flops, dtype);
}

Seconds mamba_time(const GpuSpec& gpu, const LinearSpec& spec, const MambaWork& work, DType dtype) {
  const double chunk = as_double(work.chunk);
  const double steps = std::ceil(as_double(work.seq) / chunk);
  const double x = bytes_16_bits * as_double(work.head_dim);
  const double b = bytes_16_bits * as_double(work.d_state);
  const double state = as_double(work.head_dim) * as_double(work.d_state) / chunk;
  // Of a token and head: chunk_state reads x and B and writes fp32 states; state_passing reads
  // them and writes them; chunk_scan reads x, C, its states, half of its rows of C B and writes y.
  const double head = x + b + bytes_fp32 * state * 4 + x + b + bytes_fp32 * chunk / 2 + x;
  // Of a token and group: C B.
  const double group = 2 * b + bytes_fp32 * chunk;
  const double tokens = as_double(work.seq) * as_double(work.batch);
  const double bytes = tokens * (as_double(work.heads) * head + as_double(work.groups) * group);
  const StateScan scan{.rule = StateRule::mamba2,
                       .key_heads = static_cast<int>(work.groups),
                       .key_dim = static_cast<int>(work.d_state),
                       .value_heads = static_cast<int>(work.heads),
                       .value_dim = static_cast<int>(work.head_dim),
                       .chunk = static_cast<int>(work.chunk)};
  return again_backward(spec, work.phase,
                        not_beyond_peak(gpu, chunked_time(gpu, spec, bytes, steps),
                                        forward_flops(scan, tokens).value(), dtype));
}

const LinearSpec& linear_spec_of(const GpuSpec& gpu) {
  if (!gpu.generation.linear) {
    throw InputError(gpu.name, fmt::format("generation '{}' does not say how linear attention runs "
                                           "(key 'linear')",
                                           gpu.generation.name));
  }
  return *gpu.generation.linear;
}

namespace {

bool runs_fused(const LinearSpec& spec, const ScanWork& work) {
  return work.fused && spec.fused && work.phase == Phase::forward &&
         work.scan.rule == StateRule::gated_delta;
}

}  // namespace

Seconds scan_time(const GpuSpec& gpu, const ScanWork& work, DType dtype) {
  const LinearSpec& spec = linear_spec_of(gpu);
  const StateScan& scan = work.scan;
  if (scan.rule == StateRule::mamba2) {
    return mamba_time(gpu, spec,
                      {.seq = work.seq,
                       .batch = work.batch,
                       .heads = scan.value_heads,
                       .head_dim = scan.value_dim,
                       .d_state = scan.key_dim,
                       .groups = scan.key_heads,
                       .chunk = scan.chunk,
                       .phase = work.phase},
                      dtype);
  }
  return gated_delta_time(gpu, spec,
                          {.seq = work.seq,
                           .batch = work.batch,
                           .key_heads = scan.key_heads,
                           .key_dim = scan.key_dim,
                           .value_heads = scan.value_heads,
                           .value_dim = scan.value_dim,
                           .fused = runs_fused(spec, work),
                           .phase = work.phase},
                          dtype);
}

Seconds summary_time(const GpuSpec& gpu, const ScanWork& work) {
  const double chunks = std::ceil(as_double(work.seq) / work.scan.chunk);
  return work.scan.rule == StateRule::mamba2 ? Seconds(0)
                                             : chunks * linear_spec_of(gpu).chunked.summary.value;
}

double scan_spread(const GpuSpec& gpu, const ScanWork& work) {
  const LinearSpec& spec = linear_spec_of(gpu);
  if (runs_fused(spec, work)) {
    return spec.fused->step.spread;
  }
  const bool measured = work.scan.rule == StateRule::gated_delta;
  return std::hypot(measured ? spec.chunked.step.spread : unmeasured_spread,
                    work.phase == Phase::backward ? spec.chunked.backward.spread : 0.0);
}

}  // namespace spp
