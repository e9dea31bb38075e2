#include "tests/unit/cmake/fruit.hpp"

namespace spp::fruits {

extern const Fruit pear;
const Fruit pear{.name = "pear"};

}  // namespace spp::fruits
