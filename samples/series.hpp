// What a calibration timed: a series is one thing, timed again and again.
#pragma once

#include "base/json.hpp"
#include "base/units.hpp"
#include "schedule/op.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spp {

/// A block of an attention kernel as a plan runs it; tokens as the kernel sees them.
struct AttentionBlock {
  Phase phase = Phase::forward;
  TokenSet q, k;
  int q_heads = 1;
  int kv_heads = 1;
  int head_dim = 128;
  int value_dim = 0;  // of values and outputs; 0: head_dim
  std::int64_t batch = 1;
  Mask mask{};
  DType dtype = DType::fp32;
  [[nodiscard]] int v_dim() const { return value_dim > 0 ? value_dim : head_dim; }
  friend bool operator==(const AttentionBlock&, const AttentionBlock&) = default;
};
/// FLOPs of the pairs that the mask allows: flops_per_pair of each and of each head.
FlopCount flops_of(const AttentionBlock& block);

/// A GEMM of a layer as a plan runs it (schedule/op.hpp). The gradient of a weight is fp32, all
/// else of `dtype`.
struct GemmBlock {
  GemmKind kind = GemmKind::forward;
  GemmShape shape;
  DType dtype = DType::fp32;
  friend bool operator==(const GemmBlock&, const GemmBlock&) = default;
};

/// Raw samples of one thing.
struct Series {
  std::string suite;            // "links", …
  std::string what;             // "ring", "all_to_all", "merge", …: see the suite
  std::string scope;            // "intra", "inter"; "" if no message is sent
  int ranks = 1;                // of a group
  int active = 1;               // ranks at work at the same time; kernels: of a host, or a device
  double size = 0;              // bytes: sent by a rank, or touched; 0 for attention and `op`
  std::vector<double> seconds;  // by sample: of one repetition
  std::vector<double> pace;     // by sample: of the pace block (pace.hpp) meanwhile; or empty
  std::optional<AttentionBlock> block;
  // NOLINTNEXTLINE(readability-redundant-member-init): without, g++ wants it in every initialiser
  std::optional<GemmBlock> gemm = {};
};

Json to_json(const Series& series);
/// A list of them.
Json samples_json(const std::vector<Series>& series);
/// InputError names file and key.
Series read_series(const JsonView& view);

/// 8 B, 64 B, 256 B, … by factors of 4 up to `largest`.
std::vector<std::int64_t> message_sizes(std::int64_t largest);

}  // namespace spp
