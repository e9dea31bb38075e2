// What a calibration times, said once for both instruments: the host's own calls (links.cpp,
// collectives.cpp, attention.cpp, elementwise.cpp, layer.cpp) and ops on engines
// (engine_suites.cpp).
#pragma once

#include "runtime/calibrate/measure.hpp"
#include "schedule/measure.hpp"
#include "schedule/row_function.hpp"

#include <variant>
#include <vector>

namespace spp::runtime {

/// A message to one neighbour and one from another, at the same time; an invalid rank: not that
/// one.
struct ExchangeWork {
  Rank to, from;
  std::int64_t bytes = 0;  // of each
};
struct CollectiveWork {
  CommKind kind = CommKind::all_to_all;
  RankGroup group;
  std::int64_t part = 0;  // bytes from each member to each other one; a multiple of 4
};
/// A kernel beside attention over `rows` rows of the shape's heads.
struct KernelWork {
  enum class Kernel : std::uint8_t { merge, accumulate, cast, copy, row_dot };
  Kernel kernel = Kernel::merge;
  std::int64_t rows = 0;
};
/// A row-wise function of a layer over rows of `width` numbers (of split_heads: of the shape's
/// heads).
struct RowWork {
  RowFunction function;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};
/// Ops that do next to nothing.
struct EmptyOpWork {};

/// What a rank does; monostate: it waits for the others.
using Work = std::variant<std::monostate, ExchangeWork, CollectiveWork, AttentionBlock, KernelWork,
                          GemmBlock, RowWork, EmptyOpWork>;

struct Probe {
  Series series;           // its labels; samples are still to come
  std::vector<Work> work;  // by rank
};

/// Ranks; those of a node are neighbours.
struct Layout {
  int ranks = 1;
  int per_node = 1;
  [[nodiscard]] int nodes() const { return ranks / per_node; }
};

/// Ranks whose kernels run side by side.
struct Crew {
  std::vector<bool> works;  // by rank
  int active = 1;           // those that share cores, or a device
};

/// Of one rank, nothing timed yet; `active`: how many work at once.
Series probe_labels(std::string suite, std::string what, int active);
/// The same on every rank that works.
std::vector<Work> everybodys(const Work& work, const Crew& crew);

/// See links_suite().
std::vector<Probe> link_probes(const Layout& layout, std::int64_t largest);
/// See collectives_suite().
std::vector<Probe> collective_probes(const Layout& layout, std::int64_t largest);
/// By rising FLOPs.
std::vector<Probe> attention_probes(std::vector<AttentionBlock> blocks, const std::string& what,
                                    const Crew& crew);
/// 0 … n - 1, so that the first few are spread over all: both ends, then the middle of each gap.
std::vector<std::size_t> ends_then_middles(std::size_t n);
/// See elementwise_suite(). Sizes are bytes touched, as schedule/measure.hpp counts them; an
/// accumulator has 256 KiB, 1 MiB, … up to `largest`.
std::vector<Probe> kernel_probes(const Problem& shape, const Crew& crew,
                                 std::int64_t largest = 16 << 20);
Probe empty_op_probe(const Crew& crew);

}  // namespace spp::runtime
