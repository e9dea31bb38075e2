#include "tests/unit/cmake/fruit.hpp"

namespace spp::fruits {

extern const Fruit apple;
const Fruit apple{.name = "apple"};

}  // namespace spp::fruits
