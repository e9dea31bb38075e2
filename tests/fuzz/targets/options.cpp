// What people type: every parser of an option's value sees the same text.
#include "base/parse.hpp"
#include "base/suggest.hpp"
#include "parallel/attention/plan.hpp"
#include "tests/fuzz/target.hpp"

#include <cmath>
#include <string>
#include <vector>

namespace spp::fuzz::targets::options {

extern const Target entry{
    "options", Form::bytes, [](std::string_view text) {
      constexpr std::string_view where = "--option";
      allow_refusal([&] {
        const std::int64_t tokens = parse_tokens(text, where);
        ensure(tokens >= 1 && tokens <= std::int64_t{1} << 31, "tokens out of range");
      });
      allow_refusal([&] {
        const std::int64_t value = parse_int(text, where, 1, 1000);
        ensure(value >= 1 && value <= 1000, "an integer out of range");
      });
      allow_refusal([&] { ensure(std::isfinite(parse_double(text, where)), "not finite"); });
      allow_refusal([&] { ensure(parse_bytes(text, where).value() >= 0, "negative bytes"); });
      allow_refusal([&] {
        const double rate = parse_bandwidth(text, where).value();
        ensure(rate > 0, "a rate that is not positive");
      });
      allow_refusal([&] { (void)parse_mask(text, where); });
      allow_refusal([&] { (void)parse_order(text, where); });
      allow_refusal([&] { (void)parse_layout(text, where); });
      allow_refusal([&] { (void)parse_dtype(text, where); });
      allow_refusal([&] { (void)parse_token_set(text, where); });
      const std::vector<std::string> names{"ulysses", "ring", "zigzag-ring", "startrail"};
      (void)did_you_mean(text, names);
    }};

}  // namespace spp::fuzz::targets::options
