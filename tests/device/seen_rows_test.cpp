#include "runtime/device/cuda/seen_rows.hpp"

#include "schedule/problem.hpp"
#include "tests/device/blocks.hpp"
#include "tests/support/catch.hpp"

namespace spp::test {

using namespace spp::runtime;

TEST_CASE("the table of seen rows says what the mask says") {
  for (const Block& block : blocks()) {
    for (const Mask& mask : masks()) {
      INFO(block.name << ", " << to_string(mask));
      const Visibility visible{
          .q_tokens = block.queries, .k_tokens = block.keys, .mask = mask, .seq = seq};
      const std::vector<cuda::SeenKeyRows> table = cuda::seen_rows(visible);
      REQUIRE(std::ssize(table) == block.queries.count());
      const cuda::AttentionShape shape{
          .queries = block.queries.count(), .keys = block.keys.count(), .seen = table.data()};
      for (const TokenRange& queries : block.queries.ranges()) {
        for (std::int64_t i = 0; i < queries.count; ++i) {
          for (const TokenRange& keys : block.keys.ranges()) {
            for (std::int64_t j = 0; j < keys.count; ++j) {
              const std::int64_t query = queries.at(i);
              const std::int64_t key = keys.at(j);
              CHECK(shape.sees(block.queries.position_of(query), block.keys.position_of(key)) ==
                    (key < seq && mask.allows(query, key)));
            }
          }
        }
      }
    }
  }
}

}  // namespace spp::test
