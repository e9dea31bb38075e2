// What people type: every parser of an option's value sees the same text.
#include "base/parse.hpp"
#include "base/suggest.hpp"
#include "parallel/attention/plan.hpp"
#include "tests/fuzz/target.hpp"

#include <cmath>
#include <string>
#include <vector>

using spp::fuzz::allow_refusal;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = spp::fuzz::text_of(data, size);
  constexpr std::string_view where = "--option";
  allow_refusal([&] {
    const std::int64_t tokens = spp::parse_tokens(text, where);
    spp::ensure(tokens >= 1 && tokens <= std::int64_t{1} << 31, "tokens out of range");
  });
  allow_refusal([&] {
    const std::int64_t value = spp::parse_int(text, where, 1, 1000);
    spp::ensure(value >= 1 && value <= 1000, "an integer out of range");
  });
  allow_refusal([&] { spp::ensure(std::isfinite(spp::parse_double(text, where)), "not finite"); });
  allow_refusal([&] { spp::ensure(spp::parse_bytes(text, where).value() >= 0, "negative bytes"); });
  allow_refusal([&] {
    const double rate = spp::parse_bandwidth(text, where).value();
    spp::ensure(rate > 0, "a rate that is not positive");
  });
  allow_refusal([&] { (void)spp::parse_mask(text, where); });
  allow_refusal([&] { (void)spp::parse_order(text, where); });
  allow_refusal([&] { (void)spp::parse_layout(text, where); });
  allow_refusal([&] { (void)spp::parse_dtype(text, where); });
  allow_refusal([&] { (void)spp::parse_token_set(text, where); });
  const std::vector<std::string> names{"ulysses", "ring", "zigzag-ring", "startrail"};
  (void)spp::did_you_mean(text, names);
  return 0;
}
