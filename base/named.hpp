// Names of enumerators, both ways: a table of pairs serves to_string and parse.
#pragma once

#include "base/error.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

template <class E>
struct Named {
  E value;
  std::string_view name;
};

template <class E, std::size_t N>
std::string_view name_of(E value, const std::array<Named<E>, N>& table) {
  const auto it = std::ranges::find(table, value, &Named<E>::value);
  ensure(it != table.end(), "an enumerator without a name");
  return it->name;
}

/// Unknown names are an InputError(where) with "did you mean".
template <class E, std::size_t N>
E value_of(std::string_view name, const std::array<Named<E>, N>& table, std::string_view where) {
  const auto it = std::ranges::find(table, name, &Named<E>::name);
  if (it == table.end()) {
    std::vector<std::string> names;
    for (const auto& entry : table) {
      names.emplace_back(entry.name);
    }
    throw InputError(where, fmt::format("unknown value '{}'{}", name, did_you_mean(name, names)));
  }
  return it->value;
}

}  // namespace spp
