// A part of a program once more, on other buffers and other tokens: most micro-batches of a step do
// what one of them did, so its ops are held once and the others are emitted from them.
#pragma once

#include "schedule/builder.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace spp {

/// Of a buffer that the part's ops name: the number of the distance, in a Repetition, by which the
/// buffer that stands for it is further on in the program.
struct RepeatedBuffer {
  std::uint16_t distance = 0;
  bool of_param = false;  // tokens of what is summed up in it are a parameter's rows, which stay
};

/// What differs from the part.
struct Repetition {
  std::shared_ptr<const std::vector<RepeatedBuffer>> buffers;  // by buffer of the program
  std::vector<std::int32_t> distances;                         // in buffers; the first is 0
  std::int64_t tokens = 0;                                     // each token further by so many

  [[nodiscard]] BufferId moved(BufferId id) const {
    return BufferId(id.value + distances[(*buffers)[id.index()].distance]);
  }
};

/// Appends the ops between two places of the program once more, each loop like the one it repeats.
/// Their buffers are there, of the same sizes.
void repeat(ProgramBuilder& program, ProgramBuilder::Place begin, ProgramBuilder::Place end,
            Repetition repetition);

}  // namespace spp
