// Published times of single kernels of a step: GEMMs, a rank's experts, latent attention. Each from
// its shape by machine/kernel_cost.hpp.
#pragma once

#include "machine/kernel_cost.hpp"
#include "regress/corpus.hpp"

#include <vector>

namespace spp::regress {

struct KernelAnswer {
  Seconds time{};
  double spread = 0;  // standard deviation, relative
};

/// What a point's `dtype` means for its GEMMs. InputError if it is none that is modelled.
GemmFormat gemm_format_of(const Point& point);

/// How many tokens each expert of one rank gets, of ep ranks; several draws where the source drew.
/// "balanced": as even as whole tokens allow. "power_law_A": loads are drawn from x^-A between one
/// token and 0.8 of all (aiconfigurator's collector), and the busiest rank is meant. The draws are
/// always the same. InputError: another distribution.
std::vector<std::vector<std::int64_t>> expert_rows(const Point& point);

/// Of `op` gemm, moe, mla_context (projected) and mla_context_module. InputError says why not.
KernelAnswer kernel_answer(const Point& point, const KernelCost& cost);

}  // namespace spp::regress
