// The output of NCCL's tests, text or JSON. What is read has ranks, sizes and times.
#include "machine/nccl_tests.hpp"

#include "tests/fuzz/target.hpp"

namespace spp::fuzz::targets::nccl_tests {

extern const Target entry{
    "nccl_tests", Form::bytes, [](std::string_view text) {
      allow_refusal([&] {
        for (const auto& test : parse_nccl_tests(std::string(text), "all_gather.txt")) {
          ensure(test.ranks() > 1, "a test of one rank");
          ensure(!test.rows.empty(), "a test without sizes");
          for (const auto& row : test.rows) {
            ensure(row.size > 0 && row.seconds > 0, "nothing sent, or in no time");
          }
        }
      });
    }};

}  // namespace spp::fuzz::targets::nccl_tests
