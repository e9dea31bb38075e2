// The communication ops of a schedule over a Transport, as the simulator lowers them
// (sim/lowering.hpp), so that prediction and measurement are of the same algorithm:
//
//   exchange        every buffer one message; sends and receives posted together
//   all_to_all      direct: all sends and receives posted together, nearest peers first
//   all_gather      ring, host by host and in group order there: every part is passed on to the
//                   next member as it arrives
//   reduce_scatter  ring: partial sums travel in the type of the buffers; each addition is in fp32
//   all_reduce      a reduce_scatter of equal parts, then an all_gather of their sums
//
// Each is a state machine that its owner polls: no thread of its own, nothing blocks.
#pragma once

#include "runtime/comm/transport.hpp"
#include "schedule/mesh.hpp"
#include "schedule/problem.hpp"

#include <memory>
#include <span>
#include <vector>

namespace spp::runtime {

/// A running communication op.
class Pending {
 public:
  Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  virtual ~Pending() = default;
  /// Does what can be done after Transport::progress(); true once all of it is. Not to be called
  /// again then.
  virtual bool advance() = 0;
  /// Bytes that this rank has sent to other ranks; final once advance() was true.
  [[nodiscard]] virtual std::int64_t sent() const = 0;
  /// Ranks that it still waits for, for messages to people; empty if it waits for nobody.
  [[nodiscard]] virtual std::vector<Rank> waits_for() const = 0;
};

/// Waits until it is complete. BackendError(what) that names for whom when nothing has happened for
/// the time-out.
void finish(Transport& transport, Pending& pending, std::string_view what);

struct ExchangeParts {
  Rank to, from;  // invalid: that side is missing
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
};
std::unique_ptr<Pending> exchange(Transport& transport, int tag, const ExchangeParts& parts);

/// By group index; the own part is copied.
struct AllToAllParts {
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
};
std::unique_ptr<Pending> all_to_all(Transport& transport, int tag, const RankGroup& group,
                                    const AllToAllParts& parts);

/// `parts` by group index: where each member's part goes; `own` lies elsewhere and is copied to its
/// place.
std::unique_ptr<Pending> all_gather(Transport& transport, int tag, const RankGroup& group,
                                    std::span<const std::byte> own,
                                    std::vector<std::span<std::byte>> parts);

/// `parts` by group index, elements of `from_type`; `result` gets the sum of all members' own part,
/// in `to_type`. All parts have the same number of elements.
std::unique_ptr<Pending> reduce_scatter(Transport& transport, int tag, const RankGroup& group,
                                        std::vector<std::span<const std::byte>> parts,
                                        DType from_type, std::span<std::byte> result,
                                        DType to_type);

/// `parts` by group index, elements of `type`, all of one size; `results`, likewise, get their sums
/// over all members.
std::unique_ptr<Pending> all_reduce(Transport& transport, int tag, const RankGroup& group,
                                    std::vector<std::span<const std::byte>> parts,
                                    std::vector<std::span<std::byte>> results, DType type);

}  // namespace spp::runtime
