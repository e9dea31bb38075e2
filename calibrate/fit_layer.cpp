#include "calibrate/fit_layer.hpp"

#include "base/fit.hpp"
#include "base/median.hpp"
#include "calibrate/assumptions.hpp"
#include "machine/gemm_cost.hpp"
#include "samples/statistics.hpp"

#include <algorithm>
#include <utility>

namespace spp::calibrate {
namespace {

constexpr Fitted assumed_startup{.value = 1e-6, .spread = 0.5, .samples = 0};
/// Seconds that no call takes to begin: what takes longer is work.
constexpr double longest_startup = 1e-4;
/// Of GEMMs that are too small to tell; of those, an efficiency below `told_efficiency` is taken
/// for startup.
constexpr double usual_efficiency = 0.9;
constexpr double told_efficiency = 0.25;
/// Shapes from which on as many constants are told apart: a startup, then what each matrix costs
/// beside the products. Fewer would make a fit exact and say nothing.
constexpr std::size_t shapes_for_startup = 4;
constexpr std::size_t shapes_for_all = 8;

Fitted fitted(double value, double spread, std::int64_t samples) {
  return {.value = value, .spread = spread, .samples = samples};
}

/// Seconds of the products alone, at the peak.
double ideal_time(const GemmBlock& gemm, GpuSpec gpu) {
  const Sourced<double> all{.value = 1, .spread = 0, .source = ""};
  gpu.generation.layer.gemms[gemm.kind] = {
      .startup = {}, .efficiency = all, .a = {}, .b = {}, .c = {}};
  const GemmWork work{.m = gemm.shape.m, .n = gemm.shape.n, .k = gemm.shape.k, .kind = gemm.kind};
  return gemm_time(gpu, std::array{work.m}, work, gemm.dtype).count();
}

/// Of so few shapes that startup and products cannot be told apart: the largest takes all but an
/// assumed startup for its products; but if it is short and they would be very slow, they are
/// assumed, and the rest is startup. (16 x 16 x 16 takes 7 us on an H100 for 8 thousand FLOPs.)
FittedLayer::Gemm fit_few_gemms(const std::vector<const Series*>& list, const GpuSpec& gpu) {
  const auto ideal = [&](const Series* s) { return ideal_time(*s->gemm, gpu); };
  const Series* largest = *std::ranges::max_element(list, {}, ideal);
  std::int64_t samples = 0;
  for (const Series* s : list) {
    samples += std::ssize(s->seconds);
  }
  const double left = median_of(largest->seconds) - assumed_startup.value;
  const double told = left > 0 ? ideal(largest) / left : 1;
  if (told >= told_efficiency || left > longest_startup) {
    const double spread = assumed_spread / static_cast<double>(list.size());
    return {.startup = assumed_startup, .efficiency = fitted(std::min(told, 1.0), spread, samples)};
  }
  std::vector<double> rest;
  for (const Series* s : list) {
    rest.push_back(std::max(least_seconds, median_of(s->seconds) - ideal(s) / usual_efficiency));
  }
  return {.startup = fitted(median_of(rest), assumed_spread, samples),
          .efficiency = fitted(usual_efficiency, assumed_spread, 0)};
}

/// t = startup + ideal / efficiency + bytes of A, B and C over their rates, as often as they are
/// touched.
FittedLayer::Gemm fit_gemms(const std::vector<const Series*>& list, const GpuSpec& gpu,
                            std::int64_t block) {
  if (list.size() < shapes_for_startup) {
    FittedLayer::Gemm few = fit_few_gemms(list, gpu);
    few.block = block;
    return few;
  }
  const bool all = list.size() >= shapes_for_all;
  std::vector<Observation> observations;
  std::int64_t samples = 0;
  for (const Series* s : list) {
    const auto& [m, n, k] = s->gemm->shape;
    const auto bytes = [&](std::int64_t rows, std::int64_t columns, std::int64_t cut = 0) {
      const std::int64_t times = block > 0 && cut > 0 ? (cut + block - 1) / block : 1;
      return all ? static_cast<double>(rows * columns * times * size_of(s->gemm->dtype)) : 0.0;
    };
    observations.push_back(
        {.x = {1.0, ideal_time(*s->gemm, gpu), bytes(m, k, n), bytes(k, n), bytes(m, n, k)},
         .seconds = std::max(least_seconds, median_of(s->seconds))});
    samples += std::ssize(s->seconds);
  }
  const LinearFit fit = fit_nonnegative(observations);
  const double spread = std::clamp(
      std::max(fit.spread, assumed_spread / static_cast<double>(list.size())), 0.01, 2.0);
  const auto& c = fit.coefficients;
  FittedLayer::Gemm g{.block = block};
  g.startup = fitted(std::max(least_seconds, c[0]), spread, samples);
  g.efficiency = fitted(c[1] > 0 ? std::clamp(1 / c[1], 0.01, 1.0) : 1, spread, samples);
  for (std::size_t i = 0; i < g.rates.size(); ++i) {
    g.rates[i] = fitted(c[i + 2] > 0 ? 1 / c[i + 2] : 0, spread, samples);
  }
  return g;
}

Sample point_of(const Series& s) {
  return {.x = s.size, .seconds = std::max(least_seconds, median_of(s.seconds))};
}

/// `bound`: bytes a second that nothing exceeds; 0: not known. A slope above it is that of sizes
/// whose time is startup alone, as is a single short time. Without it a single time is all but an
/// assumed startup of its bytes; and where sizes show no slope, bytes take what would not show.
FittedLayer::Stream fit_stream(const std::vector<const Series*>& list, double bound) {
  std::vector<Sample> line;
  std::vector<double> spreads;
  std::int64_t samples = 0;
  double best = 0;
  for (const Series* s : list) {
    line.push_back(point_of(*s));
    spreads.push_back(spread_of(s->seconds));
    samples += std::ssize(s->seconds);
    best = std::max(best, line.back().x / line.back().seconds);
  }
  const LineFit fit = fit_line(line);
  const double spread = std::clamp(std::max(fit.spread, median_of(spreads)), 0.005, 2.0);
  const bool sloped = fit.per_unit > 0 && line.size() > 1;
  const bool all_startup = line.size() > 1 ? !sloped || fit.per_unit * bound < 1
                                           : line.front().seconds < longest_startup;
  if (bound > 0 && all_startup) {
    std::vector<double> rest;
    for (const Sample& point : line) {
      rest.push_back(std::max(least_seconds, point.seconds - point.x / bound));
    }
    return {.startup = fitted(median_of(rest), spread, samples),
            .rate = fitted(bound, assumed_spread, 0)};
  }
  if (line.size() == 1) {
    const auto [bytes, seconds] = line.front();
    Fitted startup = assumed_startup;
    startup.value = std::min(startup.value, seconds / 2);
    return {.startup = startup,
            .rate = fitted(bytes / (seconds - startup.value), assumed_spread, samples)};
  }
  constexpr double hidden = 0.05;  // of the time of the size that went fastest
  return {.startup = fitted(std::max(least_seconds, fit.latency), spread, samples),
          .rate = sloped ? fitted(1 / fit.per_unit, spread, samples)
                         : fitted(best / hidden, assumed_spread, 0)};
}

}  // namespace

FittedLayer fit_layer(const std::vector<Series>& series, const GpuSpec& gpu, DType dtype,
                      std::int64_t block) {
  std::map<GemmKind, std::vector<const Series*>> gemms;
  std::map<RowFunction, std::vector<const Series*>> rows;
  for (const Series& s : series) {
    if (s.suite != "layer" || s.seconds.empty()) {
      continue;
    }
    if (s.gemm) {
      if (s.gemm->dtype == dtype) {
        gemms[s.gemm->kind].push_back(&s);
      }
    } else if (const auto function = row_function_called(s.what)) {
      rows[*function].push_back(&s);
    }
  }
  FittedLayer layer;
  for (const auto& [kind, list] : gemms) {
    layer.gemms.emplace(kind, fit_gemms(list, gpu, block));
  }
  double bound = gpu.memory_bandwidth.value.value();
  for (const auto& [function, list] : rows) {
    for (const Series* s : list) {
      const Sample point = point_of(*s);
      bound = bound > 0 ? std::max(bound, point.x / point.seconds) : bound;
    }
  }
  for (const auto& [function, list] : rows) {
    layer.rows.emplace(function, fit_stream(list, bound));
  }
  return layer;
}

Json fitted_layer(const FittedLayer& layer, const Numbers& numbers) {
  LayerKernelNumbers json;
  for (const auto& [kind, gemm] : layer.gemms) {
    const std::string what = fmt::format("{} GEMMs", to_string(kind));
    const auto rate = [&](std::size_t matrix) {
      const Fitted& f = gemm.rates.at(matrix);
      return f.value > 0 ? numbers.fitted(f, 1e-9, "GB/s", what) : Json();
    };
    json.gemms.push_back(
        {.kind = kind,
         .startup = numbers.fitted(gemm.startup, 1e6, "us", what),
         .efficiency = numbers.fitted(gemm.efficiency, 1, "fraction", what + ", of matrix_rate"),
         .a = rate(0),
         .b = rate(1),
         .c = rate(2),
         .block = gemm.block > 0 ? numbers.counted(gemm.block, "blocks of the kernels", "rows")
                                 : Json()});
  }
  for (const auto& [function, stream] : layer.rows) {
    json.rows[function] = {
        .startup = numbers.fitted(stream.startup, 1e6, "us", to_string(function)),
        .rate = numbers.fitted(stream.rate, 1e-9, "GB/s", to_string(function))};
  }
  return layer_kernels_json(std::move(json));
}

}  // namespace spp::calibrate
