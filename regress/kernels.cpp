#include "regress/kernels.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"

#include <algorithm>
#include <cmath>

namespace spp::regress {
namespace {

/// Draws of loads that the times of a point are averaged over.
constexpr int draws = 8;
/// Experts draw at most this part of all tokens; at least one, or a hundredth where tokens are few.
constexpr double most_of_tokens = 0.8;

/// DeepSeek-V3's (arXiv:2412.19437): what tables of its attention leave unsaid.
constexpr std::int64_t deepseek_q_lora = 1536;
constexpr std::int64_t deepseek_kv_lora = 512;
constexpr std::int64_t deepseek_rope = 64;

DType tensors_of(const Point& p) {
  return p.dtype == "fp16" || p.dtype == "half" ? DType::fp16
         : p.dtype == "fp32"                    ? DType::fp32
                                                : DType::bf16;
}

/// xorshift64: the same numbers everywhere.
class Uniform {
 public:
  double next() {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return static_cast<double>(state_ >> 11U) * 0x1p-53;
  }

 private:
  std::uint64_t state_ = 88172645463325252ULL;
};

/// One draw: the rows of the busiest rank's experts.
std::vector<std::int64_t> drawn_rows(const Point& p, std::size_t per_rank, double exponent,
                                     Uniform& uniform) {
  const auto tokens = static_cast<double>(*p.tokens);
  const double copies = tokens * *p.experts_per_token;
  const bool few = copies <= *p.experts;
  const double power = 1 - exponent;
  const double low = std::pow(few ? 0.01 : 1.0, power);
  const double high = std::pow(few ? 2.0 : std::max(most_of_tokens * tokens, 1.0), power);
  std::vector<double> loads(static_cast<std::size_t>(*p.experts));
  double sum = 0;
  for (double& load : loads) {
    load = std::pow((high - low) * uniform.next() + low, 1 / power);
    sum += load;
  }
  std::vector<std::int64_t> busiest;
  std::int64_t most = -1;
  for (std::size_t first = 0; first + per_rank <= loads.size(); first += per_rank) {
    std::vector<std::int64_t> rows;
    std::int64_t total = 0;
    for (std::size_t i = first; i < first + per_rank; ++i) {
      rows.push_back(std::llround(std::min(tokens, loads[i] / sum * copies)));
      total += rows.back();
    }
    if (total > most) {
      most = total;
      busiest = std::move(rows);
    }
  }
  return busiest;
}

KernelAnswer gemm_answer(const Point& p, const KernelCost& cost) {
  const GemmFormat format = gemm_format_of(p);
  const GenerationSpec& generation = cost.gpu().generation;
  const Seconds time =
      cost.gemm({.m = *p.m, .n = *p.n, .k = *p.k, .format = format}, tensors_of(p));
  return {.time = time,
          .spread = format == GemmFormat::plain
                        ? generation.gemm_efficiency.spread
                        : generation.gemm_formats.at(format).efficiency.spread};
}

KernelAnswer moe_answer(const Point& p, const KernelCost& cost) {
  if (*p.moe_ffn % p.tp != 0) {
    throw InputError("tp",
                     fmt::format("{} does not divide the experts' width {}", p.tp, *p.moe_ffn));
  }
  const auto all = expert_rows(p);
  Seconds sum{};
  for (const auto& rows : all) {
    sum += cost.expert_layer({.rows = rows,
                              .tokens = *p.tokens,
                              .hidden = *p.hidden,
                              .ffn = *p.moe_ffn / p.tp,
                              .format = gemm_format_of(p)},
                             tensors_of(p));
  }
  return {.time = sum / static_cast<double>(all.size()),
          .spread = cost.gpu().generation.expert_layer->beside.spread};
}

/// The attention kernel of a prefill with keys and values of their own for each head, and the
/// writing of the latent into the cache.
KernelAnswer projected_attention(const Point& p, const KernelCost& cost) {
  const TokenSet tokens({.begin = 0, .count = *p.seq});
  const int value_dim = p.head_dim_v.value_or(static_cast<int>(p.v_head_dim.value_or(128)));
  const AttentionShape shape{
      .q = tokens,
      .k = tokens,
      .q_heads = *p.q_heads,
      .kv_heads = *p.q_heads,
      .head_dim = *p.head_dim,
      .batch = p.batch.value_or(1),
      .mask = {.kind = p.mask == PointMask::full ? MaskKind::full : MaskKind::causal},
      .dtype = tensors_of(p),
      .phase = Phase::forward,
      .head_dim_v = value_dim};
  const std::int64_t latent =
      p.kv_lora_rank.value_or(deepseek_kv_lora) + p.qk_rope_head_dim.value_or(deepseek_rope);
  const Bytes cache(2 * *p.seq * p.batch.value_or(1) * latent * size_of(shape.dtype));
  const Problem problem{.seq = *p.seq,
                        .batch = shape.batch,
                        .q_heads = shape.q_heads,
                        .kv_heads = shape.kv_heads,
                        .head_dim = shape.head_dim,
                        .mask = shape.mask,
                        .dtype = shape.dtype};
  return {
      .time = cost.attention(shape) + cost.memory_bound(cache),
      .spread = std::hypot(cost.attention_spread(problem, Phase::forward), foreign_kernel_spread)};
}

/// The attention block with its projections, as DeepSeek-V3 has it.
KernelAnswer mla_block(const Point& p, const KernelCost& cost) {
  const DType dtype = tensors_of(p);
  const GemmFormat format = gemm_format_of(p);
  const std::int64_t tokens = *p.seq * p.batch.value_or(1);
  const std::int64_t heads = *p.q_heads;
  const std::int64_t q_lora = p.q_lora_rank.value_or(deepseek_q_lora);
  const std::int64_t kv_lora = p.kv_lora_rank.value_or(deepseek_kv_lora);
  const std::int64_t rope = p.qk_rope_head_dim.value_or(deepseek_rope);
  const std::int64_t value_dim =
      p.head_dim_v.value_or(static_cast<int>(p.v_head_dim.value_or(128)));
  const std::int64_t key_dim = *p.head_dim;
  KernelAnswer answer = projected_attention(p, cost);
  const auto gemm = [&](std::int64_t n, std::int64_t k) {
    answer.time += cost.gemm({.m = tokens, .n = n, .k = k, .format = format}, dtype);
  };
  gemm(q_lora + kv_lora + rope, *p.hidden);  // both down-projections in one
  gemm(heads * key_dim, q_lora);
  gemm(heads * (key_dim - rope + value_dim), kv_lora);
  gemm(*p.hidden, heads * value_dim);
  // Two norms, RoPE and the putting together of keys: each read and written.
  const std::int64_t elements = 2 * tokens * (q_lora + kv_lora + 3 * heads * key_dim);
  answer.time += cost.memory_bound(Bytes(elements * size_of(dtype)));
  answer.spread = std::max(answer.spread, cost.gpu().generation.gemm_efficiency.spread);
  return answer;
}

}  // namespace

GemmFormat gemm_format_of(const Point& p) {
  const std::string& name = p.dtype;
  if (name.empty() || name == "bf16" || name == "fp16" || name == "half" || name == "fp32") {
    return GemmFormat::plain;
  }
  if (name == "fp8_block") {  // 1 x 128 and 128 x 128 blocks: kernels alike
    return GemmFormat::mxfp8;
  }
  return parse_gemm_format(name, "dtype");
}

std::vector<std::vector<std::int64_t>> expert_rows(const Point& p) {
  const std::int64_t experts = *p.experts;
  const std::int64_t ranks = p.ep.value_or(1);
  if (experts % ranks != 0) {
    throw InputError("ep", fmt::format("{} does not divide {} experts", ranks, experts));
  }
  const auto per_rank = static_cast<std::size_t>(experts / ranks);
  constexpr std::string_view law = "power_law_";
  if (p.distribution.starts_with(law)) {
    const double exponent =
        parse_double(std::string_view(p.distribution).substr(law.size()), "distribution");
    if (!(exponent > 1) || exponent > 8) {
      throw InputError("distribution",
                       fmt::format("exponent {} is out of range (above 1, to 8)", exponent));
    }
    Uniform uniform;
    std::vector<std::vector<std::int64_t>> all;
    for (int i = 0; i < draws; ++i) {
      all.push_back(drawn_rows(p, per_rank, exponent, uniform));
    }
    return all;
  }
  if (!p.distribution.empty() && p.distribution != "balanced") {
    throw InputError("distribution", fmt::format("'{}' is not modelled", p.distribution));
  }
  const std::int64_t copies = *p.tokens * *p.experts_per_token;
  std::vector<std::int64_t> rows(per_rank);
  for (std::size_t i = 0; i < per_rank; ++i) {
    const auto n = static_cast<std::int64_t>(i);
    rows[i] = (n + 1) * copies / experts - n * copies / experts;
  }
  return {rows};
}

std::string attention_kernel_of(const Point& p, const GenerationSpec& generation) {
  if (p.library.empty()) {
    return p.kernel;
  }
  const auto says = [&](std::string_view word) { return p.kernel.find(word) != std::string::npos; };
  std::string kernel = generation.attention.kernel;
  if (says("fa3") || says("_v3")) {
    kernel = "FA3";
  } else if (says("flash_att") && !says("fa4") && !says("_v4")) {
    kernel = "FA2";
  }
  return kernel;
}

Seconds cache_write(const Point& p, const KernelCost& cost) {
  if (p.library.empty() || p.mask == PointMask::full || p.mask == PointMask::varlen_full) {
    return Seconds(0);
  }
  const std::int64_t values = *p.seq * p.batch.value_or(1) * p.kv_heads.value_or(*p.q_heads) *
                              (*p.head_dim + p.head_dim_v.value_or(*p.head_dim));
  return cost.launch() + cost.memory_bound(Bytes(2 * values * size_of(tensors_of(p))));
}

KernelAnswer kernel_answer(const Point& p, const KernelCost& cost) {
  if (p.op == "gemm") {
    return gemm_answer(p, cost);
  }
  if (p.op == "moe") {
    return moe_answer(p, cost);
  }
  if (p.op == "mla_context_module") {
    return mla_block(p, cost);
  }
  if (p.op == "mla_context") {
    if (p.variant == "absorbed") {
      throw InputError("variant", "absorbed latent attention (576 wide keys) is not modelled");
    }
    if (gemm_format_of(p) != GemmFormat::plain) {
      throw InputError("dtype", fmt::format("latent attention in {} is not modelled", p.dtype));
    }
    return projected_attention(p, cost);
  }
  throw InputError("op", fmt::format("kernels of kind {} are not modelled", p.op));
}

}  // namespace spp::regress
