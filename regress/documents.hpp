// Documents of packed points whose lengths the source does not give: drawn from a distribution of
// real documents that a benchmark of packed attention states.
#pragma once

#include "planner/packing.hpp"

#include <cstdint>

namespace spp::regress {

/// How long documents are in packed sequences of `seq` tokens: the histogram that MagiAttention's
/// context-parallel benchmark has of a data set with short documents (GitHub
/// SandAI-org/MagiAttention, exps/dist_attn/benchmark/utils.py), each length the middle of its bin;
/// what is longer than a quarter of the sequence is cut into quarters, as its sampler does. One
/// histogram for all lengths, as that benchmark draws from one data set at all of them.
LengthDistribution usual_documents(std::int64_t seq);

/// The sequence of these documents with the median attention, of 15 that are drawn.
PackedSequence usual_packing(std::int64_t seq);

/// Relative, a standard deviation: how far attention over other documents of the kind may be off,
/// and half as much again for that the source's own distribution may be another (assumed).
double packing_spread(const PackedSequence& packed);

}  // namespace spp::regress
