// --scope: whether a command works on attention alone, on a whole layer of the model, or on all of
// a training step.
#pragma once

#include "cli/output.hpp"
#include "cli/request.hpp"
#include "planner/layer.hpp"

#include <optional>

namespace spp::cli {

inline constexpr Option scope_option{
    "scope", "attention|layer|step",
    "attention of one tensor rank's heads, or with a model one layer over its tensor and sequence "
    "ranks: matrices, norms, attention and what travels between them; or a whole training step "
    "over these, the data-parallel replicas and the stages of a pipeline, from words to updated "
    "parameters (default: attention)"};

/// The layer, or the step, that was asked for; nothing where attention was. InputError: another
/// word, or a question that has no layer.
std::optional<LayerQuestion> asked_layer(const Arguments& arguments, const Job& job,
                                         const StepPlan& plan);

/// InputError if no schedule holds the model's attention.
void expect_scheduled_attention(const Request& request);

/// "TP 2 x usp U=2 R=2", of a step "PP 2 x DP 2 x …": the plan, for people.
std::string layer_name(const StepPlan& plan, const LayerQuestion& question);

/// What `simulate --scope layer`, or step, found: document and table.
Json layer_document(const Job& job, const StepPlan& plan, const LayerQuestion& question,
                    const Evaluation& evaluation, Seconds elapsed);
std::string layer_table(const Job& job, const StepPlan& plan, const LayerQuestion& question,
                        const Evaluation& evaluation, const Style& style);

}  // namespace spp::cli
