// The output of NCCL's tests, text or JSON. What is read has ranks, sizes and times.
#include "machine/nccl_tests.hpp"

#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  spp::fuzz::allow_refusal([&] {
    const std::string text(spp::fuzz::text_of(data, size));
    for (const auto& test : spp::parse_nccl_tests(text, "all_gather.txt")) {
      spp::ensure(test.ranks() > 1, "a test of one rank");
      spp::ensure(!test.rows.empty(), "a test without sizes");
      for (const auto& row : test.rows) {
        spp::ensure(row.size > 0 && row.seconds > 0, "nothing sent, or in no time");
      }
    }
  });
  return 0;
}
