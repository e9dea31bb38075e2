#include "base/suggest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace spp {

int edit_distance(std::string_view a, std::string_view b) {
  auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  const std::size_t width = b.size() + 1;
  std::vector<int> table((a.size() + 1) * width);
  auto at = [&](std::size_t i, std::size_t j) -> int& { return table[i * width + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) {
    at(i, 0) = static_cast<int>(i);
  }
  for (std::size_t j = 0; j <= b.size(); ++j) {
    at(0, j) = static_cast<int>(j);
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      int best = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
          lower(a[i - 2]) == lower(b[j - 1])) {
        best = std::min(best, at(i - 2, j - 2) + 1);
      }
      at(i, j) = best;
    }
  }
  return at(a.size(), b.size());
}

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  constexpr std::size_t longest_name = 64;  // a longer one is not a typing error
  if (name.empty() || name.size() > longest_name) {
    return "";
  }
  // Half points, so that of two equally near names the one that begins with `name` wins ("G": "GB",
  // not "B").
  std::string best;
  int best_score = 2 * (std::max(2, static_cast<int>(name.size()) / 3) + 1);
  for (const std::string& candidate : candidates) {
    const bool part = name.size() >= 3 && candidate.find(name) != std::string::npos;
    const bool begins = candidate.starts_with(name);
    const int score = 2 * (part ? 1 : edit_distance(name, candidate)) - (begins ? 1 : 0);
    if (score < best_score) {
      best_score = score;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const std::string near = nearest_name(name, candidates);
  if (!near.empty()) {
    return fmt::format(" (did you mean '{}'?)", near);
  }
  return candidates.empty() ? "" : fmt::format(" (one of: {})", fmt::join(candidates, ", "));
}

}  // namespace spp
