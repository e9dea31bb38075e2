// A proof, or its counter-example.
#include "report/candidate.hpp"
#include "report/kind.hpp"

#include <fmt/format.h>

namespace spp::report::kinds::verification {
namespace {

std::string subject(const JsonView& document) { return document.at("subject").string(); }

void add(const JsonView& document, Sheet& sheet) {
  const bool proven = document.at("proven").boolean();
  sheet.verdict(
      proven ? Tone::good : Tone::bad, proven ? "Proven" : "Refuted",
      proven ? "Every allowed pair of query and key is met exactly once, every gradient comes "
               "home exactly once, all messages match, and nothing waits for ever."
             : "The schedule is wrong; the first counter-example is below.");
  Grid grid{.heading = {"phase", "verdict", "ops", "messages", "blocks", "peak memory"},
            .right = {false, false, true, true, true, true},
            .rows = {}};
  for (const JsonView& s : document.at("schedules").elements()) {
    const bool right = s.at("proven").boolean();
    grid.rows.push_back({s.at("phase").string(), right ? "proven" : "refuted", text_at(s, "ops"),
                         text_at(s, "messages"), text_at(s, "pair_blocks"),
                         bytes_text(s.at("peak_memory_bytes").number(0, most_count_read))});
    if (const auto example = s.find("counter_example")) {
      sheet.verdict(Tone::bad, s.at("phase").string(), example->string());
    }
  }
  sheet.table(shortened(std::move(grid), 60));
  add_assumptions(sheet, document);
  add_request(sheet, document);
}

}  // namespace

extern const Kind entry{.format = "verification", .name = "Proof", .subject = subject, .add = add};

}  // namespace spp::report::kinds::verification
