// Published measurements. What is read can be scored.
#include "regress/corpus.hpp"

#include "tests/fuzz/target.hpp"

#include <cmath>

namespace spp::fuzz::targets::corpus {

extern const Target entry{
    "corpus", Form::json, [](std::string_view text) {
      static InputFile input;
      allow_refusal([&] {
        const regress::CorpusFile file = regress::read_corpus_file(input.write(text));
        for (const regress::Point& point : file.points) {
          ensure(point.world >= 1, "a point of no ranks");
          if (point.value) {
            const double cost = regress::cost(point.metric, *point.value);
            ensure(std::isfinite(cost) && cost > 0, "a point that costs nothing, or everything");
          }
        }
      });
    }};

}  // namespace spp::fuzz::targets::corpus
