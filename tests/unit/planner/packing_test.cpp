#include "planner/packing.hpp"

#include "base/error.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>

using namespace spp;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

namespace {

std::vector<std::int64_t> lengths_of(const std::vector<std::int64_t>& ends) {
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    lengths.push_back(ends[i] - (i == 0 ? 0 : ends[i - 1]));
  }
  return lengths;
}

PackedSequence typical(std::string_view text, std::int64_t seq) {
  return typical_sequence(LengthDistribution::parse(text, seq, "--documents"), seq, "--documents");
}

std::string refusal_of(std::string_view text, std::int64_t seq = 65536) {
  try {
    typical(text, seq);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("documents fill the sequence, and none is longer than the most") {
  const PackedSequence packed = typical("lognormal:median=2K,sigma=1.2,max=16K", 1 << 20);
  std::vector<std::int64_t> lengths = lengths_of(packed.ends);
  CHECK(packed.ends.back() == 1 << 20);
  CHECK(std::ranges::all_of(lengths, [](std::int64_t n) { return n > 0 && n <= 16384; }));
  // Of a log-normal distribution cut at three times its deviation, the median and the deviation.
  std::ranges::sort(lengths);
  CHECK(static_cast<double>(lengths[lengths.size() / 2]) == Approx(2048 * 0.92).epsilon(0.2));
  CHECK(packed.least < 1);
  CHECK(packed.most > 1);
}

TEST_CASE("the same seed draws the same documents, another one others") {
  const auto one = typical("lognormal:median=1K,sigma=1,seed=7", 1 << 18);
  CHECK(one.ends == typical("lognormal:median=1K,sigma=1,seed=7", 1 << 18).ends);
  CHECK(one.ends != typical("lognormal:median=1K,sigma=1,seed=8", 1 << 18).ends);
}

TEST_CASE("without deviation all documents are as long as the median, the last one is cut") {
  CHECK(typical("lognormal:median=1000,sigma=0", 2500).ends ==
        std::vector<std::int64_t>{1000, 2000, 2500});
}

TEST_CASE("a histogram's lengths come as often as their weights say") {
  const test::TempDir folder;
  const auto file = folder.write("lengths.txt", "# tokens weight\n1K 3\n\n2K 1  # a quarter\n");
  const PackedSequence packed = typical("histogram:" + file.string() + ",seed=3", 1 << 22);
  const std::vector<std::int64_t> lengths = lengths_of(packed.ends);
  const auto count = [&](std::int64_t n) {
    return static_cast<double>(std::ranges::count(lengths, n));
  };
  CHECK(count(1024) + count(2048) >= static_cast<double>(lengths.size()) - 1);
  CHECK(count(1024) / count(2048) == Approx(3).epsilon(0.1));
}

TEST_CASE("impossible distributions are refused") {
  CHECK_THAT(refusal_of("lognormal:sigma=1"), ContainsSubstring("lognormal needs median="));
  CHECK_THAT(refusal_of("lognormal:median=2K"), ContainsSubstring("lognormal needs sigma="));
  CHECK_THAT(refusal_of("lognormal:median=2K,sigma=-1"), ContainsSubstring("sigma -1"));
  CHECK_THAT(refusal_of("lognormal:median=2K,sigma=nan"), ContainsSubstring("nan"));
  CHECK_THAT(refusal_of("lognormal:median=2K,sigma=1,max=1K"),
             ContainsSubstring("max 1024 is below the median 2048"));
  CHECK_THAT(refusal_of("lognormal:median=2K,mean=1,sigma=1"),
             ContainsSubstring("'mean' is no parameter"));
  CHECK_THAT(refusal_of("lognormal:median=1,sigma=0", std::int64_t{1} << 30),
             ContainsSubstring("more than 200000 documents"));
  const test::TempDir folder;
  const auto of_file = [&](std::string_view lines) {
    return refusal_of("histogram:" + folder.write("lengths.txt", lines).string());
  };
  CHECK_THAT(of_file("1K\n"), ContainsSubstring("line 1: '1K' is not a length and its weight"));
  CHECK_THAT(of_file("1K -1\n"), ContainsSubstring("weight -1"));
  CHECK_THAT(of_file("1K 1e300\n"), ContainsSubstring("weight 1e300"));
  CHECK_THAT(of_file("# nothing\n"), ContainsSubstring("has no length"));
  CHECK_THAT(refusal_of("histogram:" + folder.path().string() + "/none"),
             ContainsSubstring("none"));
}
