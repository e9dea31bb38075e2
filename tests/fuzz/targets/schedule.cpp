// The text form of a schedule. What is understood is written as a text that means the same.
#include "schedule/text.hpp"
#include "tests/fuzz/target.hpp"

#include <string>

namespace spp::fuzz::targets::schedule {

extern const Target entry{"schedule", Form::bytes, [](std::string_view text) {
                            allow_refusal([&] {
                              const Schedule schedule = parse_schedule(text, "schedule.txt");
                              const std::string written =
                                  to_text(schedule);  // refused if a rank's program is missing
                              ensure(to_text(parse_schedule(written, "again.txt")) == written,
                                     "writing and reading a schedule changed it");
                            });
                          }};

}  // namespace spp::fuzz::targets::schedule
