// Published times of single kernels of a step: GEMMs, a rank's experts, latent attention, linear
// attention. Each from its shape by machine/kernel_cost.hpp or machine/linear_cost.hpp.
#pragma once

#include "machine/kernel_cost.hpp"
#include "machine/linear_cost.hpp"
#include "regress/corpus.hpp"

#include <string>
#include <vector>

namespace spp::regress {

struct KernelAnswer {
  Seconds time{};
  double spread = 0;  // standard deviation, relative
};

/// What a point's `dtype` means for its GEMMs on that GPU: blocks of fp8 have scales that the
/// matrix units apply (mxfp8), where they can. InputError if it is none that is modelled.
GemmFormat gemm_format_of(const Point& point, const GpuSpec& gpu);

/// How many tokens each expert of one rank gets, of ep ranks; several draws where the source drew.
/// "balanced": as even as whole tokens allow. "power_law_A": loads are drawn from x^-A between one
/// token and 0.8 of all (aiconfigurator's collector), and the busiest rank is meant. The draws are
/// always the same. InputError: another distribution.
std::vector<std::vector<std::int64_t>> expert_rows(const Point& point);

/// The attention kernel of a generation that an inference server's name for one means: one of those
/// that were measured in servers if the generation has it, else FlashAttention by its version, else
/// what the generation runs by default. In the number format where that is narrow and the
/// generation has such a kernel. As it is where no server is named.
std::string attention_kernel_of(const Point& point, const GenerationSpec& generation);

/// How far kernels of servers are from those whose constants they are given, as a relative standard
/// deviation: other versions, paged caches.
constexpr double foreign_kernel_spread = 0.08;

/// What such a server does beside attention in its prefill: keys and values are copied into its
/// paged cache. Nothing for encoders (full mask), which have none.
Seconds cache_write(const Point& point, const KernelCost& cost);

/// Bytes that a benchmark of one attention kernel holds: q, k, v and the output, with the row sums;
/// `both_passes`: gradients of all four, dQ in fp32 once more, and the row sums of the backward.
Bytes attention_memory(const Point& point, bool both_passes);

/// Of `op` gdn_chunk, mamba2_scan and causal_conv1d; a fused kernel as a chunked one where nobody
/// knows how the generation runs it. InputError says why not.
KernelAnswer linear_answer(const Point& point, const GpuSpec& gpu, const LinearSpec& spec);

/// Of `op` gemm, moe, mla_context and mla_context_module. InputError says why not.
KernelAnswer kernel_answer(const Point& point, const KernelCost& cost);

}  // namespace spp::regress
