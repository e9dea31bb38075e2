// What Slurm knows of nodes: `scontrol show node`, and the variables of a job (SLURM_…).
#include "base/error.hpp"
#include "base/parse.hpp"
#include "machine/import/format.hpp"
#include "machine/import/hostlist.hpp"

#include <algorithm>
#include <array>

namespace spp::imports::formats::slurm_nodes {
namespace {

/// GPUs of one type, as Gres= lists them.
struct Gres {
  std::string type;  // a word of who runs the cluster; "": none
  int count = 0;
};

/// "gpu:h100:8(S:0-1)", "gpu:8", "nvme:1,gpu:a100:4,gpu:a100_3g.40gb:8": all that are GPUs.
std::vector<Gres> gpus_of(std::string_view gres) {
  constexpr std::string_view gpu = "gpu:";
  std::vector<Gres> gpus;
  for (std::string_view words : split(gres, ',')) {
    if (!words.starts_with(gpu)) {
      continue;
    }
    words = words.substr(gpu.size());
    words = words.substr(0, words.find('('));
    const std::size_t colon = words.rfind(':');
    const bool typed = colon != std::string_view::npos;
    const int count = leading_int(typed ? words.substr(colon + 1) : words);
    if (count > 0) {
      gpus.push_back({.type = std::string(typed ? words.substr(0, colon) : ""), .count = count});
    }
  }
  return gpus;
}

/// What a job asked for on each node: "h100:8", "8" (SLURM_GPUS_PER_NODE), "gres:gpu:h100:8",
/// "gres/gpu:8" (SLURM_TRES_PER_NODE).
std::vector<Gres> gpus_asked_for(std::string text) {
  for (const std::string_view before : {"gres:", "gres/"}) {
    for (std::size_t at = text.find(before); at != std::string::npos; at = text.find(before)) {
      text.erase(at, before.size());
    }
  }
  return gpus_of(text.find("gpu:") == std::string::npos ? "gpu:" + text : text);
}

/// "a100_3g.40gb", "1g.5gb": parts of a divided GPU (MIG), by compute slices and memory.
bool is_part(std::string_view type) {
  constexpr std::string_view digits = "0123456789";
  for (std::size_t at = type.find("g."); at != std::string_view::npos;
       at = type.find("g.", at + 1)) {
    const std::string_view memory = type.substr(at + 2);
    const std::size_t unit = memory.find_first_not_of(digits);
    if (at > 0 && digits.find(type[at - 1]) != std::string_view::npos && unit != 0 &&
        unit != std::string_view::npos && memory.substr(unit).starts_with("gb")) {
      return true;
    }
  }
  return false;
}

/// GPUs of a node. Parts do not tell of how many GPUs they are, so with them none are counted.
void add_gpus(const std::vector<Gres>& gpus, const Place& place, Facts& facts) {
  if (gpus.empty()) {
    return;
  }
  std::int64_t count = 0;
  bool divided = false;
  for (const Gres& of_type : gpus) {
    const bool part = is_part(of_type.type);
    divided = divided || part;
    count += of_type.count;
    if (!of_type.type.empty()) {
      GpuFact gpu;
      gpu.name = of_type.type;
      gpu.mig = part;
      gpu.label = true;
      gpu.place = place;
      facts.gpus.push_back(std::move(gpu));
    }
  }
  if (divided) {
    return;
  }
  if (count > most_gpus_per_node) {
    throw InputError(to_string(place),
                     fmt::format("{} GPUs of a node are more than {}", count, most_gpus_per_node));
  }
  facts.counts.push_back({.gpus = static_cast<int>(count), .origin = "Slurm", .place = place});
}

/// What one NodeName= is followed by.
struct Record {
  std::string name;
  std::int64_t hosts = 0;
  std::vector<Gres> gpus;
  std::string state;
  Place place;  // of the GPUs
};

/// "DOWN*+DRAIN", "IDLE+DRAIN", "FAILING*"; not "IDLE+CLOUD+POWERED_DOWN", which wakes up.
bool is_out_of_service(std::string_view state) {
  constexpr std::array<std::string_view, 4> out{"DOWN", "DRAIN", "FAIL", "ERROR"};
  return std::ranges::any_of(split(state, '+'), [&](std::string_view flag) {
    return std::ranges::any_of(out, [&](std::string_view word) { return flag.starts_with(word); });
  });
}

/// Nodes with GPUs. Those out of service are no part of what a job gets.
void add_nodes(const std::vector<Record>& nodes, const Source& source, Facts& facts) {
  std::int64_t hosts = 0;
  std::int64_t out = 0;
  const Record* first = nullptr;
  const Record* first_out = nullptr;
  for (const Record& node : nodes) {
    if (is_out_of_service(node.state)) {
      out += node.hosts;
      first_out = first_out == nullptr ? &node : first_out;
    } else {
      hosts += node.hosts;
      first = first == nullptr ? &node : first;
      add_gpus(node.gpus, node.place, facts);
    }
  }
  if (hosts > most_gpus) {
    throw InputError(source.file, fmt::format("{} nodes are more than {}", hosts, most_gpus));
  }
  if (first != nullptr) {
    facts.hosts.push_back({.hosts = static_cast<int>(hosts), .place = first->place});
  }
  if (first_out == nullptr) {
    return;
  }
  const std::string who = fmt::format("{} is {}", first_out->name, first_out->state);
  if (first == nullptr) {
    throw InputError(to_string(first_out->place),
                     fmt::format("no node with GPUs is in service: {}", who));
  }
  facts.notes.push_back(
      {.what = "nodes",
       .value = fmt::format("{} of {} hosts with GPUs: the others are out of service ({}{})", hosts,
                            hosts + out, who, out > first_out->hosts ? ", …" : ""),
       .source = to_string(first_out->place)});
}

bool recognises(const Source& source) {
  return !source.xml && std::ranges::any_of(source.lines, [](const std::string& line) {
    return trimmed(line).starts_with("NodeName=") ||
           line.find("SLURM_JOB_NODELIST=") != std::string::npos ||
           line.find("SLURM_NODELIST=") != std::string::npos ||
           line.find("SLURM_GPUS_ON_NODE=") != std::string::npos ||
           line.find("SLURM_GPUS_PER_NODE=") != std::string::npos ||
           line.find("SLURM_TRES_PER_NODE=") != std::string::npos;
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
  constexpr std::string_view of_all = "DEFAULT";  // slurm.conf: what nodes below it have
  std::vector<Record> nodes;
  Record usual;
  // Older releases know only the latter; newer ones say the same with both.
  const bool says_job = std::ranges::any_of(source.lines, [](const std::string& line) {
    return line.find("SLURM_JOB_NODELIST=") != std::string::npos;
  });
  for (std::size_t i = 0; i < source.lines.size(); ++i) {
    const Place place = source.at(i);
    for (const std::string& word : words_of_line(source.lines[i])) {
      if (const auto name = variable_in(word, "NodeName")) {
        if (!nodes.empty() && nodes.back().name == of_all) {
          usual = nodes.back();
        }
        nodes.push_back(usual);
        nodes.back().name = *name;
        nodes.back().hosts = *name == of_all ? 0 : hosts_in(*name, to_string(place));
      } else if (variable_in(word, "PartitionName") || variable_in(word, "DownNodes")) {
        nodes.push_back({});  // of slurm.conf; the State= behind it is no node's
      } else if (const auto gres = variable_in(word, "Gres"); gres && !nodes.empty()) {
        nodes.back().gpus = gpus_of(*gres);
        nodes.back().place = place;
      } else if (const auto state = variable_in(word, "State"); state && !nodes.empty()) {
        nodes.back().state = *state;
      } else if (const auto list =
                     variable_in(word, says_job ? "SLURM_JOB_NODELIST" : "SLURM_NODELIST")) {
        facts.hosts.push_back(
            {.hosts = static_cast<int>(hosts_in(*list, to_string(place))), .place = place});
      } else if (const auto asked = variable_in(word, "SLURM_GPUS_PER_NODE")) {
        add_gpus(gpus_asked_for(*asked), place, facts);
      } else if (const auto tres = variable_in(word, "SLURM_TRES_PER_NODE");
                 tres && tres->find("gpu") != std::string::npos) {
        add_gpus(gpus_asked_for(*tres), place, facts);
      } else if (const auto gpus = variable_in(word, "SLURM_GPUS_ON_NODE")) {
        if (const int count = leading_int(*gpus); count > 0) {
          add_gpus({{.type = "", .count = count}}, place, facts);
        }
      }
    }
  }
  std::erase_if(nodes, [](const Record& node) { return node.hosts == 0 || node.gpus.empty(); });
  add_nodes(nodes, source, facts);
}

}  // namespace

extern const Format entry{.name = "slurm-nodes",
                          .title = "scontrol show node, or a job's SLURM_ variables",
                          .recognises = recognises,
                          .read = read};

}  // namespace spp::imports::formats::slurm_nodes
