// The flags of Megatron-LM that describe a model and its step, for the frameworks that share them.
#pragma once

#include "planner/export/text.hpp"
#include "step/stages.hpp"

namespace spp::frameworks {

inline constexpr std::string_view megatron_arguments =
    "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py";

/// Its sequence parallelism deals tokens out evenly or not at all ("First dimension of the tensor
/// should be divisible by tensor parallel size").
inline constexpr std::string_view megatron_mappings =
    "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/tensor_parallel/mappings.py";

/// Core's names (transformer_config.py, recompute_modules); moe_act, the activation of experts, not
/// of dense MLPs, is none of ours.
inline constexpr ModuleSet megatron_modules{RecomputeModule::core_attention,
                                            RecomputeModule::norms,
                                            RecomputeModule::mlp,
                                            RecomputeModule::moe,
                                            RecomputeModule::mla_up,
                                            RecomputeModule::shared_experts};
std::vector<std::string_view> megatron_names(ModuleSet modules);

/// What Megatron-Core asserts of a step: its FSDP has no stages, its experts no fp16.
Cannot megatron_step(const Request& request, const StepPlan& plan);

/// What the flags below say of any launch.
inline constexpr Says megatron_says{.seq = true,
                                    .batch = true,
                                    .micro_batches = true,
                                    .dtype = true,
                                    .window = true,
                                    .layers = true,
                                    .zero = true,
                                    .recompute = true,
                                    .sequence_parallel = true,
                                    .no_sequence_parallel = true,
                                    .virtual_stages = true,
                                    .nodes = true};

/// Shape, lengths, batches, precision.
void add_megatron_model(Command& command, const Launch& launch);
/// Of layers that are not laid out by hand.
CountedEnds counted_ends(const Launch& launch);
/// Where a model's layers are laid out by hand (can_stage): each stage's, as Megatron-Core writes
/// them (user guide, custom pipeline model parallel layout), "Ettt|tt|m|L"; else empty.
std::string layout_by_hand(const Launch& launch);
/// Degrees of the axes around attention, recomputation.
void add_megatron_step(Command& command, const Launch& launch);
/// What of the model no flag above says.
void note_model(Snippet& snippet, const Launch& launch);
/// What Megatron-Core makes of more tensor ranks than KV heads.
void note_kv_heads(Snippet& snippet, const Launch& launch);
/// Under the distributed optimizer its states can lie in the host's memory; of Megatron-FSDP none
/// says so.
bool can_offload_optimizer(const Launch& launch);
/// ZeRO 0: nothing, 1: the distributed optimizer, 2 and 3: Megatron-FSDP. Where its states lie.
void add_megatron_zero(Command& command, const Launch& launch);

}  // namespace spp::frameworks
