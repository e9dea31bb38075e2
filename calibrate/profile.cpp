#include "calibrate/profile.hpp"

#include "base/document.hpp"
#include "base/median.hpp"
#include "machine/profile.hpp"
#include "samples/pace.hpp"
#include "samples/statistics.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace spp::calibrate {
namespace {

void add_gpus(Json& environment, const DeviceReport& device) {
  const auto text = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) {
      environment[std::string(key)] = value;
    }
  };
  const auto mhz = [](int khz) { return khz > 0 ? fmt::format("{}", khz / 1000) : ""; };
  text("gpu", device.gpu);
  text("gpus", fmt::format("{}", device.gpus));
  text("ranks_per_gpu", fmt::format("{}", device.ranks_per_gpu));
  text("multiprocessors_per_rank", fmt::format("{}", device.multiprocessors));
  text("driver", cuda_version(device.driver));
  text("cuda", cuda_version(device.runtime));
  text("nccl", device.nccl);
  text("cudnn", device.cudnn);
  text("attention_made_for", device.attention_made_for);
  text("attention_refused", device.attention_refused);
  text("copies", device.copies);
  text("clock_mhz", mhz(device.clock_khz));
  text("memory_clock_mhz", mhz(device.memory_clock_khz));
}

Json environment_of(const ProfileInput& input) {
  const Hosts& hosts = input.calibration.hosts;
  utsname system{};
  uname(&system);
  Json json = {{"cpu", input.cpu},
               {"cores", fmt::format("{}", hosts.cores)},
               {"os", fmt::format("{} {}", system.sysname, system.release)},
               {"comm", input.comm},
               {"kernels", input.kernels},
               {"ranks", fmt::format("{}", hosts.per_node * hosts.nodes())}};
  if (!input.emulated_links.empty()) {
    json["emulated_links"] = input.emulated_links;
  }
  if (input.device) {
    add_gpus(json, *input.device);
  } else {
    for (const auto& [name, version] : input.libraries) {
      json[name] = version;
    }
  }
  json["date"] = utc("%Y-%m-%dT%H:%M:%SZ");
  return json;
}

/// Attention blocks that were timed as `what`.
std::vector<MeasuredAttention> attention_of(const std::vector<Series>& series,
                                            std::string_view what) {
  std::vector<MeasuredAttention> list;
  for (const Series& s : series) {
    if (s.what != what || !s.block || s.seconds.empty()) {
      continue;
    }
    const AttentionBlock& b = *s.block;
    list.push_back({.kernels = "",
                    .phase = b.phase,
                    .dtype = b.dtype,
                    .batch = b.batch,
                    .q_heads = b.q_heads,
                    .kv_heads = b.kv_heads,
                    .head_dim = b.head_dim,
                    .value_dim = b.value_dim,
                    .mask = b.mask,
                    .q = b.q,
                    .k = b.k,
                    .median = Seconds(median_of(s.seconds)),
                    .spread = spread_of(s.seconds),
                    .samples = std::ssize(s.seconds)});
  }
  return list;
}

}  // namespace

Json profile_document(const ProfileInput& input) {
  const Numbers numbers(utc("%Y-%m-%d"));
  const std::vector<Series> raw = raw_series(input.calibration);
  const std::vector<Series> series = at_one_pace(raw);
  const std::vector<MeasuredAttention> pace = attention_of(series, "pace");
  const bool has_layer = std::ranges::any_of(
      series, [](const Series& s) { return s.suite == "layer" && s.what == "add"; });
  return profile_json(
      {.name = input.name,
       .environment = environment_of(input),
       .nodes = numbers.counted(input.calibration.hosts.nodes(), "host names of the ranks"),
       .machine = input.device ? machine_of_gpus(input, numbers) : machine_of_cores(input, numbers),
       .attention = attention_of(series, "attention"),
       .pace = pace.empty() ? std::nullopt : std::optional(pace.front()),
       .samples = samples_json(raw),
       .note = has_layer
                   ? "the optimizer's pass over weights, gradients and moments was not timed: "
                     "it is taken for as many bytes of a sum of two tensors (add)"
                   : ""});
}

}  // namespace spp::calibrate
