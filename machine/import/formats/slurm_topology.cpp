// Slurm's topology.conf: which nodes hang on one switch of the network (topology/tree), or are
// joined by NVLink (topology/block).
#include "base/error.hpp"
#include "machine/import/format.hpp"
#include "machine/import/hostlist.hpp"

#include <algorithm>

namespace spp::imports::formats::slurm_topology {
namespace {

bool recognises(const Source& source) {
  return !source.xml && std::ranges::any_of(source.lines, [](const std::string& line) {
    const std::string_view text = trimmed(line);
    return text.starts_with("SwitchName=") || text.starts_with("BlockName=");
  });
}

void read(const Source& source, Facts& facts) {
  constexpr std::string_view nodes_key = "Nodes=";
  for (std::size_t i = 0; i < source.lines.size(); ++i) {
    const std::string_view line = trimmed(source.lines[i]);
    const bool block = line.starts_with("BlockName=");
    if (!block && !line.starts_with("SwitchName=")) {
      continue;
    }
    const Place place = source.at(i);
    for (const std::string& word : words_of_line(line)) {
      if (word.starts_with(nodes_key)) {
        const std::int64_t hosts =
            hosts_in(std::string_view(word).substr(nodes_key.size()), to_string(place));
        if (hosts > 0) {
          facts.groups.push_back(
              {.nodes = static_cast<int>(hosts), .nvlink = block, .place = place});
        }
      }
    }
  }
}

}  // namespace

extern const Format entry{.name = "slurm-topology",
                          .title = "Slurm's topology.conf",
                          .recognises = recognises,
                          .read = read};

}  // namespace spp::imports::formats::slurm_topology
