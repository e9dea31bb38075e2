#include "machine/gemm_cost.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace spp {
namespace {

/// Steps along k, and the tile that small ones are compared with.
constexpr double k_step = 64;
constexpr double large_rows = 256;
constexpr double large_columns = 128;
/// A tile's start and end are given for one of this size.
constexpr double usual_tile = 128.0 * 128.0;
constexpr std::array<double, 8> splits{1, 2, 3, 4, 6, 8, 12, 16};
/// Where tiles alone fill the SMs this often, libraries do not split.
constexpr double waves_never_split = 4;
/// Of memory time, for each partial sum: 4 bytes written and read in the L2.
constexpr double bytes_of_partial = 2;

struct Rates {
  double flops = 0;   // of an SM, a second, at full efficiency of the kernel
  double stream = 0;  // bytes a second
};

std::int64_t total_of(std::span<const std::int64_t> rows) {
  std::int64_t total = 0;
  for (const std::int64_t count : rows) {
    total += count;
  }
  return total;
}

double tiles_of(std::span<const std::int64_t> rows, double n, double tile_rows,
                double tile_columns) {
  double tiles = 0;
  for (const std::int64_t count : rows) {
    tiles += std::ceil(static_cast<double>(count) / tile_rows);
  }
  return tiles * std::ceil(n / tile_columns);
}

double tile_efficiency(const GemmTilesSpec& spec, double rows, double columns) {
  const auto small = static_cast<double>(spec.small_tile.value);
  return std::min(1.0, (1 + small * (1 / large_rows + 1 / large_columns)) /
                           (1 + small * (1 / rows + 1 / columns)));
}

/// Seconds that the SMs multiply: the best tile, split as it is best.
double multiplying(const GemmTilesSpec& spec, std::span<const std::int64_t> rows,
                   const GemmWork& work, double sms, const Rates& rates) {
  const auto n = static_cast<double>(work.n);
  const double steps = std::ceil(static_cast<double>(work.k) / k_step);
  const double outputs = static_cast<double>(total_of(rows)) * n;
  double best = std::numeric_limits<double>::infinity();
  for (const GemmTile& tile : spec.shapes) {
    const double area = static_cast<double>(tile.rows) * static_cast<double>(tile.columns);
    const double step = 2 * k_step * area /
                        (rates.flops * tile_efficiency(spec, static_cast<double>(tile.rows),
                                                       static_cast<double>(tile.columns)));
    const double tiles =
        tiles_of(rows, n, static_cast<double>(tile.rows), static_cast<double>(tile.columns));
    for (const double split : splits) {
      if (split > 1 && tiles * split > waves_never_split * sms) {
        break;
      }
      double time =
          std::ceil(tiles * split / sms) *
          (std::ceil(steps / split) * step + spec.tile_time.value.count() * area / usual_tile);
      if (split > 1) {
        time += spec.split.value.count() + bytes_of_partial * outputs * split / rates.stream;
      }
      best = std::min(best, time);
    }
  }
  return best;
}

/// One tile shape, no more known: CPU cores, and profiles that say no more.
double multiplying_plainly(double tile, std::span<const std::int64_t> rows, const GemmWork& work,
                           double sms, const Rates& rates) {
  const double tiles = tiles_of(rows, static_cast<double>(work.n), tile, tile);
  return std::ceil(tiles / sms) * 2 * tile * tile * static_cast<double>(work.k) / rates.flops;
}

/// As timed on this machine. Groups without rows read no weights.
Seconds measured_time(const GpuSpec& gpu, const MeasuredGemmSpec& spec,
                      std::span<const std::int64_t> rows, const GemmWork& work, DType dtype) {
  const auto sms = static_cast<double>(gpu.sms.value);
  const auto m = static_cast<double>(total_of(rows));
  const auto n = static_cast<double>(work.n);
  const auto k = static_cast<double>(work.k);
  const auto groups = static_cast<double>(std::ssize(rows) - std::ranges::count(rows, 0));
  const auto element = static_cast<double>(size_of(dtype));
  const auto times = [&](double count) {
    return spec.block ? std::ceil(count / static_cast<double>(spec.block->value)) : 1.0;
  };
  const auto moved = [&](double elements, const std::optional<Sourced<Bandwidth>>& rate) {
    return rate ? elements * element / rate->value.value() : 0.0;
  };
  const Rates rates{.flops =
                        matrix_rate(gpu, dtype, gpu.name).value() * spec.efficiency.value / sms};
  return spec.startup.value +
         Seconds(multiplying_plainly(static_cast<double>(gpu.generation.gemm_tile.value), rows,
                                     work, sms, rates) +
                 moved(m * k * times(n), spec.a) + moved(groups * k * n, spec.b) +
                 moved(m * n * times(k), spec.c));
}

const GemmFormatSpec& format_of(const GpuSpec& gpu, GemmFormat format) {
  const auto& formats = gpu.generation.gemm_formats;
  const auto at = formats.find(format);
  if (at == formats.end()) {
    throw InputError(gpu.name, fmt::format("generation '{}' does not say how GEMMs run in {}",
                                           gpu.generation.name, to_string(format)));
  }
  return at->second;
}

double bytes_of_element(GemmFormat format, DType dtype) {
  switch (format) {
    case GemmFormat::plain:
      return static_cast<double>(size_of(dtype));
    case GemmFormat::fp8:
    case GemmFormat::fp8_block:
    case GemmFormat::mxfp8:
      return 1;
    case GemmFormat::nvfp4:
      return 0.5;
  }
  throw InternalError("unknown format of a GEMM");
}

const std::optional<Sourced<FlopRate>>& narrow_rate(const GpuSpec& gpu, GemmFormat format) {
  return format == GemmFormat::nvfp4 ? gpu.fp4_rate : gpu.fp8_rate;
}

/// ", but fp8, fp8-block": the narrow formats that the GPU has; "" if none.
std::string but_has(const GpuSpec& gpu) {
  std::string text;
  for (const auto& [format, spec] : gpu.generation.gemm_formats) {
    if (narrow_rate(gpu, format)) {
      text += fmt::format(", {}{}", text.empty() ? "but " : "", to_string(format));
    }
  }
  return text;
}

}  // namespace

