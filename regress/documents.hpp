// Documents of packed points whose lengths the source does not give: drawn from a distribution of
// real documents that a benchmark of packed attention states.
#pragma once

#include "planner/packing.hpp"

#include <cstdint>

namespace spp::regress {

/// How long documents are in packed sequences of `seq` tokens: the histograms of MagiAttention's
/// context-parallel benchmark (GitHub SandAI-org/MagiAttention, exps/dist_attn/benchmark/utils.py:
/// one up to 128K tokens, one of long documents above), each length the middle of its bin; what is
/// longer than a quarter of the sequence is cut into quarters, as the benchmark's sampler does.
LengthDistribution usual_documents(std::int64_t seq);

/// The sequence of these documents with the median attention, of 15 that are drawn.
PackedSequence usual_packing(std::int64_t seq);

/// Relative, a standard deviation: how far attention over other documents of the kind may be off,
/// and half as much again for that the source's own distribution may be another (assumed).
double packing_spread(const PackedSequence& packed);

}  // namespace spp::regress
