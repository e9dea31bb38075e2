// `nvidia-smi topo -p2p r`: whether GPUs reach each other's memory.
#include "machine/import/format.hpp"
#include "machine/import/matrix.hpp"

#include <algorithm>

namespace spp::imports::formats::smi_p2p {
namespace {

/// A table of more than one GPU; of one, nothing could be said.
std::vector<Matrix> tables(const Source& source) {
  std::vector<Matrix> found = matrices_in(source, is_peer_status);
  std::erase_if(found, [](const Matrix& m) { return m.gpus < 2; });
  return found;
}

bool recognises(const Source& source) { return !source.xml && !tables(source).empty(); }

void read(const Source& source, Facts& facts) {
  for (const Matrix& m : tables(source)) {
    PeerAccess peers{.can = 0, .cannot = 0, .place = m.place};
    for (const Matrix::Row& row : m.rows) {
      for (const std::string& code : row.codes) {
        peers.can += code == "OK" ? 1 : 0;
        peers.cannot += code == "X" || code == "OK" || code == "U" || code == "N/A" ? 0 : 1;
      }
    }
    facts.peers.push_back(peers);
    facts.counts.push_back({.gpus = m.gpus, .origin = "nvidia-smi topo -p2p", .place = m.place});
  }
}

}  // namespace

extern const Format entry{
    .name = "smi-p2p", .title = "nvidia-smi topo -p2p r", .recognises = recognises, .read = read};

}  // namespace spp::imports::formats::smi_p2p
