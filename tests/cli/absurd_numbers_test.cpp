// Every option of the table that takes a number is given numbers that nobody means.
#include "cli/command.hpp"
#include "tests/cli/program.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using spp::test::Result;
using spp::test::sp_plan;

namespace {

/// A short command that works, but for the option that is tried.
struct Base {
  std::string_view command;
  std::vector<std::string> words;
};

std::vector<Base> bases(const std::string& folder) {
  return {{"plan", {"--heads", "8", "--seq", "4K", "--gpu", "h100-80g-sxm"}},
          {"run",
           {"--heads", "2", "--head-dim", "8", "--seq", "64", "--dtype", "fp32", "--kernels",
            "reference", "--iters", "1"}},
          {"calibrate",
           {"-o", folder + "/profile.json", "--gpus", "1", "--suite", "elementwise", "--budget",
            "0.1", "--heads", "2", "--head-dim", "8", "--dtype", "fp32"}},
          {"verify", {"--heads", "8", "--seq", "4K", "--ring", "2"}}};
}

/// Its value is or may be a number, a size, a rate or a list of them; not only a name, a file or a
/// choice. Placeholders are in capitals.
bool takes_number(const spp::cli::Option& option) {
  const auto names = [&](std::string_view word) {
    return option.value.find(word) != std::string_view::npos;
  };
  const bool placeholder =
      std::ranges::any_of(option.value, [](unsigned char c) { return std::isupper(c) != 0; });
  return !names("FILE") && !names("NAME") && !names("FRAMEWORK") &&
         (placeholder || option.value.starts_with("0|"));
}

const std::array<std::string, 13> numbers{
    "0",   "-1",  "1", "2147483648", "9223372036854775807", "18446744073709551616", "1e308", "-0.5",
    "nan", "inf", "",  "  ",         std::string(4000, '9')};

/// Gives every option `each` of the numbers in turn, so that all numbers are tried with some
/// option.
void give_numbers(std::size_t each) {
  const spp::test::TempDir dir;
  std::set<std::string> tried;
  std::size_t next = 0;
  for (const Base& base : bases(dir.path().string())) {
    for (const spp::cli::Option& option : options_of(spp::cli::command_named(base.command))) {
      const std::string name = "--" + std::string(option.name);
      if (!takes_number(option) || !tried.insert(name).second) {
        continue;
      }
      for (std::size_t n = 0; n < each; ++n) {
        const std::string& number = numbers.at(next++ % numbers.size());
        std::vector<std::string> words{std::string(base.command), "--quiet"};
        for (std::size_t i = 0; i + 1 < base.words.size(); i += 2) {
          if (base.words[i] != name) {
            words.insert(words.end(), {base.words[i], base.words[i + 1]});
          }
        }
        words.insert(words.end(), {name, number});
        INFO(base.command << " " << name << " '" << number.substr(0, 40) << "'");
        const Result r = sp_plan(words);
        INFO(r.err);
        CHECK((r.code == 0 || r.code == 2 || r.code == 3));
        CHECK_THAT(r.err, !ContainsSubstring("bug"));
        if (r.code == 2) {
          CHECK(r.err.starts_with("sp-plan: "));
          CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
        }
        CHECK(r.core_seconds < 60);
      }
    }
  }
  for (const std::string name : {"--seq", "--gpus", "--top", "--memory", "--nodes", "--iters",
                                 "--warmup", "--timeout", "--budget", "--seed", "--zero"}) {
    INFO(name);
    CHECK(tried.contains(name));
  }
}

}  // namespace

TEST_CASE("no number that an option is given is a bug, takes long, or says more than a line") {
  give_numbers(4);
}

TEST_CASE("no option takes any of the numbers for a bug", "[.all]") {
  give_numbers(numbers.size());
}

TEST_CASE("times and counts beyond all reason are refused by name") {
  for (const std::string line :
       {"run --heads 2 --seq 64 --timeout 1e300", "run --heads 2 --seq 64 --timeout -1",
        "run --heads 2 --seq 64 --timeout 0", "run --heads 2 --seq 64 --timeout nan",
        "run --heads 2 --seq 64 --iters 1e300", "run --heads 2 --seq 64 --iters -1",
        "run --heads 2 --seq 64 --warmup -1", "run --heads 2 --seq 64 --warmup 1e9",
        "calibrate -o x.json --budget 1e300", "calibrate -o x.json --budget -1",
        "calibrate -o x.json --budget 0", "calibrate -o x.json --budget nan",
        "plan --heads 8 --seq 4K --topology dgx-h100 --budget 0",
        "plan --heads 8 --seq 4K --topology dgx-h100 --budget 1e300",
        "plan --heads 8 --seq 4K --topology dgx-h100 --budget nan"}) {
    INFO(line);
    const Result r = sp_plan(line);
    CHECK(r.code == 2);
    CHECK(r.out.empty());
    CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
    const std::size_t at = line.rfind(" --") + 1;
    CHECK_THAT(r.err, ContainsSubstring(line.substr(at, line.find(' ', at) - at) + ": "));
  }
}
