// The profile as a document: every number with its unit, its source and its spread.
#include "base/error.hpp"
#include "cli/calibration.hpp"
#include "cli/report_json.hpp"
#include "cli/report_run.hpp"
#include "samples/pace.hpp"
#include "samples/statistics.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace spp::cli {
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
  text("copies", device.copies);
  text("clock_mhz", mhz(device.clock_khz));
  text("memory_clock_mhz", mhz(device.memory_clock_khz));
}

Json environment_of(const ProfileInput& input) {
  const Hosts& hosts = input.calibration.hosts;
  utsname system{};
  uname(&system);
  Json json = {{"cpu", runtime::cpu_model()},
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
    for (const auto& [name, version] : runtime::library_versions()) {
      json[name] = version;
    }
  }
  json["date"] = utc("%Y-%m-%dT%H:%M:%SZ");
  return json;
}

/// Attention blocks that were timed as `what`. `kernels`: the name that the machine's generation
/// gives them.
Json attention_of(const std::vector<Series>& series, std::string_view what, const Json& kernels) {
  Json list = Json::array();
  for (const Series& s : series) {
    if (s.what != what || !s.block || s.seconds.empty()) {
      continue;
    }
    Json entry = {{"kernels", kernels}};
    const Json json = to_json(s);
    for (const auto& [key, value] : json.at("block").items()) {
      entry[key] = value;
    }
    entry["median_s"] = rounded(median_of(s.seconds));
    entry["spread"] = rounded(std::clamp(spread_of(s.seconds), 0.0, 2.0));
    entry["n"] = s.seconds.size();
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

Json profile_json(ProfileParts parts) {
  Json json = document("profile");
  json["name"] = parts.name;
  json["date"] = utc("%Y-%m-%dT%H:%M:%SZ");
  json["environment"] = std::move(parts.environment);
  json["nodes"] = std::move(parts.nodes);
  const Json& kernels = parts.machine.at("gpu").at("generation").at("kernel");
  const std::vector<Series> series = at_one_pace(parts.series);
  json["attention"] = attention_of(series, "attention", kernels);
  if (Json pace = attention_of(series, "pace", kernels); !pace.empty()) {
    json["pace"] = std::move(pace.front());
  }
  json["machine"] = std::move(parts.machine);
  json["other"] = Json::array();
  Json& samples = json["samples"] = Json::array();
  for (const Series& s : parts.series) {
    samples.push_back(to_json(s));
  }
  return json;
}

Json profile_document(const ProfileInput& input) {
  const Numbers numbers(utc("%Y-%m-%d"));
  return profile_json(
      {.name = input.name,
       .environment = environment_of(input),
       .nodes = numbers.counted(input.calibration.hosts.nodes(), "host names of the ranks"),
       .machine = input.device ? machine_of_gpus(input, numbers) : machine_of_cores(input, numbers),
       .series = raw_series(input.calibration)});
}

}  // namespace spp::cli
