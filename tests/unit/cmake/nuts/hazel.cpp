#include "tests/unit/cmake/fruit.hpp"

namespace spp::nuts::hazel {
namespace {

constexpr std::string_view name = "hazel";

}  // namespace

extern const Fruit entry;
const Fruit entry{.name = name};

}  // namespace spp::nuts::hazel
