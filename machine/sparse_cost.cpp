#include "machine/sparse_cost.hpp"

#include "base/error.hpp"
#include "machine/gemm_cost.hpp"
#include "schedule/measure.hpp"

namespace spp {
namespace {

const SparseSpec& sparse_spec_of(const GpuSpec& gpu) {
  if (!gpu.generation.sparse) {
    throw InputError(gpu.name,
                     fmt::format("generation '{}' does not say how attention to picked keys runs "
                                 "(key 'sparse'); kernels of it are there for Hopper and Blackwell "
                                 "(FlashMLA)",
                                 gpu.generation.name));
  }
  return *gpu.generation.sparse;
}

struct Parts {
  double attention = 0, index = 0, selection = 0;  // seconds
  [[nodiscard]] double total() const { return attention + index + selection; }
};

double padded(int heads, std::int64_t tile) {
  const std::int64_t tiles = (heads + tile - 1) / tile;
  return static_cast<double>(tiles * tile);
}

Parts parts_of(const GpuSpec& gpu, const PickedWork& work, DType dtype) {
  const SparseSpec& spec = sparse_spec_of(gpu);
  const bool forward = work.phase == Phase::forward;
  const double peak = matrix_rate(gpu, GemmFormat::plain, dtype, gpu.name).value();
  const double heads = padded(work.q_heads, (forward ? spec.heads : spec.heads_backward).value);
  const double rate = peak * (forward ? spec.forward : spec.backward).value;
  Parts parts{.attention = (work.picked + work.beside) * heads *
                           flops_per_pair(work.phase, work.head_dim, work.value_dim) / rate};
  const double of_pair = 2.0 * work.index_heads * work.index_dim;
  if (forward) {
    const double eight_bits = matrix_rate(gpu, GemmFormat::fp8, dtype, gpu.name).value();
    parts.index = work.visible * of_pair / (eight_bits * spec.index.value);
    constexpr double bytes = 3 * 4;
    const double memory =
        gpu.memory_bandwidth.value.value() * gpu.generation.memory_efficiency.value;
    parts.selection = work.visible * bytes / memory;
  } else {
    parts.index = 3 * work.picked * of_pair / rate;
  }
  return parts;
}

}  // namespace

Seconds picked_attention_time(const GpuSpec& gpu, const PickedWork& work, DType dtype) {
  const double kernels = work.visible > 0 ? 3 : 1;
  return Seconds(parts_of(gpu, work, dtype).total()) + kernels * gpu.generation.launch.value;
}

double picked_attention_spread(const GpuSpec& gpu, const PickedWork& work, DType dtype) {
  const SparseSpec& spec = sparse_spec_of(gpu);
  const Parts parts = parts_of(gpu, work, dtype);
  const bool forward = work.phase == Phase::forward;
  const double off = parts.attention * (forward ? spec.forward : spec.backward).spread +
                     parts.index * (forward ? spec.index : spec.backward).spread +
                     parts.selection * gpu.generation.memory_efficiency.spread;
  return parts.total() > 0 ? off / parts.total() : 0;
}

}  // namespace spp
