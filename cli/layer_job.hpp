// --scope: whether a command works on attention alone, or on a whole layer of the model.
#pragma once

#include "cli/request.hpp"
#include "planner/layer.hpp"

#include <optional>

namespace spp::cli {

inline constexpr Option scope_option{
    "scope", "attention|layer",
    "attention of one tensor rank's heads, or with a model one layer over its tensor and sequence "
    "ranks: matrices, norms, attention and what travels between them (default: attention)"};

/// The layer that was asked for; nothing where attention was. InputError: another word, or a
/// question that has no layer.
std::optional<LayerQuestion> asked_layer(const Arguments& arguments, const Job& job,
                                         const StepPlan& plan);

/// "TP 2 x usp U=2 R=2": the plan of a layer, for people.
std::string layer_name(const StepPlan& plan);

/// What `simulate --scope layer` found: document and table.
Json layer_document(const Job& job, const StepPlan& plan, const LayerQuestion& question,
                    const Evaluation& evaluation, Seconds elapsed);
std::string layer_table(const Job& job, const StepPlan& plan, const LayerQuestion& question,
                        const Evaluation& evaluation, const Style& style);

}  // namespace spp::cli
