// The flags of Megatron-LM that describe a model and its step, for the frameworks that share them.
#pragma once

#include "planner/export/text.hpp"

namespace spp::frameworks {

inline constexpr std::string_view megatron_arguments =
    "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py";

/// Shape, lengths, batches, precision.
void add_megatron_model(Command& command, const Launch& launch);
/// What counts as a layer where layers are dealt out to pipeline stages that they do not fill.
struct CountedEnds {
  bool embedding = false, loss = false;
};
CountedEnds counted_ends(const Launch& launch);
/// Where a model's layers are laid out by hand (can_stage): each stage's, as Megatron-Core writes
/// them (user guide, custom pipeline model parallel layout), "Ettt|tt|m|L"; else empty.
std::string layout_by_hand(const Launch& launch);
/// Degrees of the axes around attention, recomputation.
void add_megatron_step(Command& command, const Launch& launch);
/// Flags of the model that a plan does not know.
void note_router(Snippet& snippet, const Launch& launch);
/// ZeRO 0: nothing, 1: the distributed optimizer, 2 and 3: Megatron-FSDP.
void add_megatron_zero(Command& command, const Launch& launch);

}  // namespace spp::frameworks
