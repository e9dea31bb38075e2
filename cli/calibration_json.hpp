// Parts of a machine as a profile has them: what was fitted, in the formats of topologies/.
#pragma once

#include "cli/calibration.hpp"

#include <string>
#include <string_view>

namespace spp::cli {

/// Segments of one kind as parts of `nominal` bytes/s; of messages where the kind was not measured.
Json segments_json(const FittedTransport& t, CommKind kind, double nominal, const Numbers& numbers);
/// Factors on the rate by ranks of an all-to-all.
Json factors_json(const FittedTransport& t, const Numbers& numbers);

/// A transport that is fitted altogether: no other describes it.
struct TransportWords {
  std::string name, medium;
  std::string rate;  // where its nominal rate comes from; a network has none
};
Json transport_json(const FittedTransport& t, const TransportWords& words, const Numbers& numbers);

/// Links of a machine that topologies/ describe: measured segments, in the place of its own, as
/// parts of its nominal rates. `machine`: `known` as a document. InputError("--topology") if it has
/// fewer GPUs than ranks of a node were measured.
void put_links(Json& machine, const MachineSpec& known, const std::vector<Series>& series,
               Sharing sharing, const Numbers& numbers);

/// `inter` of a machine of which nothing is known but the fit; `per_node` ranks share its NICs.
Json network_json(const FittedTransport& t, Json transport, int per_node, const Numbers& numbers);

/// `attention` of a generation: the kernel's tiles and order, and its fitted efficiencies.
Json attention_json(const AttentionKernelSpec& kernel, const FittedAttention& a,
                    const Numbers& numbers);
/// A whole generation. `gemm`: as generations have it.
struct GenerationParts {
  std::string name;
  Json attention, gemm;
  const AttentionKernelSpec& kernel;
};
Json generation_json(const GenerationParts& parts, const FittedMemory& memory,
                     const Numbers& numbers);
/// A plain product, where nothing is known of it.
Json assumed_gemm(int tile, const Numbers& numbers);

/// `matrix_rate` from the peaks that kernels showed.
Json peaks_json(const std::map<DType, Fitted>& peaks, const Numbers& numbers);

}  // namespace spp::cli
