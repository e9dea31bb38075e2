// What Slurm knows of nodes: `scontrol show node`, and the variables of a job (SLURM_…).
#include "base/error.hpp"
#include "machine/import/format.hpp"
#include "machine/import/hostlist.hpp"

#include <algorithm>

namespace spp::imports::formats::slurm_nodes {
namespace {

/// "gpu:h100:8(S:0-1)", "gpu:8", "gpu:a100:4,nvme:1" -> type and number; 0: no GPU.
std::pair<std::string, int> gpus_of(std::string_view gres) {
  constexpr std::string_view gpu = "gpu:";
  const std::size_t begin = gres.starts_with(gpu) ? 0 : gres.find(",gpu:");
  if (begin == std::string_view::npos) {
    return {"", 0};
  }
  std::string_view words = gres.substr(begin + (begin == 0 ? 0 : 1) + gpu.size());
  words = words.substr(0, words.find_first_of(",("));
  const std::size_t colon = words.rfind(':');
  std::string type(colon == std::string_view::npos ? "" : words.substr(0, colon));
  const int count = leading_int(colon == std::string_view::npos ? words : words.substr(colon + 1));
  return {std::move(type), std::max(0, count)};
}

void add_gpus(std::string type, int count, const Place& place, Facts& facts) {
  if (count > most_gpus_per_node) {
    throw InputError(to_string(place),
                     fmt::format("{} GPUs of a node are more than {}", count, most_gpus_per_node));
  }
  facts.counts.push_back({.gpus = count, .origin = "Slurm", .place = place});
  if (!type.empty()) {
    GpuFact gpu;
    gpu.name = std::move(type);
    gpu.label = true;
    gpu.place = place;
    facts.gpus.push_back(std::move(gpu));
  }
}

bool recognises(const Source& source) {
  return !source.xml && std::ranges::any_of(source.lines, [](const std::string& line) {
    return trimmed(line).starts_with("NodeName=") ||
           line.find("SLURM_JOB_NODELIST=") != std::string::npos ||
           line.find("SLURM_NODELIST=") != std::string::npos ||
           line.find("SLURM_GPUS_ON_NODE=") != std::string::npos;
  });
}

/// "export SLURM_JOB_NODELIST='n[1-4]'" -> the list.
std::optional<std::string> variable_in(std::string_view word, std::string_view name) {
  if (!word.starts_with(name) || word.size() <= name.size() || word[name.size()] != '=') {
    return std::nullopt;
  }
  std::string_view value = word.substr(name.size() + 1);
  while (!value.empty() && (value.front() == '"' || value.front() == '\'')) {
    value.remove_prefix(1);
  }
  while (!value.empty() && (value.back() == '"' || value.back() == '\'')) {
    value.remove_suffix(1);
  }
  return std::string(value);
}

void read(const Source& source, Facts& facts) {
  std::int64_t nodes = 0;
  std::int64_t of_record = 0;  // hosts that the current record is of
  Place first;
  for (std::size_t i = 0; i < source.lines.size(); ++i) {
    const Place place = source.at(i);
    for (const std::string& word : words_of_line(source.lines[i])) {
      if (const auto name = variable_in(word, "NodeName")) {
        of_record = hosts_in(*name, to_string(place));
      } else if (const auto gres = variable_in(word, "Gres")) {
        auto [type, count] = gpus_of(*gres);
        if (count > 0 && of_record > 0) {
          first = nodes == 0 ? place : first;
          nodes += of_record;
          add_gpus(std::move(type), count, place, facts);
        }
      } else if (const auto list = variable_in(word, "SLURM_JOB_NODELIST")) {
        facts.hosts.push_back(
            {.hosts = static_cast<int>(hosts_in(*list, to_string(place))), .place = place});
      } else if (const auto gpus = variable_in(word, "SLURM_GPUS_ON_NODE")) {
        if (const int count = leading_int(*gpus); count > 0) {
          add_gpus("", count, place, facts);
        }
      }
    }
  }
  if (nodes > most_gpus) {
    throw InputError(source.file, fmt::format("{} nodes are more than {}", nodes, most_gpus));
  }
  if (nodes > 0) {
    facts.hosts.push_back({.hosts = static_cast<int>(nodes), .place = first});
  }
}

}  // namespace

extern const Format entry{.name = "slurm-nodes",
                          .title = "scontrol show node, or a job's SLURM_ variables",
                          .recognises = recognises,
                          .read = read};

}  // namespace spp::imports::formats::slurm_nodes
