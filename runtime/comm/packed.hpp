// Numbers as the text that control planes carry (Transport::all_gather_text), between processes of
// one program.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace spp::runtime {

template <class T>
  requires std::is_trivially_copyable_v<T>
std::string bytes_of_vector(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class T>
  requires std::is_trivially_copyable_v<T>
std::vector<T> vector_of_bytes(const std::string& text) {
  std::vector<T> values(text.size() / sizeof(T));
  // Not memcpy: of nothing, it must not be given a null pointer.
  std::ranges::copy(std::as_bytes(std::span(text)).first(values.size() * sizeof(T)),
                    std::as_writable_bytes(std::span(values)).begin());
  return values;
}

}  // namespace spp::runtime
