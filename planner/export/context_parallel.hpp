// Ways of splitting attention that several frameworks share, because they call the same library.
#pragma once

#include "planner/framework.hpp"

#include <array>
#include <string_view>

namespace spp::frameworks {

using namespace std::string_view_literals;

inline constexpr std::array zigzag_only{Layout::zigzag};
inline constexpr std::array document_zigzag_only{Layout::document_zigzag};
inline constexpr std::array document_contiguous_only{Layout::document_contiguous};
inline constexpr std::array contiguous_only{Layout::contiguous};
inline constexpr std::array strict_heads{HeadPolicy::divide};
inline constexpr std::array full_mask_only{MaskKind::full};
inline constexpr std::array causal_mask_only{MaskKind::causal};
inline constexpr std::array none_or_full{Recompute::none, Recompute::full};
inline constexpr std::array any_recompute{Recompute::none, Recompute::selective, Recompute::full};
inline constexpr std::array plain_and_interleaved{"1f1b"sv, "interleaved"sv};
// Dispatchers of experts that a framework has without further packages.
inline constexpr std::array both_dispatchers{Dispatcher::all_to_all, Dispatcher::all_gather};
inline constexpr std::array all_gather_only{Dispatcher::all_gather};
inline constexpr std::array all_to_all_only{Dispatcher::all_to_all};

inline constexpr std::string_view transformer_engine_source =
    "https://github.com/NVIDIA/TransformerEngine/blob/main/transformer_engine/pytorch/attention/"
    "dot_product_attention/context_parallel.py";

/// FlashAttention's kernels, which others call, take bf16 and fp16.
inline constexpr std::string_view flash_attention = "https://github.com/Dao-AILab/flash-attention";

/// TransformerEngine's, by its cp_comm_type. A rank holds two chunks, one from either end
/// ("dual chunk swap"), whatever the type: sequences are a multiple of 2 x context parallel size.
/// Packed sequences (THD) are so cut and padded one by one, with p2p and a2a; a2a+p2p does not take
/// them, all_gather with FlashAttention-3 alone and in an order that is not among our plans.
constexpr std::array<Way, 4> transformer_engine_ways(Inner inner) {
  return {{{.name = "p2p",
            .strategy = "zigzag-ring",
            .source = transformer_engine_source,
            .layouts = zigzag_only,
            .packed = document_zigzag_only,
            .unit = 2,
            .no_sinks = true,
            .no_windows = true},
           {.name = "all_gather",
            .strategy = "all-gather",
            .source = transformer_engine_source,
            .layouts = zigzag_only,
            .both = false,
            .unit = 2,
            .no_sinks = true,
            .no_documents = true},
           {.name = "a2a", .strategy = "ulysses", .source = transformer_engine_source, .unit = 2},
           {.name = "a2a+p2p",
            .strategy = "usp",
            .source = transformer_engine_source,
            .layouts = zigzag_only,
            .inner = inner,
            .unit = 2,
            .no_sinks = true,
            .no_windows = true,
            .no_documents = true}}};
}

/// PyTorch's (torch.distributed.tensor.experimental): key-value blocks go round (alltoall) or are
/// gathered (allgather), dealt out zigzag ("head-tail").
inline constexpr std::string_view torch_source =
    "https://docs.pytorch.org/tutorials/unstable/context_parallel.html";
inline constexpr std::array<Way, 2> torch_ways{{{.name = "alltoall",
                                                 .strategy = "zigzag-ring",
                                                 .source = torch_source,
                                                 .layouts = zigzag_only,
                                                 .unit = 2,
                                                 .no_sinks = true,
                                                 .no_windows = true},
                                                {.name = "allgather",
                                                 .strategy = "all-gather",
                                                 .source = torch_source,
                                                 .layouts = zigzag_only,
                                                 .both = false,
                                                 .unit = 2,
                                                 .no_sinks = true,
                                                 .no_windows = true}}};

/// Ulysses x ring of diffusion transformers, which attend in full: contiguous, Ulysses inside.
constexpr std::array<Way, 3> diffusion_ways(std::string_view source) {
  return {{{.name = "ulysses", .strategy = "ulysses", .source = source},
           {.name = "ring", .strategy = "ring", .source = source},
           {.name = "ulysses x ring",
            .strategy = "usp",
            .source = source,
            .layouts = contiguous_only,
            .inner = Inner::ulysses}}};
}

}  // namespace spp::frameworks
