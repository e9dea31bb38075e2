#include "base/memo.hpp"

#include "tests/support/catch.hpp"

using namespace spp;

TEST_CASE("a memo asks once, forgets what was asked for longest ago, and takes nothing back") {
  Memo<int, int> squares(2);
  int asked = 0;
  const auto square = [&](int n) {
    return squares.of(n, [&](int question) {
      ++asked;
      return question * question;
    });
  };
  const std::shared_ptr<const int> three = square(3);
  CHECK(*three == 9);
  CHECK(*square(4) == 16);
  CHECK(square(3) == three);
  CHECK(asked == 2);
  CHECK(*square(5) == 25);  // 4 is forgotten, 3 is not
  CHECK(square(3) == three);
  CHECK(asked == 3);
  CHECK(*square(4) == 16);  // and now 5
  CHECK(*square(5) == 25);
  CHECK(asked == 5);
  CHECK(*three == 9);  // forgotten, too
}