FlopRate matrix_rate(const GpuSpec& gpu, GemmFormat format, DType dtype, std::string_view where) {
  if (format == GemmFormat::plain) {
    return matrix_rate(gpu, dtype, where);
  }
  const auto& rate = narrow_rate(gpu, format);
  const auto& known = gpu.generation.gemm_formats;
  if (!rate || (!known.empty() && !known.contains(format))) {
    throw InputError(where, fmt::format("{} has no matrix units for {}{}", gpu.name,
                                        to_string(format), but_has(gpu)));
  }
  return rate->value;
}

Seconds gemm_time(const GpuSpec& gpu, std::span<const std::int64_t> rows, const GemmWork& work,
                  DType dtype) {
  const GenerationSpec& generation = gpu.generation;
  if (const auto timed = generation.layer.gemms.find(work.kind);
      timed != generation.layer.gemms.end() && work.format == GemmFormat::plain) {
    return measured_time(gpu, timed->second, rows, work, dtype);
  }
  const auto& spec = generation.gemm_tiles;
  const auto m = static_cast<double>(total_of(rows));
  const auto n = static_cast<double>(work.n);
  const auto k = static_cast<double>(work.k);
  const auto sms = static_cast<double>(gpu.sms.value);
  const bool narrow = work.format != GemmFormat::plain;
  const GemmFormatSpec* format = narrow ? &format_of(gpu, work.format) : nullptr;
  double efficiency = narrow ? format->efficiency.value : generation.gemm_efficiency.value;
  const bool grouped = rows.size() > 1 && spec;
  if (grouped) {
    efficiency *= (narrow && format->grouped ? *format->grouped : spec->grouped).value;
  }
  const Rates rates{
      .flops = matrix_rate(gpu, work.format, dtype, gpu.name).value() * efficiency / sms,
      .stream = gpu.memory_bandwidth.value.value() * (!spec     ? generation.memory_efficiency
                                                      : grouped ? spec->grouped_memory
                                                                : spec->memory)
                                                         .value};
  // Groups without rows read no weights.
  const auto groups = static_cast<double>(rows.size()) -
                      static_cast<double>(std::ranges::count(rows, std::int64_t{0}));
  const double element = bytes_of_element(work.format, dtype);
  const double stream =
      ((m * k + groups * k * n) * element + m * n * static_cast<double>(size_of(dtype))) /
      rates.stream;
  double time = 0;
  if (spec) {
    const double busy = multiplying(*spec, rows, work, sms, rates);
    time = std::cbrt(busy * busy * busy + stream * stream * stream);
    time *= 1 + spec->slower.value * time / (time + spec->slower_after.value.count());
  } else {
    time = std::max(multiplying_plainly(static_cast<double>(generation.gemm_tile.value), rows, work,
                                        sms, rates),
                    stream);
  }
  time += generation.gemm_startup.value.count();
  if (narrow && !work.quantised) {
    time += format->quantise.value.count() +
            static_cast<double>(format->quantise_bytes.value) * m * k / rates.stream;
  }
  return Seconds(time);
}

}  // namespace spp
