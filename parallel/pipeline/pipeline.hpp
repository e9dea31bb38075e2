// A pipeline schedule: in which order a rank of a pipeline works on its micro-batches. One file
// each in parallel/pipeline/, listed in parallel/CMakeLists.txt.
//
// A model is cut into p v virtual stages (chunks of layers); rank r of p holds the virtual stages
// r, p + r, 2p + r, … (Narayanan et al., arXiv:2104.04473, section 2.2). Every micro-batch passes
// all of them forward, then all of them backward. What an order has to keep is proven,
// what it costs follows from walking it with times (both walk.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

/// What a rank does for a micro-batch in one of its chunks. A backward is whole, or cut into the
/// gradient of the input, which the stage before waits for, and that of the weights, which nobody
/// waits for (Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241).
enum class StageWork : std::uint8_t { forward, backward, input_gradient, weight_gradient };
std::string_view to_string(StageWork);

struct StageOp {
  StageWork work = StageWork::forward;
  int micro_batch = 0;
  int chunk = 0;
  friend bool operator==(const StageOp&, const StageOp&) = default;
};
/// "F3", "B0.1": micro-batch 0 in chunk 1; "I", "W" are the parts of a backward.
std::string to_string(const StageOp& op, int chunks);

struct PipelineShape {
  int stages = 1;  // p: ranks
  int chunks = 1;  // v: virtual stages of a rank
  int micro_batches = 1;
  friend bool operator==(const PipelineShape&, const PipelineShape&) = default;
  [[nodiscard]] int virtual_stages() const { return stages * chunks; }
  [[nodiscard]] int virtual_stage(int rank, int chunk) const { return chunk * stages + rank; }
};

struct Pipeline {
  std::string_view name;   // "1f1b"
  std::string_view title;  // "one forward, one backward"
  std::string_view paper;
  bool chunks = false;    // whether a rank may hold several
  bool overlaps = false;  // ranks go on while messages travel, where a stack can
  /// Behind a warm-up of at most 2p micro-batches a rank does the same for every next p, until its
  /// forwards end; no op needs what another gave more than 2p micro-batches before.
  bool repeats = false;
  bool cuts_backward = false;  // into its two halves
  /// A rank's last backward is behind all others: what it gives is reduced beside it alone.
  bool ends_with_backward = false;
  /// Another order takes as long and holds less: it is searched only if asked for.
  bool dominated = false;
  /// Micro-batches of which a rank holds activations at once, at least.
  int (*in_flight)(const PipelineShape&, int rank);
  /// What only this order demands; "" if legal.
  std::string (*why_not)(const PipelineShape&);
  /// All of a rank's work, first to last.
  std::vector<StageOp> (*order)(const PipelineShape&, int rank);
};

/// Why there is no such pipeline, one line; "" if there is.
std::string why_not(const Pipeline& pipeline, const PipelineShape& shape);

namespace pipelines {
/// In the order of parallel/CMakeLists.txt. Generated.
std::span<const Pipeline* const> all();
/// By name; unknown names are an InputError(where) with "did you mean".
const Pipeline& by_name(std::string_view name, std::string_view where);
/// What is run where nobody asks for another, with so many chunks a rank; of one stage, which
/// works on its micro-batches one after the other, too.
const Pipeline& usual(int chunks);
}  // namespace pipelines

}  // namespace spp
