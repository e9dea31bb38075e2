// Numbers as the text that control planes carry (Transport::all_gather_text), between processes of
// one program.
#pragma once

#include "base/units.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace spp::runtime {

/// No bytes but those of its numbers: what lies in a struct's gaps goes to nobody.
template <class T>
concept Gapless = std::has_unique_object_representations_v<T> || std::is_same_v<T, double> ||
                  std::is_same_v<T, Seconds>;

template <Gapless T>
std::string bytes_of_vector(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <Gapless T>
std::vector<T> vector_of_bytes(const std::string& text) {
  std::vector<T> values(text.size() / sizeof(T));
  // Not memcpy: of nothing, it must not be given a null pointer.
  std::ranges::copy(std::as_bytes(std::span(text)).first(values.size() * sizeof(T)),
                    std::as_writable_bytes(std::span(values)).begin());
  return values;
}

}  // namespace spp::runtime
