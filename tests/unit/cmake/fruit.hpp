// A kind of things that a registry lists.
#pragma once

#include <span>
#include <string_view>

namespace spp {

struct Fruit {
  std::string_view name;
};

namespace fruits {
/// All fruits, in the order of CMakeLists.txt.
std::span<const Fruit* const> all();
}  // namespace fruits

namespace nuts {
std::span<const Fruit* const> all();
}  // namespace nuts

namespace stones {
std::span<const Fruit* const> all();
}  // namespace stones

}  // namespace spp
