// `nvidia-smi -L`, and the lists of GPUs in environment reports (torch.utils.collect_env, vLLM,
// SGLang): "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-…)", "GPU 0,1,2,3: NVIDIA L20".
#include "base/error.hpp"
#include "machine/import/format.hpp"

#include <algorithm>

namespace spp::imports::formats::smi_list {
namespace {

struct Listed {
  std::vector<int> indices;
  std::string name;
};

std::optional<Listed> listed_in(std::string_view line) {
  constexpr std::string_view gpu = "GPU ";
  line = trimmed(line);
  const std::size_t colon = line.find(": ");
  if (!line.starts_with(gpu) || colon == std::string_view::npos) {
    return std::nullopt;
  }
  Listed listed;
  std::string_view numbers = line.substr(gpu.size(), colon - gpu.size());
  while (!numbers.empty()) {
    const std::size_t comma = std::min(numbers.find(','), numbers.size());
    const std::string_view number = numbers.substr(0, comma);
    const int index = leading_int(number);
    if (index < 0 || index >= most_gpus_of_host ||
        !std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; })) {
      return std::nullopt;  // "GPU 0,1 Compute Capability: 9.0"
    }
    listed.indices.push_back(index);
    numbers.remove_prefix(std::min(comma + 1, numbers.size()));
  }
  const std::string_view rest = line.substr(colon + 2);
  listed.name = std::string(trimmed(rest.substr(0, std::min(rest.find(" (UUID"), rest.size()))));
  const bool named = !listed.name.empty() && listed.name.size() <= most_gpu_name;
  return listed.indices.empty() || !named ? std::nullopt : std::optional(listed);
}

/// "  MIG 1g.10gb     Device  0: (UUID: MIG-…)", below its GPU.
bool is_mig(std::string_view line) {
  line = trimmed(line);
  return line.starts_with("MIG ") && line.find("Device") != std::string_view::npos;
}

bool recognises(const Source& source) {
  return !source.xml && std::ranges::any_of(source.lines, [](const std::string& line) {
    return listed_in(line).has_value();
  });
}

void read(const Source& source, Facts& facts) {
  int count = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < source.lines.size(); ++i) {
    if (is_mig(source.lines[i]) && count > 0) {
      facts.gpus.back().mig = true;
    }
    const std::optional<Listed> listed = listed_in(source.lines[i]);
    if (!listed) {
      continue;
    }
    if (count == 0) {
      first = i;
    }
    if (facts.gpus.size() + listed->indices.size() > most_gpu_facts) {
      throw InputError(to_string(source.at(i)), fmt::format("more than {} GPUs", most_gpu_facts));
    }
    for (const int index : listed->indices) {
      GpuFact gpu;
      gpu.index = index;
      gpu.name = listed->name;
      gpu.place = source.at(i);
      facts.gpus.push_back(std::move(gpu));
      count = std::max(count, index + 1);
    }
  }
  facts.counts.push_back({.gpus = count, .origin = "list of GPUs", .place = source.at(first)});
}

}  // namespace

extern const Format entry{.name = "smi-list",
                          .title = "nvidia-smi -L, or a list of GPUs in a report",
                          .recognises = recognises,
                          .read = read};

}  // namespace spp::imports::formats::smi_list
