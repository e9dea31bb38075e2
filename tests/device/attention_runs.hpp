// Blocks of attention, forward and backward, as a rank's kernels compute them on a device, beside
// what the fp64 oracle has for them.
#pragma once

#include "runtime/device/cuda/attention.hpp"
#include "tests/device/blocks.hpp"

#include <random>
#include <string>
#include <vector>

namespace spp::test {

/// The statistics that a backward reads.
enum class Lse : std::uint8_t {
  of_the_forward,  // of the same block: -infinity for queries that see no key
  finite           // as of all keys: 0 for them
};

/// Of queries and keys, and of values and outputs.
struct HeadWidths {
  int keys = 1, values = 1;
};

struct AttentionCase {
  Block tokens;
  Mask mask;
  DType type = DType::fp32;
  int q_heads = 1, kv_heads = 1;
  HeadWidths widths;
  Lse lse = Lse::of_the_forward;
};
std::string to_string(const AttentionCase& c);

struct Compared {
  std::vector<double> values, expected;
};
struct AttentionRun {
  Compared out, lse, d_q, d_k, d_v;
  std::vector<double> delta;  // that the backward was given
};

/// On random numbers.
AttentionRun run_attention(runtime::cuda::DeviceAttention& kernels, const AttentionCase& c,
                           const runtime::cuda::Stream& stream, std::mt19937& random);

/// `tokens` with every one of `masks`, and heads that are as many as KV heads, twice, three times.
std::vector<AttentionCase> attention_cases(const std::vector<Block>& tokens,
                                           const std::vector<Mask>& masks, DType type,
                                           HeadWidths widths, Lse lse);

}  // namespace spp::test
