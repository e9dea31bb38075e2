// Counts what this test program has allocated by new.
#pragma once

#include <cstdint>

namespace spp::test {

/// Most bytes alive at once since this began, beyond those alive then.
class Allocations {
 public:
  Allocations();
  [[nodiscard]] std::int64_t peak() const;

 private:
  std::int64_t before_ = 0;
};

}  // namespace spp::test
