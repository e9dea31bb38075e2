#include "base/parse.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"

using namespace spp;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using spp::test::message_of;

namespace {

std::string bytes_error(std::string_view text) {
  return message_of<InputError>([&] { (void)parse_bytes(text, "--memory"); });
}

std::string bandwidth_error(std::string_view text) {
  return message_of<InputError>([&] { (void)parse_bandwidth(text, "--intra"); });
}

std::string tokens_error(std::string_view text) {
  return message_of<InputError>([&] { (void)parse_tokens(text, "--seq"); });
}

std::string int_error(std::string_view text) {
  return message_of<InputError>([&] { (void)parse_int(text, "--tp", 1, 64); });
}

}  // namespace

TEST_CASE("whole numbers are read within their range") {
  CHECK(parse_int("1", "--tp", 1, 64) == 1);
  CHECK(parse_int("64", "--tp", 1, 64) == 64);
  CHECK(parse_int("-3", "offset", -5, 5) == -3);
}

TEST_CASE("a whole number outside its range names option, value and range") {
  CHECK(int_error("0") == "--tp: 0 is out of range (1 to 64)");
  CHECK(int_error("65") == "--tp: 65 is out of range (1 to 64)");
  CHECK(int_error("9223372036854775808") == "--tp: 9223372036854775808 is out of range (1 to 64)");
}

TEST_CASE("what is no whole number is refused") {
  const std::string text = GENERATE("", "x", "1.5", "8x", "1e3", " 8", "8 ", "0x10", "+8", "--8");
  CHECK(int_error(text) == "--tp: '" + text + "' is not a whole number (1 to 64)");
}

TEST_CASE("decimal numbers are read") {
  CHECK(parse_double("0.25", "x") == 0.25);
  CHECK(parse_double("-1e-3", "x") == -1e-3);
}

TEST_CASE("a decimal number must be finite and alone") {
  const std::string text = GENERATE("", "nan", "inf", "-inf", "1e999", "1.0s", "one");
  CHECK(message_of<InputError>([&] { (void)parse_double(text, "spread"); }) ==
        "spread: '" + text + "' is not a number");
}

