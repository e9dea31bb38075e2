// Inside of merge(): the machine while it is put together, one part after the other.
#pragma once

#include "base/numbers.hpp"
#include "machine/import/merge.hpp"
#include "machine/machine_write.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spp::imports {

struct Draft {
  const Facts& facts;
  const MergeOptions& options;
  const Catalog& catalog;
  Numbers numbers{std::string()};
  MachineDocument document{std::string()};
  std::vector<Assumption> assumptions;
  int gpus = 0;    // that one layout shows
  int boards = 1;  // of them, that NVLink joins to a node
  GpuSpec gpu;
  std::optional<Layout> layout;

  void assume(std::string what, std::string value, std::string source) {
    assumptions.push_back(
        {.what = std::move(what), .value = std::move(value), .source = std::move(source)});
  }
  [[nodiscard]] std::string files() const {
    return fmt::format("{}", fmt::join(facts.files, ", "));
  }
};

/// In this order. InputError.
void expect_whole_gpus(Draft& draft);
int gpus_of_node(Draft& draft);
GpuSpec gpu_of_node(Draft& draft, Json& document);
std::optional<Layout> layout_of_node(Draft& draft);
void put_inside(Draft& draft);
void put_network(Draft& draft);

/// Groups of GPUs that `joined` joins, by the group of each.
std::vector<int> groups_of(int gpus, const auto& joined) {
  std::vector<int> group(static_cast<std::size_t>(gpus), -1);
  int count = 0;
  for (int first = 0; first < gpus; ++first) {
    if (group[static_cast<std::size_t>(first)] >= 0) {
      continue;
    }
    std::vector<int> open{first};
    group[static_cast<std::size_t>(first)] = count;
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      for (int next = 0; next < gpus; ++next) {
        if (group[static_cast<std::size_t>(next)] < 0 && joined(at, next)) {
          group[static_cast<std::size_t>(next)] = count;
          open.push_back(next);
        }
      }
    }
    ++count;
  }
  return group;
}

}  // namespace spp::imports
