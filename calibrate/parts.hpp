// Parts of a machine as a profile has them: what was fitted, as machine_write.hpp writes it.
#pragma once

#include "calibrate/fit.hpp"
#include "calibrate/fit_layer.hpp"
#include "machine/machine_write.hpp"

#include <map>
#include <string>
#include <vector>

namespace spp::calibrate {

/// A transport that is fitted altogether: no other describes it.
struct TransportWords {
  std::string name, medium;
  std::string rate;     // where its nominal rate comes from; a network has none
  Json cpu_share, sms;  // as machine_write.hpp has them
};
Json whole_transport(const FittedTransport& t, TransportWords words, const Numbers& numbers);

/// Links of a machine that topologies/ describe: measured segments, in the place of its own, as
/// parts of its nominal rates. `machine`: `known` as a document. InputError("--topology") if it has
/// fewer GPUs than ranks of a node were measured.
void put_links(MachineDocument& machine, const MachineSpec& known,
               const std::vector<Series>& series, Sharing sharing, const Numbers& numbers);

/// Between nodes of a machine of which nothing is known but the fit; `per_node` ranks share its
/// NICs.
InterNumbers fitted_network(const FittedTransport& t, Json transport, int per_node,
                            const Numbers& numbers);

/// The kernel's tiles and order, and its fitted efficiencies.
Json fitted_attention(const AttentionKernelSpec& kernel, const FittedAttention& a,
                      const Numbers& numbers);
/// A whole generation. `gemm` and `group`: as generations have them.
struct GenerationParts {
  std::string name;
  Json attention, gemm, group, layer;
  const AttentionKernelSpec& kernel;
};
Json fitted_generation(GenerationParts parts, const FittedMemory& memory, const Numbers& numbers);
/// A plain product, where nothing is known of it.
Json assumed_gemm(int tile, const Numbers& numbers);

/// `matrix_rate` from the peaks that kernels showed.
Json peaks_json(const std::map<DType, Fitted>& peaks, const Numbers& numbers);

}  // namespace spp::calibrate
