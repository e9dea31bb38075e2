#include "regress/kernels.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"
#include "regress/point_answer.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace spp::regress {
namespace {

/// Draws of loads that the times of a point are averaged over.
constexpr int draws = 8;
/// Experts draw at most this part of all tokens; at least one, or a hundredth where tokens are few.
constexpr double most_of_tokens = 0.8;

/// Of kernels of which no table was at hand.
constexpr double unmeasured_kernel_spread = 0.4;

/// DeepSeek-V3's (arXiv:2412.19437): what tables of its attention leave unsaid.
constexpr std::int64_t deepseek_q_lora = 1536;
constexpr std::int64_t deepseek_kv_lora = 512;
constexpr std::int64_t deepseek_rope = 64;

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
  const GemmFormat format = gemm_format_of(p, cost.gpu());
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
                              .format = gemm_format_of(p, cost.gpu())},
                             tensors_of(p));
  }
  return {.time = sum / static_cast<double>(all.size()),
          .spread = cost.gpu().generation.expert_layer->beside.spread};
}

/// Words of a server's name for itself, and how it writes keys and values into its cache. From the
/// aiconfigurator tables of prefill attention, which have that inside (GitHub
/// ai-dynamo/aiconfigurator 095f58a51; A100, H100, B200, L40S): calls of many tokens and few pairs.
struct CacheWriter {
  std::string_view server;
  double of_memory;   // part of the memory's rate
  double of_sm;       // bytes a second that an SM moves
  double sm_a_token;  // time of an SM that a token takes beside
  bool queries;       // pass through the same kernel (RoPE)
};
constexpr std::array cache_writers{
    // reshape_and_cache, a block for each token
    CacheWriter{
        .server = "vLLM", .of_memory = 0.65, .of_sm = 20e9, .sm_a_token = 90e-9, .queries = false},
    CacheWriter{
        .server = "SGLang", .of_memory = 0.8, .of_sm = 50e9, .sm_a_token = 30e-9, .queries = false},
    CacheWriter{.server = "TensorRT-LLM",
                .of_memory = 0.8,
                .of_sm = 50e9,
                .sm_a_token = 30e-9,
                .queries = true}};
/// Start of such a kernel in a CUDA graph.
constexpr Seconds cache_startup(3e-6);

/// The attention kernel of a prefill, and the writing of the latent into the cache. Projected: keys
/// and values of its own for each head, which the kernel before put together from the latent.
/// Absorbed: all heads attend to the latent itself.
KernelAnswer latent_attention(const Point& p, const KernelCost& cost) {
  const TokenSet tokens({.begin = 0, .count = *p.seq});
  const bool absorbed = p.variant == "absorbed";
  const int value_dim = p.head_dim_v.value_or(static_cast<int>(p.v_head_dim.value_or(128)));
  const AttentionShape shape{
      .q = tokens,
      .k = tokens,
      .q_heads = *p.q_heads,
      .kv_heads = absorbed ? 1 : *p.q_heads,
      .head_dim = *p.head_dim,
      .batch = p.batch.value_or(1),
      .mask = {.kind = p.mask == PointMask::full ? MaskKind::full : MaskKind::causal},
      .dtype = tensors_of(p),
      .phase = Phase::forward,
      .value_dim = value_dim};
  const std::int64_t latent =
      p.kv_lora_rank.value_or(deepseek_kv_lora) + p.qk_rope_head_dim.value_or(deepseek_rope);
  // SGLang's and vLLM's tables have the attention kernel without what makes its keys.
  const bool alone = absorbed || contains(p.library, "SGLang") || contains(p.library, "vLLM");
  const std::int64_t heads = alone ? 0 : *p.q_heads * (*p.head_dim + value_dim);
  const Bytes beside = Bytes(size_of(shape.dtype)) * *p.seq * shape.batch * (2 * latent + heads);
  const Problem problem{.seq = *p.seq,
                        .batch = shape.batch,
                        .q_heads = shape.q_heads,
                        .kv_heads = shape.kv_heads,
                        .head_dim = shape.head_dim,
                        .mask = shape.mask,
                        .dtype = shape.dtype};
  // No table of absorbed prefills was at hand: four times the width that tiles are made for.
  const double foreign = absorbed ? 4 * foreign_kernel_spread : foreign_kernel_spread;
  return {.time = cost.attention(shape) + cost.launch() + cost.memory_bound(beside),
          .spread = std::hypot(cost.attention_spread(problem, Phase::forward), foreign)};
}

