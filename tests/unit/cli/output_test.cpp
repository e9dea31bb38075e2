#include "cli/output.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

#include <filesystem>

using namespace spp;
using namespace spp::cli;
using spp::test::message_of;

TEST_CASE("documents are indented, lists of scalars and short objects of them stay in one line") {
  const Json json{
      {"a", 1}, {"groups", {{0, 1}, {2, 3}}}, {"empty", Json::array()}, {"o", {{"b", "c"}}}};
  CHECK(to_text(json) == R"({
  "a": 1,
  "groups": [[0, 1], [2, 3]],
  "empty": [],
  "o": {"b": "c"}
}
)");
  CHECK(parse_json(to_text(json), "x") == json);
}

TEST_CASE("progress says how much is done and how long the rest takes") {
  CHECK(progress_text(0, 3, "", 10) == "0 of 3");
  CHECK(progress_text(1, 3, "", 10) == "1 of 3, about 20 s left");
  CHECK(progress_text(12.4e6, 49.6e6, "ops", 10) == "12M of 50M ops, about 30 s left");
  CHECK(progress_text(2e6, 8e6, "ops at most", 10) == "2M of 8M ops at most, at most 30 s left");
  CHECK(progress_text(2.5e9, 5e9, "ops", 100) == "2.5G of 5G ops, about 100 s left");
  CHECK(progress_text(60'000, 50'000, "ops", 5) == "50K of 50K ops, about 0 s left");  // a guess
}

TEST_CASE("a file is written through a symbolic link, which stays") {
  const test::TempDir dir;
  const auto target = dir.write("target.txt", "old");
  const auto link = dir.path() / "link.txt";
  std::filesystem::create_symlink(target, link);
  write_file(link.string(), "new");
  CHECK(std::filesystem::is_symlink(link));
  CHECK(test::read_text(target) == "new");
}

TEST_CASE("a file that cannot be written is refused beforehand") {
  const test::TempDir dir;
  const std::string folder = dir.path().string();
  CHECK(message_of<InputError>([&] { expect_writable(folder, "--output"); }) ==
        "--output: '" + folder + "' is a folder, not a file");
  CHECK(message_of<InputError>([&] { expect_writable(folder + "/none/x", "--output"); }) ==
        "--output: '" + folder + "/none/x' cannot be written: no such folder");
  CHECK_NOTHROW(expect_writable(folder + "/x", "--output"));
  CHECK_NOTHROW(expect_writable("x", "--output"));
}
