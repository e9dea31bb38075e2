#include "regress/corpus_keys.hpp"

#include "base/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace spp::regress {
namespace {

// clang-format off
/// What the format knows: what was measured, the work, the plan, kernels and collectives.
constexpr std::array known_words{
    "choice", "metric", "value", "oom", "suspect", "relative", "beyond", "derived", "noise", "scope",
    "per_gpu", "approx", "nodes", "gpu", "flops_convention", "call",

    "seq", "seq_kv", "batch", "micro_batch", "grad_accum", "mask", "documents", "dtype", "precision",
    "phase", "recompute", "ac", "offload", "steps", "new_tokens", "cached_tokens", "qkv_packed", "model",
    "layers", "hidden", "q_heads", "kv_heads", "head_dim", "head_dim_v", "ffn", "gated", "mlp", "vocab",
    "tied_embeddings", "experts", "experts_per_token", "moe_ffn", "shared_experts", "shared_expert_ffn",
    "dense_layers", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    "mla", "blocks",

    "world", "ulysses", "ring", "team", "layout", "tp", "dp", "pp", "vp", "ep", "etp", "cfg",
    "pipefusion", "cp", "zero", "zero_group", "sharding", "schedule", "tp_sequence_parallel", "kv",
    "double_ring", "inner", "balanced", "placement",

    "op", "bytes", "peak", "pairs", "kernel", "m", "n", "k", "tokens", "distribution", "layer", "plugin",
    "k_heads", "k_head_dim", "v_heads", "channels", "d_conv", "d_state", "heads", "nheads", "n_heads",
    "groups", "ngroups", "n_groups", "chunk", "chunk_size", "mode", "sms",

    "system", "variant", "features", "dispatcher", "library", "fabric", "algo", "api", "task", "resolution"};

/// What sources give beside what is judged; `ddp`, yes or no: a wrapper of replicas.
constexpr std::array source_figures{
    "block_step_time_s", "ddp", "hfu_percent", "local_batch", "mfu_percent", "params", "reserved_bytes", "runs",
    "samples", "samples_per_s", "sliding_window", "tflops_per_gpu_second_value"};
// clang-format on

const std::vector<std::string>& point_keys() {
  static const std::vector<std::string> keys(known_words.begin(), known_words.end());
  return keys;
}

/// The known key that `key` is a slip of, else "". Strict: sources have words of their own, and
/// some resemble ours; of one letter everything is a slip of everything.
std::string slip_of(const std::string& key, const std::vector<std::string>& known) {
  const int most = key.size() < 8 ? 1 : 2;
  const auto near = std::ranges::find_if(
      known, [&](const std::string& k) { return k.size() > 1 && edit_distance(key, k) <= most; });
  return near == known.end() ? "" : *near;
}

bool is_figure_of_source(std::string_view key) {
  return key.ends_with("_printed") ||
         std::ranges::find(source_figures, key) != source_figures.end();
}

}  // namespace

void refuse_slips(const JsonView& object, const std::vector<std::string>& known) {
  if (!object.value().is_object()) {
    object.fail("is no object");
  }
  for (const auto& [key, value] : object.value().items()) {
    if (std::ranges::find(known, key) != known.end() || is_figure_of_source(key)) {
      continue;
    }
    if (const std::string near = slip_of(key, known); !near.empty()) {
      object.fail(fmt::format("unknown key '{}' (did you mean '{}'?)", key, near));
    }
  }
}

void refuse_slips_of_point(const JsonView& object, std::set<std::string>& unread) {
  const auto& known = point_keys();
  refuse_slips(object, known);
  for (const auto& [key, value] : object.value().items()) {
    if (!(value.is_string() || value.is_boolean() || value.is_null()) &&
        std::ranges::find(known, key) == known.end() && !is_figure_of_source(key)) {
      unread.insert(key);
    }
  }
}

}  // namespace spp::regress
