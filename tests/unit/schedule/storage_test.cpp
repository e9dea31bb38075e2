#include "schedule/storage.hpp"

#include "tests/support/catch.hpp"
#include "tests/unit/schedule/ring_of_two.hpp"

namespace spp {
namespace {

/// The ring of two with one buffer of all ranks changed.
template <class Change>
Schedule with_buffer(std::string_view name, Change change) {
  Schedule s = test::ring_of_two();
  s.program = [program = s.program, name, change](Rank rank) {
    Program result = program(rank);
    for (Buffer& buffer : result.buffers) {
      if (buffer.name == name) {
        change(buffer);
      }
    }
    return result;
  };
  return s;
}

TEST_CASE("a schedule that can be stored is told from one that cannot") {
  CHECK(misplaced(test::ring_of_two()) == "");
  const Schedule narrow = with_buffer("part", [](Buffer& b) { b.tokens = 4; });
  CHECK(misplaced(narrow) == "the storage of rank 1, attention_fwd: 'part' is too small");
  CHECK_THROWS_AS(store(narrow), InternalError);
}

TEST_CASE("a buffer has as many heads a row as lie in it") {
  CHECK(misplaced(with_buffer("part", [](Buffer& b) { b.heads = 5; })) ==
        "the storage of rank 1, attention_fwd: 'part' has 5 heads a row, not the 4 that it gets");
  CHECK(misplaced(with_buffer("k1", [](Buffer& b) {
          b.heads = 4;
          b.tokens = 4;
        })) == "the storage of rank 1, exchange: 'k1' has 4 heads a row, not the 2 that it gets");
}

}  // namespace
}  // namespace spp
