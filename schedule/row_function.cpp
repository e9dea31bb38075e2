#include "schedule/row_function.hpp"

#include <algorithm>

namespace spp {

std::string to_string(const RowFunction& function) {
  return std::string(to_string(function.function)) + (function.backward ? "_backward" : "");
}

std::optional<RowFunction> row_function_called(std::string_view name) {
  const std::vector<RowFunction> all = row_functions();
  const auto found =
      std::ranges::find_if(all, [&](const RowFunction& f) { return to_string(f) == name; });
  return found == all.end() ? std::nullopt : std::optional(*found);
}

std::vector<RowFunction> row_functions() {
  std::vector<RowFunction> all;
  for (std::size_t i = 0; i < layer_functions; ++i) {
    const auto function = static_cast<LayerFunction>(i);
    if (function == LayerFunction::linear || function == LayerFunction::dispatch ||
        function == LayerFunction::combine) {
      continue;  // products and copies
    }
    all.push_back({.function = function});
    if (function != LayerFunction::add && function != LayerFunction::word_loss &&
        function != LayerFunction::adam) {
      all.push_back({.function = function, .backward = true});
    }
  }
  return all;
}

}  // namespace spp
