// A row-wise function of a layer or a step, or its gradient: what a RowKernel computes, without
// saying of which definition. The name by which measured kernels are known.
#pragma once

#include "schedule/graph.hpp"

#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

/// A sum has no other kernel for gradients: it is added up by itself. The loss and an update have
/// no gradient.
struct RowFunction {
  LayerFunction function = LayerFunction::add;
  bool backward = false;
  friend auto operator<=>(const RowFunction&, const RowFunction&) = default;
};

/// "rms_norm", "rms_norm_backward".
std::string to_string(const RowFunction& function);
/// None: no row-wise function is called that.
std::optional<RowFunction> row_function_called(std::string_view name);
/// All of them.
std::vector<RowFunction> row_functions();

}  // namespace spp
