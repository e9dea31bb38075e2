// Published measurements. What is read can be scored.
#include "regress/corpus.hpp"

#include "tests/fuzz/json_mutator.hpp"
#include "tests/fuzz/target.hpp"

#include <cmath>

using namespace spp;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fuzz::InputFile input;
  fuzz::allow_refusal([&] {
    const regress::CorpusFile file =
        regress::read_corpus_file(input.write(fuzz::text_of(data, size)));
    for (const regress::Point& point : file.points) {
      ensure(point.world >= 1, "a point of no ranks");
      if (point.value) {
        const double cost = regress::cost(point.metric, *point.value);
        ensure(std::isfinite(cost) && cost > 0, "a point that costs nothing, or everything");
      }
    }
  });
  return 0;
}
