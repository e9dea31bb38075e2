// The text form of a schedule: one buffer or op a line, made for reading, comparing and handing a
// plan from the machine that plans to the machine that runs. Grammar: docs/schedule.md.
//
//   sp-plan/schedule 2.0
//   problem seq=16 batch=1 q_heads=2 …
//   rank 0
//     buffer q q input bf16 tile=0:8 heads=0:2
//     buffer k0 k scratch bf16 tokens=8 heads=2
//     ring: exchange to=1 from=1 send=k receive=k0
//     compute: attention_fwd q=q k=k v=v out=part lse=part_lse q_tokens=0:8 k_tokens=0:8 …
//
// Loops are written unrolled, each iteration under a line "iteration 2 of 7", and read back as
// loops; stages that run once carry no such line. So text -> schedule -> text is the identity, and
// schedule
// -> text -> schedule keeps buffers, ops and trips (not the boundaries between stages that run
// once).
#pragma once

#include "schedule/schedule.hpp"

#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

namespace spp {

/// Writes the programs of `ranks` (empty: all), holding one iteration at a time.
void write_text(const Schedule& schedule, std::ostream& out, std::span<const Rank> ranks = {});
std::string to_text(const Schedule& schedule, std::span<const Rank> ranks = {});

/// The reverse. InputError with file:line, the word and what is expected. What was read is well
/// formed (names are declared, ranks and tokens exist, sizes fit in 63 bits); whether it computes
/// attention is for coverage to say. Programs of ranks that the text leaves out: InputError on use.
Schedule parse_schedule(std::string_view text, std::string_view file);

/// The words of the ops, by OpKind: "attention_fwd", …
std::span<const std::string> op_names();

}  // namespace spp
