// What an interrupted calibration has measured (FILE.partial). What is read is written as it was,
// and has a median.
#include "samples/series.hpp"

#include "base/median.hpp"
#include "samples/statistics.hpp"
#include "tests/fuzz/target.hpp"

#include <cmath>

namespace spp::fuzz::targets::series {

extern const Target entry{
    "series", Form::json, [](std::string_view text) {
      allow_refusal([&] {
        const Json json = parse_json(text, "partial.json");
        const Series series = read_series(JsonView(json, "partial.json"));
        const Json written = to_json(series);
        const Series again = read_series(JsonView(written, "again.json"));
        ensure(to_json(again) == written, "writing and reading a series changed it");
        if (!series.seconds.empty()) {
          ensure(std::isfinite(median_of(series.seconds)), "a median that is no time");
          (void)spread_of(series.seconds);
          (void)error_of_median(series.seconds);
        }
        if (series.block) {
          ensure(flops_of(*series.block).value() >= 0, "negative work");
        }
      });
    }};

}  // namespace spp::fuzz::targets::series
