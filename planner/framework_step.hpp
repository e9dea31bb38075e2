// Rules of a framework for what stands around attention: the model, the step's degrees, shards,
// recomputation. cannot() (framework.hpp) puts them together with those of its ways.
#pragma once

#include "planner/framework.hpp"

#include <fmt/ranges.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

Cannot because(std::string_view rule, std::string what, std::string_view source);

/// "zigzag, contiguous".
template <class T>
std::string names_of(std::span<const T> values) {
  std::vector<std::string> names;
  for (const T& value : values) {
    names.emplace_back(to_string(value));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Models that the framework does not have, or that the text written for it has no words for.
void add_model(const Framework& framework, const Model& model, std::vector<Cannot>& reasons);
/// Nodes of which the last has fewer GPUs than the others.
void add_nodes(const Framework& framework, const sim::Cluster& cluster,
               std::vector<Cannot>& reasons);
/// Degrees around attention of which a framework has none, stages that it makes of no such layers.
void add_axes(const Framework& framework, const Request& request, const StepPlan& plan,
              std::vector<Cannot>& reasons);
/// Experts over other ranks than those that a framework splits them over.
void add_experts(const Framework& framework, const Request& request, const StepPlan& plan,
                 std::vector<Cannot>& reasons);
/// Tensor ranks beside a way that has none, or that do not divide the KV heads.
void add_tensor(const Framework& framework, const Way* way, const Request& request,
                const StepPlan& plan, std::vector<Cannot>& reasons);
/// Tokens that do not fill all ranks that have some of them, where no way's rule said so.
void add_unit(const Framework& framework, const Request& request, const StepPlan& plan,
              std::vector<Cannot>& reasons);
/// Ranks over which MLPs that all of them split do not divide.
void add_mlp(const Framework& framework, const Model& model, const StepPlan& plan,
             std::vector<Cannot>& reasons);
/// Shards over some of the ranks that hold the same weights.
void add_shards(const Framework& framework, const Way* way, const Request& request,
                const StepPlan& plan, std::vector<Cannot>& reasons);
std::optional<Cannot> cannot_zero(const Framework& framework, const Request& request, int zero);
std::optional<Cannot> cannot_recompute(const Framework& framework, const Recomputation& how);

}  // namespace spp
