#include "machine/layer_kernels.hpp"

#include "base/suggest.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

namespace spp {
namespace {

constexpr std::array gemm_kinds{GemmKind::forward, GemmKind::input_gradient,
                                GemmKind::weight_gradient};

MeasuredGemmSpec read_gemm(const JsonView& view) {
  view.allow_only({"startup", "efficiency", "a", "b", "c", "block"});
  constexpr std::int64_t most_block = 1 << 20;
  const auto rate = [&](std::string_view key) {
    const auto at = view.find(key);
    return at ? std::optional(read_bandwidth(*at)) : std::nullopt;
  };
  return {.startup = read_seconds(view.at("startup")),
          .efficiency = read_fraction(view.at("efficiency")),
          .a = rate("a"),
          .b = rate("b"),
          .c = rate("c"),
          .block = view.find("block") ? std::optional(read_count(view.at("block"), most_block))
                                      : std::nullopt};
}

StreamSpec read_stream(const JsonView& view) {
  view.allow_only({"startup", "rate"});
  return {.startup = read_seconds(view.at("startup")), .rate = read_bandwidth(view.at("rate"))};
}

Json stream_json(StreamNumbers numbers) {
  return {{"startup", std::move(numbers.startup)}, {"rate", std::move(numbers.rate)}};
}

}  // namespace

LayerKernelsSpec read_layer_kernels(const JsonView& layer) {
  layer.allow_only({"gemm", "rows", "optimizer"});
  LayerKernelsSpec spec;
  if (const auto gemms = layer.find("gemm")) {
    gemms->allow_only({"forward", "input_gradient", "weight_gradient"});
    for (const GemmKind kind : gemm_kinds) {
      if (const auto view = gemms->find(to_string(kind))) {
        spec.gemms.emplace(kind, read_gemm(*view));
      }
    }
  }
  if (const auto rows = layer.find("rows")) {
    for (const auto& [name, view] : rows->members()) {
      const auto function = row_function_called(name);
      if (!function) {
        std::vector<std::string> known;
        for (const RowFunction& f : row_functions()) {
          known.push_back(to_string(f));
        }
        view.fail(fmt::format("is no row-wise function of a layer{}", did_you_mean(name, known)));
      }
      spec.rows.emplace(*function, read_stream(view));
    }
  }
  if (const auto optimizer = layer.find("optimizer")) {
    spec.rows.emplace(RowFunction{.function = LayerFunction::adam}, read_stream(*optimizer));
  }
  return spec;
}

Json layer_kernels_json(LayerKernelNumbers numbers) {
  Json json;
  for (GemmKindNumbers& g : numbers.gemms) {
    Json& gemm = json["gemm"][std::string(to_string(g.kind))] = {
        {"startup", std::move(g.startup)}, {"efficiency", std::move(g.efficiency)}};
    for (auto& [key, number] : {std::pair<const char*, Json*>{"a", &g.a},
                                {"b", &g.b},
                                {"c", &g.c},
                                {"block", &g.block}}) {
      if (!number->is_null()) {
        gemm[key] = std::move(*number);
      }
    }
  }
  for (auto& [function, stream] : numbers.rows) {
    json["rows"][to_string(function)] = stream_json(std::move(stream));
  }
  return json;
}

}  // namespace spp
