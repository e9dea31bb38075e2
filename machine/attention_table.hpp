// Attention kernels that a calibration timed, beside the formula of kernel_cost.hpp.
//
// Exactly a measured block: its median. Blocks are the same if dtype, phase, batch, heads, head_dim
// and *pattern* are: positions are shifted so that the earliest token is 0, and where the mask
// hides nothing only the counts of queries and keys matter.
//
// Any other block: the formula, corrected by what it missed on its relatives, the measured blocks
// with its phase, dtype, heads and head_dim that are masked if it is. Let f be the formula's time
// of a block and (f_i, t_i) the relatives' formula times and medians.
//
//   g(f)   piecewise linear in log f through the points (log f_i, log t_i), which are first made
//          non-decreasing by pooling adjacent violators (M. Ayer et al., Ann. Math. Statist. 26,
//          1955: the least squares fit under that constraint). So g is f times a ratio t_i/f_i that
//          is interpolated in the logarithm of the size.
//   ends   beyond the smallest and the largest relative the logarithm of that ratio falls to 0
//          linearly over a factor of 16 in f (of |ratio|, if that is more): far away the formula is
//          right, which was fitted over all sizes.
//
// g never falls: where the formula says longer, so does g. Its ratio to f lies between the least
// and the largest t_i/f_i and 1, which keeps lower bounds (least_ratio). The caller keeps g(f) at
// the peak rate or below.
#pragma once

#include "base/units.hpp"
#include "machine/machine.hpp"

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace spp {

struct AttentionShape {
  TokenSet q, k;
  int q_heads = 1;
  int kv_heads = 1;
  int head_dim = 128;  // of queries and keys
  std::int64_t batch = 1;
  Mask mask{};
  DType dtype = DType::bf16;
  Phase phase = Phase::forward;
  int value_dim = 0;          // of values and outputs; 0: head_dim
  bool behind_cache = false;  // some keys are of an earlier pass
  [[nodiscard]] int v_dim() const { return value_dim > 0 ? value_dim : head_dim; }
};

/// Whether the mask's kind hides any pair of the block inside a document.
bool is_partly_hidden(const AttentionShape& shape);
/// Whether a window hides a pair of the block that a causal mask would show (documents aside);
/// where it does not, kernels run as under a causal mask (flash_api.cpp of FlashAttention: a window
/// as long as the keys is none).
bool is_cut_by_window(const AttentionShape& shape);
/// Whether the mask hides any pair of the block.
bool is_partly_masked(const AttentionShape& shape);

/// FLOPs of one (query, key) pair of one head (FlashAttention-2, arXiv:2307.08691, section 4.1):
/// forward S = Q K^T and P V; backward S, dP = dO V^T, dQ, dK, dV.
double flops_per_pair(const AttentionShape& shape);

/// FLOPs of the pairs that the mask allows.
FlopCount attention_flops_of(const AttentionShape& shape);

/// The shape that was measured.
AttentionShape shape_of(const MeasuredAttention& measured);

/// What two equal blocks agree in.
using AttentionKey = std::array<std::int64_t, 20>;
AttentionKey key_of(const AttentionShape& shape);

class AttentionTable {
 public:
  using Formula = std::function<Seconds(const AttentionShape&)>;

  /// Nothing was measured.
  AttentionTable() = default;
  /// The entries of `kernels`. `formula` is called here only.
  AttentionTable(std::span<const MeasuredAttention> measured, std::string_view kernels,
                 const Formula& formula);

  [[nodiscard]] bool empty() const { return exact_.empty(); }
  /// Time of a block for which the formula says `formula`.
  [[nodiscard]] Seconds time(const AttentionShape& shape, Seconds formula) const;
  /// min(1, time / formula) over all blocks of a phase.
  [[nodiscard]] double least_ratio(Phase phase) const;
  /// Relative standard error of the median of exactly this block, if it was measured and its
  /// samples are independent. Other blocks do not share it.
  [[nodiscard]] std::optional<double> standard_error(const AttentionKey& block) const;
  /// Root mean square of the spreads of what was measured of this phase, dtype and head_dim.
  [[nodiscard]] std::optional<double> spread(Phase phase, DType dtype, int head_dim) const;

 private:
  struct Point {
    double log_formula = 0;
    double log_time = 0;
    double weight = 1;  // measurements that it stands for
  };
  using Family = std::array<std::int64_t, 6>;
  struct Spreads {
    double squares = 0;
    int count = 0;
  };

  static Family family_of(const AttentionShape& shape);
  static std::vector<Point> never_falling(std::vector<Point> points);

  struct Exact {
    Seconds median{};
    double standard_error = 0;
  };

  std::map<AttentionKey, Exact> exact_;
  std::map<Family, std::vector<Point>> curves_;
  std::array<double, 2> least_ratio_{1, 1};  // by phase
  std::map<std::array<std::int64_t, 3>, Spreads> spreads_;
};

}  // namespace spp