TEST_CASE("token counts take 1024-based suffixes") {
  CHECK(parse_tokens("4096", "--seq") == 4096);
  CHECK(parse_tokens("32K", "--seq") == 32'768);
  CHECK(parse_tokens("32k", "--seq") == 32'768);
  CHECK(parse_tokens("1M", "--seq") == 1'048'576);
}

TEST_CASE("token counts end at 2^31") {
  CHECK(parse_tokens("2048M", "--seq") == std::int64_t{1} << 31);
  CHECK_THAT(tokens_error("2049M"), ContainsSubstring("out of range"));
  CHECK_THAT(tokens_error("9223372036854775808"), ContainsSubstring("out of range"));
  CHECK_THAT(tokens_error("9223372036854775807K"), ContainsSubstring("out of range"));
}

TEST_CASE("a sequence has at least one token") {
  CHECK_THAT(tokens_error("0"), ContainsSubstring("out of range"));
  CHECK_THAT(tokens_error("-4K"), ContainsSubstring("out of range"));
}

TEST_CASE("what is no number of tokens is refused with an example") {
  const std::string text = GENERATE("", "K", "M", "many", "32KB", "1.5K", "32 K", "nan");
  CHECK(tokens_error(text) ==
        "--seq: '" + text + "' is not a number of tokens (such as 4096, 32K, 1M)");
}

TEST_CASE("byte sizes tell powers of ten from powers of two") {
  CHECK(parse_bytes("80GB", "--memory").value() == 80'000'000'000);
  CHECK(parse_bytes("80GiB", "--memory").value() == 80LL << 30);
  CHECK(parse_bytes("1KB", "--memory").value() == 1000);
  CHECK(parse_bytes("1KiB", "--memory").value() == 1024);
  CHECK(parse_bytes("1.5 MiB", "--memory").value() == 3 << 19);
  CHECK(parse_bytes("7B", "--memory").value() == 7);
}

TEST_CASE("a byte size without its unit is refused") {
  CHECK_THAT(bytes_error("80"), StartsWith("--memory: 80 is a number without its unit"));
}

TEST_CASE("an unknown byte unit suggests the right one") {
  CHECK(bytes_error("80gb") == "--memory: unknown unit 'gb' (did you mean 'GB'?)");
  CHECK(bytes_error("80G") == "--memory: unknown unit 'G' (did you mean 'GB'?)");
}

TEST_CASE("a byte size is positive") {
  const std::string text = GENERATE("-1GB", "0GB", "nanGB", "infGB", "-infGB");
  CHECK_THAT(bytes_error(text), ContainsSubstring("is not a positive number"));
}

TEST_CASE("a byte size is one byte to 10^18 bytes") {
  CHECK(parse_bytes("1e18B", "--memory").value() == 1'000'000'000'000'000'000);
  CHECK(parse_bytes("1B", "--memory").value() == 1);
  CHECK(bytes_error("9223372036854775808B") ==
        "--memory: 9.223372036854776e+18 B is out of range (1 to 1e+18 B)");
  CHECK_THAT(bytes_error("8388608TiB"), ContainsSubstring("out of range"));  // 2^23 * 2^40
  CHECK_THAT(bytes_error("1e300GB"), ContainsSubstring("out of range (1e-09 to 1e+09 GB)"));
  CHECK_THAT(bytes_error("0.4B"), ContainsSubstring("out of range"));
}

TEST_CASE("what is no byte size is refused") {
  const std::string text = GENERATE("", "GB", "much", "1e999GB");
  CHECK(bytes_error(text) == "--memory: '" + text + "' is not a number with a unit");
}

TEST_CASE("rates tell bits from bytes") {
  CHECK(parse_bandwidth("400Gb/s", "--inter").value() == Catch::Approx(50e9));
  CHECK(parse_bandwidth("400GB/s", "--inter").value() == Catch::Approx(400e9));
  CHECK(parse_bandwidth("100Mb/s", "--inter").value() == Catch::Approx(12.5e6));
  CHECK(parse_bandwidth("1.6Tb/s", "--inter").value() == Catch::Approx(200e9));
}

TEST_CASE("a rate without its unit, or with a size's unit, is refused") {
  CHECK_THAT(bandwidth_error("300"), StartsWith("--intra: 300 is a number without its unit"));
  CHECK_THAT(bandwidth_error("300GB"), ContainsSubstring("did you mean 'GB/s'?"));
}

TEST_CASE("a rate is positive") {
  const std::string text = GENERATE("-1GB/s", "0GB/s", "nanGB/s", "infGB/s");
  CHECK_THAT(bandwidth_error(text), ContainsSubstring("is not a positive number"));
}

TEST_CASE("times and FLOP rates scale by their unit") {
  CHECK(seconds_from(3, "us", "latency").count() == Catch::Approx(3e-6));
  CHECK(seconds_from(0, "s", "latency").count() == 0);
  CHECK(flop_rate_from(989, "TFLOP/s", "peak").value() == Catch::Approx(989e12));
}

TEST_CASE("a rate of nothing that exists is refused with what is allowed") {
  CHECK(bandwidth_error("1e308GB/s") ==
        "--intra: 1e+308 GB/s is out of range (1e-06 to 1e+06 GB/s)");
  CHECK_THAT(bandwidth_error("1e-308GB/s"), ContainsSubstring("out of range"));
  CHECK_THAT(message_of<InputError>([] { (void)flop_rate_from(1e-300, "TFLOP/s", "peak"); }),
             ContainsSubstring("out of range (1e-06 to 1e+06 TFLOP/s)"));
  CHECK_THAT(message_of<InputError>([] { (void)seconds_from(1e300, "us", "latency"); }),
             ContainsSubstring("out of range (1e-09 to 1e+12 us)"));
}

TEST_CASE("what was measured took as long as a clock can tell") {
  CHECK(measured_from(2, "us", "row").count() == Catch::Approx(2e-6));
  CHECK(message_of<InputError>([] { (void)measured_from(1e-300, "us", "row"); }) ==
        "row: 1e-300 us is out of range (0.001 to 1e+12 us)");
  CHECK_THAT(message_of<InputError>([] { (void)measured_from(0, "us", "row"); }),
             ContainsSubstring("is not a positive number"));
}

TEST_CASE("a time is not negative") {
  CHECK_THAT(message_of<InputError>([] { (void)seconds_from(-1, "us", "latency"); }),
             ContainsSubstring("is not a time"));
}

TEST_CASE("splitting keeps empty pieces") {
  CHECK(split("a,b,c", ',') == std::vector<std::string_view>{"a", "b", "c"});
  CHECK(split("", ',') == std::vector<std::string_view>{""});
  CHECK(split(",a,", ',') == std::vector<std::string_view>{"", "a", ""});
}
