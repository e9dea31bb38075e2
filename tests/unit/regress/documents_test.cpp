#include "regress/documents.hpp"

#include "tests/support/catch.hpp"

#include <algorithm>
#include <random>

using namespace spp;
using namespace spp::regress;

TEST_CASE("usual documents fill a sequence, none longer than a quarter of it") {
  for (const std::int64_t seq : {8192, 65536, 524288}) {
    INFO(seq);
    const PackedSequence packed = usual_packing(seq);
    REQUIRE(packed.ends.back() == seq);
    std::int64_t begin = 0;
    for (const std::int64_t end : packed.ends) {
      CHECK(end > begin);
      CHECK(end - begin <= seq / 4);
      begin = end;
    }
    CHECK(packed.ends == usual_packing(seq).ends);  // the same ones for everybody
    CHECK(packing_spread(packed) > 0);
  }
}

TEST_CASE("usual documents are some two thousand tokens long") {
  for (const std::int64_t seq : {65536, 524288}) {
    const double mean =
        static_cast<double>(seq) / static_cast<double>(usual_packing(seq).ends.size());
    CHECK(mean > 1024);  // the histogram's mean is 1.9K
    CHECK(mean < 4096);
  }
}

TEST_CASE("what is longer than a quarter is cut into quarters and a rest") {
  // Of 4096 tokens: every bin above 1K gives whole quarters, which are most of all.
  std::mt19937_64 random(1);
  const LengthDistribution lengths = usual_documents(4096);
  int quarters = 0;
  constexpr int drawn = 2000;
  for (int i = 0; i < drawn; ++i) {
    const std::int64_t length = lengths.draw(random);
    REQUIRE(length <= 1024);
    quarters += length == 1024 ? 1 : 0;
  }
  CHECK(quarters > drawn / 4);
}
