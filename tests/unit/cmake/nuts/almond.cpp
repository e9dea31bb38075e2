#include "tests/unit/cmake/fruit.hpp"

namespace spp::nuts::almond {
namespace {

constexpr std::string_view name = "almond";

}  // namespace

extern const Fruit entry;
const Fruit entry{.name = name};

}  // namespace spp::nuts::almond
