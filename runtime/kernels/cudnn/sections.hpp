// An attention block cut into the calls that cuDNN knows: dense rectangles of rows, unmasked or
// causal (sdpa.hpp).
//
// A block is rows of queries and rows of keys, each the tokens of a TokenSet, and a mask. Row i
// sees the key rows [begin(i), end(i)); where both sets rise, as all layouts here do, these are one
// run. So a run of queries is one call when
//
//   begin and end stay             none          every row sees the same keys
//   begin stays, end rises by 1    bottom-right  the diagonal ends in the last row's last key
//   end rises by 1 from one key    top-left      the diagonal starts in the first row's first key;
//   on, then stays                               rows below it see all keys
//
// and rows that see nothing need no call: out = 0, lse = -infinity. Examples, query rows downwards,
// key rows to the right (# seen, \ the diagonal, . hidden):
//
//   own chunk    zigzag: earlier    zigzag: later      striped, keys    keys 4 and 5
//   or chunks    rank's keys        rank's keys        a token later    are padding
//   \...         ####....           ........           .... no call     \.....
//   #\..         ####....           ........ no call   \...             #\....
//   ##\.         ####....           ########           #\..             ##\...
//   ###\         ####....           ########           ##\.             ###\..
//                                                                       ####.. one top-left call
//
// Packed documents make a call or two of each document; a window mask moves begin and end at once,
// which no call here does. Where several documents are dealt out in pieces, the keys of one that
// lie in two chunks do not lie together: such blocks are refused. Of all ways to cut, the one with
// the fewest calls.
#pragma once

#include "runtime/kernels/attention.hpp"
#include "runtime/kernels/cudnn/sdpa.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace spp::runtime {

/// Query rows against key rows. `seen` false: the queries see no key of the block.
struct Section {
  Interval q, k;
  SdpaMask mask = SdpaMask::none;
  bool seen = true;
  friend bool operator==(const Section&, const Section&) = default;
};

/// Every query row once, in order; or why it cannot be.
struct Sections {
  std::vector<Section> list;
  std::string why_not;  // "" when `list` is the answer
};

/// O(q rows + k rows). Refuses window masks, keys that do not lie together, and blocks that take
/// more than `most_calls` calls (each costs microseconds to launch and a second to compile).
Sections sections(const Visibility& visible, std::int64_t most_calls = 64);

}  // namespace spp::runtime
