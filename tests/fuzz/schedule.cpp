// The text form of a schedule. What is understood is written as a text that means the same.
#include "schedule/text.hpp"
#include "tests/fuzz/target.hpp"

#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  spp::fuzz::allow_refusal([&] {
    const spp::Schedule schedule =
        spp::parse_schedule(spp::fuzz::text_of(data, size), "schedule.txt");
    const std::string text = spp::to_text(schedule);  // refused if a rank's program is missing
    spp::ensure(spp::to_text(spp::parse_schedule(text, "again.txt")) == text,
                "writing and reading a schedule changed it");
  });
  return 0;
}