/// The attention block with its projections, as DeepSeek-V3 has it.
KernelAnswer mla_block(const Point& p, const KernelCost& cost) {
  const DType dtype = tensors_of(p);
  const GemmFormat format = gemm_format_of(p, cost.gpu());
  const std::int64_t tokens = *p.seq * p.batch.value_or(1);
  const std::int64_t heads = *p.q_heads;
  const std::int64_t q_lora = p.q_lora_rank.value_or(deepseek_q_lora);
  const std::int64_t kv_lora = p.kv_lora_rank.value_or(deepseek_kv_lora);
  const std::int64_t rope = p.qk_rope_head_dim.value_or(deepseek_rope);
  const std::int64_t value_dim =
      p.head_dim_v.value_or(static_cast<int>(p.v_head_dim.value_or(128)));
  const std::int64_t key_dim = *p.head_dim;
  KernelAnswer answer = latent_attention(p, cost);
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

GemmFormat gemm_format_of(const Point& p, const GpuSpec& gpu) {
  const std::string& name = p.dtype;
  if (name.empty() || name == "bf16" || name == "fp16" || name == "fp32") {
    return GemmFormat::plain;
  }
  if (name == "fp8_block") {
    return gpu.generation.gemm_formats.contains(GemmFormat::mxfp8) ? GemmFormat::mxfp8
                                                                   : GemmFormat::fp8_block;
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
    all.reserve(draws);
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
  const std::string format = is_low_precision(p) ? fmt::format(" {}", p.dtype) : "";
  if (p.library.empty()) {
    return p.kernel + format;
  }
  const bool encoder = p.mask == PointMask::full || p.mask == PointMask::varlen_full;
  const bool two =
      contains(p.kernel, "flash_att") && !contains(p.kernel, "fa4") && !contains(p.kernel, "_v4");
  std::vector<std::string> names;
  if (contains(p.kernel, "trtllm") || contains(p.library, "TensorRT-LLM")) {
    names = {"TRT-LLM"};
  } else if (contains(p.kernel, "flashinfer")) {
    names = {"FlashInfer", "FA2 varlen"};
  } else if (contains(p.kernel, "triton")) {
    names = {"Triton"};
  } else if (contains(p.kernel, "fa3") || contains(p.kernel, "_v3")) {
    names = {encoder ? "FA3 varlen" : "FA3 paged", "FA3"};
  } else if (contains(p.kernel, "fa4") || contains(p.kernel, "_v4")) {
    names = {"FA4"};
  } else if (two) {  // vLLM's reads keys and values from the cache
    names = {!encoder && contains(p.library, "vLLM") ? "FA2 paged" : "FA2 varlen", "FA2"};
  }
  names.push_back(generation.attention.kernel);
  names.emplace_back("cuDNN 9");
  // A generation without kernels of that format: what is stored so is multiplied in 16 bits.
  for (const std::string& ending : {format, std::string()}) {
    for (const std::string& name : names) {
      const std::string whole = name + ending;
      if (generation.attention.kernel == whole || generation.kernels.contains(whole)) {
        return whole;
      }
    }
  }
  throw InternalError("a generation has its own kernel");
}

Seconds cache_write(const Point& p, const KernelCost& cost) {
  if (p.library.empty() || p.mask == PointMask::full || p.mask == PointMask::varlen_full) {
    return Seconds(0);
  }
  const auto* server = std::ranges::find_if(
      cache_writers, [&](const CacheWriter& w) { return contains(p.library, w.server); });
  const CacheWriter& writer = server == cache_writers.end() ? cache_writers[1] : *server;
  const GpuSpec& gpu = cost.gpu();
  const auto tokens = static_cast<double>(*p.seq * p.batch.value_or(1));
  const double width = p.kv_heads.value_or(*p.q_heads) *
                           static_cast<double>(*p.head_dim + p.head_dim_v.value_or(*p.head_dim)) +
                       (writer.queries ? static_cast<double>(*p.q_heads) * *p.head_dim : 0.0);
  const double bytes = 2 * tokens * width * static_cast<double>(size_of(tensors_of(p)));
  const auto sms = static_cast<double>(gpu.sms.value);
  return cache_startup +
         Seconds(std::max(bytes / (writer.of_memory * gpu.memory_bandwidth.value.value()),
                          bytes / (writer.of_sm * sms)) +
                 tokens * writer.sm_a_token / sms);
}

Bytes attention_memory(const Point& p, bool both_passes) {
  const std::int64_t batch = p.batch.value_or(1);
  const std::int64_t width = *p.head_dim + p.head_dim_v.value_or(*p.head_dim);
  const std::int64_t kv_heads = p.kv_heads.value_or(*p.q_heads);
  const Bytes element(size_of(tensors_of(p)));
  const Bytes rows = Bytes(4) * *p.seq * batch * *p.q_heads;  // fp32, one a query and head
  const Bytes once = element * *p.seq * batch * (*p.q_heads * width) +
                     element * p.seq_kv.value_or(*p.seq) * batch * (kv_heads * width) + rows;
  return both_passes ? 2 * once + rows * *p.head_dim : once;
}

KernelAnswer linear_answer(const Point& p, const GpuSpec& gpu, const LinearSpec& spec) {
  const auto need = [&](const auto& value, std::string_view key) {
    if (!value) {
      throw InputError(key, fmt::format("is missing; {} needs it", p.op));
    }
    return static_cast<std::int64_t>(*value);
  };
  const std::int64_t seq = need(p.seq, "seq");
  const std::int64_t batch = p.batch.value_or(1);
  if (p.op == "causal_conv1d") {
    return {.time = convolution_time(
                gpu, spec, {.seq = seq, .batch = batch, .channels = need(p.channels, "channels")}),
            .spread = spec.of_sm.spread};
  }
  if (p.op == "mamba2_scan") {
    return {.time = mamba_time(gpu, spec,
                               {.seq = seq,
                                .batch = batch,
                                .heads = need(p.linear_heads, "heads"),
                                .head_dim = need(p.head_dim, "head_dim"),
                                .d_state = need(p.d_state, "d_state"),
                                .groups = p.linear_groups.value_or(1),
                                .chunk = p.chunk.value_or(MambaWork{}.chunk)},
                               tensors_of(p)),
            .spread = unmeasured_kernel_spread};
  }
  const bool fused = contains(p.kernel, "flashinfer") || contains(p.plugin, "flashinfer");
  return {.time = gated_delta_time(gpu, spec,
                                   {.seq = seq,
                                    .batch = batch,
                                    .key_heads = need(p.k_heads, "k_heads"),
                                    .key_dim = need(p.k_head_dim, "k_head_dim"),
                                    .value_heads = need(p.v_heads, "v_heads"),
                                    .value_dim = need(p.v_head_dim, "v_head_dim"),
                                    .fused = fused && spec.fused},
                                   tensors_of(p)),
          .spread = fused && spec.fused ? spec.fused->step.spread
                    : fused             ? unmeasured_kernel_spread
                                        : spec.chunked.step.spread};
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
    return latent_attention(p, cost);
  }
  throw InputError("op", fmt::format("kernels of kind {} are not modelled", p.op));
}

}  // namespace spp::regress
