// DeepSpeed's configuration of a launch, for the frameworks that hand it through.
#pragma once

#include "base/json.hpp"
#include "planner/framework.hpp"

#include <array>
#include <string_view>

namespace spp::frameworks {

inline constexpr std::string_view accelerate_sequence_parallelism =
    "https://huggingface.co/docs/accelerate/concept_guides/sequence_parallelism";
/// With Ulysses, which was tested with these.
inline constexpr std::array stages_under_ulysses{2, 3};
inline constexpr std::array divided_or_copied{HeadPolicy::divide, HeadPolicy::replicate};

Json deepspeed_config(const Launch& launch);

}  // namespace spp::frameworks
